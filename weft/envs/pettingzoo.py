"""PettingZoo's environments by their names, ``pettingzoo:mpe/simple_spread_v3``, and those that a factory makes.

PettingZoo's own are found in its registry, those of the particle world in the package mpe2. Parallel environments are
taken as they are; AEC environments become parallel by PettingZoo's own wrapper where their metadata says that they can,
and else are played turn by turn (``turns.py``).
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.core.buffers import timestep_buffers
from weft.core.errors import ConfigError, MissingExtra, UnknownName
from weft.core.specs import EnvSpec
from weft.envs.agents import agents_spec, groups_of
from weft.envs.agents_batch import AgentsFactory
from weft.envs.masks import KEY
from weft.envs.probe import attempt, first_allowed
from weft.envs.protocol import EnvSource
from weft.envs.turns import TurnGame

OWN_OPTIONS = {"changing": True, "state": True}
"""Options of the adapter, with their defaults; all others are the environment's."""

_VERSIONED = re.compile(r"_v\d+$")


@dataclass(frozen=True)
class PettingZooMaker:
    """Makes one environment by its name, ``family/name_v0``. Can be sent to workers."""

    name: str
    id: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, render: bool = False) -> Any:
        """Make one, parallel where it can be."""
        options = {**self.options, "render_mode": "rgb_array"} if render else dict(self.options)
        family, _, short = self.id.partition("/")
        try:
            made = _of_mpe2(short, options) if family == "mpe" else _registered(self.id, options)
        except TypeError as error:
            if options and "unexpected keyword argument" in str(error):
                told = ", ".join(sorted(options))
                raise ConfigError(f"environment {self.name!r} does not take these options ({told}): {error}") from error
            raise
        return as_parallel(self.name, made)


@dataclass(frozen=True)
class ParallelMaker:
    """Calls what makes PettingZoo environments of the user's. Can be sent to workers where that can."""

    name: str
    make: Callable[[bool], Any]

    def __call__(self, render: bool = False) -> Any:
        """Make one, parallel where it can be."""
        return as_parallel(self.name, self.make(render))


def open_pettingzoo(name: str, options: Mapping[str, Any], vector: str = "auto") -> EnvSource:
    """The source for ``pettingzoo:ID``; the ID with its family or without."""
    maker = PettingZooMaker(name, find(name), {k: v for k, v in options.items() if k not in OWN_OPTIONS})
    return open_agents(name, maker, {k: v for k, v in options.items() if k in OWN_OPTIONS}, vector)


def open_agents(name: str, make: Callable[[bool], Any], options: Mapping[str, Any], vector: str = "auto") -> EnvSource:
    """The source for what ``make`` makes, parallel environments or turn games. Two are made, one of them played."""
    if vector == "native":
        raise ConfigError(f"environment {name!r}: PettingZoo environments have no native batches: use vector='each'")
    for option, value in options.items():
        if not isinstance(value, bool):
            raise ConfigError(f"environment {name!r}: option {option} is true or false, got {value!r}")
    spec = _spec_of(name, make, {**OWN_OPTIONS, **options})
    host = AgentsFactory(name, spec, make)
    _try(host)
    return EnvSource(name, spec, host=host)


def is_pettingzoo(thing: object) -> bool:
    """Whether it is an environment of PettingZoo's two kinds. Loads nothing: who made one has loaded it."""
    module = sys.modules.get("pettingzoo.utils.env")
    return module is not None and isinstance(thing, module.ParallelEnv | module.AECEnv)


def as_parallel(name: str, env: Any) -> Any:
    """``env`` with the methods of a parallel environment; a turn game where agents cannot act at once."""
    module = sys.modules.get("pettingzoo.utils.env")
    if module is None or not is_pettingzoo(env):
        raise ConfigError(
            f"environment {name!r}: expected a pettingzoo.ParallelEnv or AECEnv, got {type(env).__name__}"
        )
    if isinstance(env, module.ParallelEnv):
        return env
    if (getattr(env, "metadata", None) or {}).get("is_parallelizable"):
        from pettingzoo.utils.conversions import aec_to_parallel

        return aec_to_parallel(env)
    return TurnGame(name, env)


def names() -> dict[str, bool]:
    """Every id that is known here, ``family/name_v0``, and whether all that it needs seems to be installed."""
    known: dict[str, bool] = {}
    if importlib.util.find_spec("mpe2") is not None:
        found = pkgutil.iter_modules(importlib.import_module("mpe2").__path__)
        known |= {f"mpe/{module.name}": True for module in found if _VERSIONED.search(module.name)}
    if importlib.util.find_spec("pettingzoo") is not None:
        for id, spec in sorted(_registry("aec").items()):
            needs = _NEEDS.get(spec.namespace or "", ()) + _NEEDS.get(spec.name, ())
            here = all(importlib.util.find_spec(package) is not None for package in needs)
            known[id.replace("-v", "_v")] = here
    return known


