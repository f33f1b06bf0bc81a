"""Environments by their Gymnasium id: ``CartPole-v1``, ``ALE/Pong-v5``, ``module:Id-v0`` if a module registers it."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec as GymSpec
from gymnasium.envs.registration import load_env_creator

from weft.core.errors import ConfigError, MissingExtra, UnknownName
from weft.core.identity import identity
from weft.core.reached import is_users
from weft.envs.atari import AtariBatchMaker, AtariMaker, atari_settings, describe_settings, is_atari
from weft.envs.importing import import_for
from weft.envs.native import NativeFactory, probe_native
from weft.envs.probe import probe
from weft.envs.protocol import EnvSource
from weft.envs.vectoriser import VectoriserFactory

_HOMES = {
    "MiniGrid-": "minigrid",
    "BabyAI-": "minigrid",
    "MiniWorld-": "miniworld",
    "Fetch": "gymnasium_robotics",
    "HandManipulate": "gymnasium_robotics",
    "AdroitHand": "gymnasium_robotics",
    "PointMaze_": "gymnasium_robotics",
    "AntMaze_": "gymnasium_robotics",
    "highway-": "highway_env",
}
"""How ids begin that a package registers when it is imported, and not before."""
_OLD_ATARI_ID = re.compile(r"NoFrameskip|Deterministic|-ram(NoFrameskip|Deterministic)?-v\d+$")


@dataclass(frozen=True)
class GymMaker:
    """``gymnasium.make`` of one id with its options: makes one environment. Can be pickled."""

    id: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, render: bool = False) -> gym.Env[Any, Any]:
        """Make one, without Gymnasium's own checks: the probe checks spaces, the vectoriser resets before it steps."""
        spec = copy.deepcopy(find(self.id))  # a worker process may not have loaded the package that registers it
        spec.order_enforce = False
        options: dict[str, Any] = {"disable_env_checker": True, **self.options}
        if render:
            options["render_mode"] = "rgb_array"
        env: gym.Env[Any, Any] = _translated(self.id, self.options, lambda: gym.make(spec, **options))
        return env


@dataclass(frozen=True)
class GymVectorMaker:
    """The native vector environment that one id registers, with its options. Can be pickled."""

    id: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, num_envs: int, render: bool = False) -> gym.vector.VectorEnv[Any, Any, Any]:
        """Make one of ``num_envs`` environments."""
        find(self.id)
        options = {**self.options, "render_mode": "rgb_array"} if render else dict(self.options)
        mode = "vector_entry_point"
        env: gym.vector.VectorEnv[Any, Any, Any] = _translated(
            self.id, self.options, lambda: gym.make_vec(self.id, num_envs, mode, **options)
        )
        return env


def open_gymnasium(name: str, vector: str, options: Mapping[str, Any], others: Iterable[str] = ()) -> EnvSource:
    """The source for a Gymnasium id; ``others`` are names that are not Gymnasium's but may have been meant."""
    spec = find(name, others)
    if is_atari(spec):
        settings = atari_settings(spec, options)
        if settings is not None:
            return _open_atari(name, spec.kwargs["game"], settings, vector)
        options = {option: value for option, value in options.items() if option != "preset"}
    refusal = _no_native(spec, options)
    if vector == "native" and refusal:
        raise ConfigError(f"environment {name!r}: {refusal}. Use vector='each' for our own vectoriser.")
    if vector == "each" or refusal:
        maker = GymMaker(name, dict(options))
        found = probe(name, maker)
        host = VectoriserFactory(name, found, maker)
        return EnvSource(name, found, host=host, single=maker, code=_users_code(spec.entry_point))
    native = GymVectorMaker(name, dict(options))
    found = probe_native(name, lambda: native(2))
    single = GymMaker(name, dict(options))
    code = _users_code(spec.vector_entry_point)
    return EnvSource(name, found, host=NativeFactory(name, found, native), single=single, code=code)


def _users_code(entry_point: Any) -> dict[str, Any] | None:
    """The identity of what an id was registered with, where that is code of the user's."""
    creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    return identity(creator) if is_users(creator) else None


def _open_atari(name: str, game: str, settings: dict[str, Any], vector: str) -> EnvSource:
    """The same game in either form. Alone, each can be resumed where episodes are seeded; in a batch they are quick."""
    single, about = AtariMaker(game, settings), describe_settings(settings)
    if vector == "each":
        found = probe(name, single)
        return EnvSource(name, found, host=VectoriserFactory(name, found, single), single=single, about=about)
    batches = AtariBatchMaker(game, settings)
    found = probe_native(name, lambda: batches(2))
    host = NativeFactory(name, found, batches, by_row=True)
    return EnvSource(name, found, host=host, single=single, about=about)


def find(name: str, others: Iterable[str] = ()) -> GymSpec:
    """Gymnasium's entry for ``name``; loads the module before a colon, or ALE where the id may be its own."""
    module, _, id = name.rpartition(":")
    if module:
        import_for(name, module)
    if id not in gym.registry and (id.startswith("ALE/") or _OLD_ATARI_ID.search(id)):
        if importlib.util.find_spec("ale_py") is None:
            raise MissingExtra(f"environment {name!r}", "ale-py", "atari")
        gym.register_envs(import_for(name, "ale_py"))
    if id not in gym.registry:
        hint = "'weft envs' lists what can be used here; an environment of your own is 'package.module:factory'."
        if home := next((package for prefix, package in _HOMES.items() if id.startswith(prefix)), ""):
            missing = "" if importlib.util.find_spec(home) else f" (pip install {home.replace('_', '-')})"
            hint = f"Gymnasium knows ids of {home} once it is imported{missing}: '{home}:{id}'."
        raise UnknownName("environment", name, [*gym.registry, *others], hint)
    return gym.registry[id]


def _no_native(spec: GymSpec, options: Mapping[str, Any]) -> str:
    """Why the native vector environment cannot be used; empty where it can."""
    if is_atari(spec):
        return "ale-py's vector environment always preprocesses, and preset 'none' is the game as it is registered"
    if spec.vector_entry_point is None:
        return "it registers no native vector environment"
    if spec.additional_wrappers:
        return "it is registered with wrappers, which a native vector environment would leave out"
    creator: Any = spec.vector_entry_point
    try:
        creator = creator if callable(creator) else load_env_creator(creator)
    except (ImportError, gym.error.Error) as error:
        return f"its native vector environment cannot be loaded ({error})"
    parameters = inspect.signature(creator).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return ""
    unknown = sorted(set(options) - {p.name for p in parameters})
    return f"its native vector environment does not take {', '.join(unknown)}" if unknown else ""


def _translated(id: str, options: Mapping[str, Any], make: Callable[[], Any]) -> Any:
    """``make()``, with Gymnasium's own complaints said in our words; the environment's exceptions pass."""
    try:
        return make()
    except gym.error.DependencyNotInstalled as error:
        if "mujoco" in str(error).lower():
            raise MissingExtra(f"environment {id!r}", "mujoco", "mujoco") from error
        raise ConfigError(f"environment {id!r} needs a package that is not installed: {error}") from error
    except (gym.error.Error, ImportError) as error:
        raise ConfigError(f"environment {id!r} cannot be made: {error}") from error
    except TypeError as error:
        if options and "unexpected keyword argument" in str(error):
            raise ConfigError(f"environment {id!r} does not take these options ({sorted(options)}): {error}") from error
        raise