_NEEDS: dict[str, tuple[str, ...]] = {
    "atari": ("multi_agent_ale_py",),
    "butterfly": ("pygame",),
    "pistonball": ("pymunk",),
    "classic": ("pygame",),
    "chess": ("chess",),
    "hanabi": ("shimmy", "pyspiel"),
    "leduc_holdem": ("rlcard",),
    "texas_holdem": ("rlcard",),
    "texas_holdem_no_limit": ("rlcard",),
    "sisl": ("pygame", "scipy"),
    "multiwalker": ("Box2D",),
}
"""The modules that PettingZoo's families and single environments import, beside its own."""


def find(name: str) -> str:
    """The id that ``pettingzoo:ID`` means; raises UnknownName, or MissingExtra where PettingZoo is not installed."""
    if importlib.util.find_spec("pettingzoo") is None:
        raise MissingExtra(f"environment {name!r}", "pettingzoo", "pettingzoo")
    wanted = name.partition(":")[2].replace("-v", "_v")
    known = names()
    found = [id for id in known if wanted in (id, id.partition("/")[2])]
    if not found and wanted.startswith(("mpe/", "simple")) and importlib.util.find_spec("mpe2") is None:
        raise MissingExtra(f"environment {name!r}", "mpe2", "pettingzoo")
    if not found:
        ids = [f"pettingzoo:{id}" for id in known] + [f"pettingzoo:{id.partition('/')[2]}" for id in known]
        raise UnknownName("environment", name, ids, "'weft envs pettingzoo' lists them.")
    return found[0]


def install_for(id: str) -> str:
    """The command that brings what an id needs."""
    return f"pip install 'pettingzoo[{id.partition('/')[0]}]'"


def _registry(kind: str) -> Mapping[str, Any]:
    import pettingzoo

    found: Mapping[str, Any] | None = getattr(pettingzoo, f"{kind}_registry", None)
    if found is None:
        version = getattr(pettingzoo, "__version__", "?")
        raise ConfigError(f"pettingzoo {version} has no registry of environments. Run: pip install 'pettingzoo>=1.27'")
    return found


def _registered(id: str, options: Mapping[str, Any]) -> Any:
    import pettingzoo
    from pettingzoo.env_registry.exceptions import FailedToImport

    try:
        if id.replace("_v", "-v") in _registry("parallel"):
            return pettingzoo.make("parallel", id, **options)
        return pettingzoo.make("aec", id, **options)
    except FailedToImport as error:
        raise ConfigError(
            f"environment 'pettingzoo:{id}' needs a package that is not installed ({error.__cause__}). "
            f"Run: {install_for(id)}"
        ) from error


def _of_mpe2(short: str, options: Mapping[str, Any]) -> Any:
    return importlib.import_module(f"mpe2.{short}").parallel_env(**options)


def _spec_of(name: str, make: Callable[[bool], Any], options: Mapping[str, bool]) -> EnvSpec:
    """What one of them says of itself, and whether its first infos have masks."""
    env = attempt(name, "making it", lambda: make(False))
    try:
        turns = isinstance(env, TurnGame)
        gave = attempt(name, "reset", lambda: env.reset(seed=0))
        infos = gave[1] if isinstance(gave, tuple) and len(gave) == 2 and isinstance(gave[1], Mapping) else {}
        masked = frozenset(env.possible_agents) if turns else frozenset(a for a, i in infos.items() if KEY in (i or ()))
        spec: EnvSpec = attempt(name, "asking for its spaces", lambda: agents_spec(name, env, masked, **options))
        return spec
    finally:
        attempt(name, "close", env.close)


def _try(host: AgentsFactory) -> None:
    """Play one step in one environment: what it gives is checked on the way."""
    env, out = host(1, 0), timestep_buffers(host.spec, (1,))
    try:
        env.reset(out)
        masks: Any = out.action_mask
        action: Any = {}
        for team, group in groups_of(host.spec).items():
            mask = masks[team] if masks is not None and team else masks
            action[team] = (
                np.zeros((1, *group.action.shape), group.action.dtype)
                if mask is None
                else first_allowed(group.native_action, mask[0])
            )
        env.step(action if host.spec.teams else action[""], out)
    finally:
        env.close()
