"""Environments of your own: ``package.module:factory``, or the function itself.

A factory is called with the run's options and gives a new ``gymnasium.Env`` (a class is such a factory), a PettingZoo
environment, a JAX environment, or, where it has a parameter ``num_envs``, a ``gymnasium.vector.VectorEnv``. To be
rendered it needs a parameter ``render_mode``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import gymnasium as gym

from weft.core.errors import ConfigError, UnknownName
from weft.core.identity import identity
from weft.core.specs import EnvSpec
from weft.envs.admission import check_factory
from weft.envs.importing import import_for
from weft.envs.native import NativeFactory, probe_native
from weft.envs.pettingzoo import OWN_OPTIONS, ParallelMaker, is_pettingzoo, open_agents
from weft.envs.probe import attempt, probe
from weft.envs.protocol import EnvSource, JaxEnv
from weft.envs.vectoriser import VectoriserFactory

Factory = Callable[..., Any]


@dataclass(frozen=True)
class FactoryMaker:
    """Calls a factory with its options. Can be pickled where the factory can."""

    name: str
    factory: Factory
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_factory(self.name, self.factory)

    def __call__(self, render: bool = False) -> Any:
        """Make one environment."""
        options = dict(self.options)
        if render:
            if not _takes(self.factory, "render_mode"):
                raise ConfigError(
                    f"environment {self.name!r} cannot be rendered: its factory has no parameter 'render_mode'"
                )
            options["render_mode"] = "rgb_array"
        return self.factory(**options)


@dataclass(frozen=True)
class VectorFactoryMaker:
    """Calls a factory of vector environments. Can be pickled where the factory can."""

    maker: FactoryMaker

    def __call__(self, num_envs: int, render: bool = False) -> gym.vector.VectorEnv[Any, Any, Any]:
        """Make one vector environment of ``num_envs``."""
        options = {**self.maker.options, "num_envs": num_envs}
        env: gym.vector.VectorEnv[Any, Any, Any] = FactoryMaker(self.maker.name, self.maker.factory, options)(render)
        if env.num_envs != num_envs:
            raise ConfigError(
                f"environment {self.maker.name!r}: asked for {num_envs} environments, its factory made {env.num_envs}"
            )
        return env


def open_factory(name: str, factory: Factory, options: Mapping[str, Any], vector: str = "auto") -> EnvSource:
    """The source for whatever ``factory(**options)`` makes; refused, uncalled, where it is no factory by its type."""
    check_factory(name, factory)
    adapters = {option: value for option, value in options.items() if _is_adapters(factory, option)}
    options = {option: value for option, value in options.items() if option not in adapters}
    _check_options(name, factory, options)
    maker = FactoryMaker(name, factory, dict(options))
    code = identity(factory)  # before it is called, which may change what it remembers
    if _takes(factory, "num_envs", named=True) and "num_envs" not in options:
        _check_options(name, factory, adapters)
        if vector == "each":
            raise ConfigError(
                f"environment {name!r}: its factory makes whole batches (it has 'num_envs'), not each one"
            )
        vectors = VectorFactoryMaker(maker)
        spec = probe_native(name, lambda: vectors(2))
        return EnvSource(name, spec, host=NativeFactory(name, spec, vectors), code=code)
    made = attempt(name, "making it", maker)
    if is_pettingzoo(made):
        attempt(name, "close", made.close)
        return replace(open_agents(name, ParallelMaker(name, maker), adapters, vector), code=code)
    _check_options(name, factory, adapters)
    if isinstance(made, EnvSource):
        return replace(made, code=code)
    if is_jax_env(made):
        return EnvSource(name, made.spec, pure=made, code=code)
    if isinstance(made, gym.vector.VectorEnv):
        attempt(name, "close", made.close)
        raise ConfigError(f"environment {name!r}: a factory of vector environments needs a parameter 'num_envs'")
    if not isinstance(made, gym.Env):
        raise ConfigError(
            f"environment {name!r}: its factory made {type(made).__name__}, expected a gymnasium.Env, a JAX "
            "environment (spec, reset, step) or a PettingZoo environment. A class from the older 'gym' package must be "
            "moved to gymnasium."
        )
    if vector == "native":
        attempt(name, "close", made.close)
        raise ConfigError(f"environment {name!r}: its factory makes single environments: use vector='each'")
    spec = probe(name, lambda: made)
    return EnvSource(name, spec, host=VectoriserFactory(name, spec, maker), code=code, single=maker)


def is_jax_env(thing: object) -> bool:
    """Whether it is a JAX environment: it has a spec of ours that says so, and ``reset`` and ``step``."""
    spec = getattr(thing, "spec", None)
    return (
        isinstance(spec, EnvSpec) and callable(getattr(thing, "reset", None)) and callable(getattr(thing, "step", None))
    )


def load_factory(name: str) -> Factory:
    """The factory at ``package.module:attribute``; modules in the working directory are found too."""
    module_name, _, attribute = name.partition(":")
    module = import_for(name, module_name)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = [f"{module_name}:{n}" for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
            raise UnknownName("environment", name, public, f"Module {module_name!r} has no {attribute!r}.")
        found = getattr(found, part)
    if is_jax_env(found) and not isinstance(found, type):
        return cast(Factory, _Constant(found))
    check_factory(name, found)
    return cast(Factory, found)


@dataclass(frozen=True)
class _Constant:
    """A factory for a JAX environment that exists already: it has no state, so one object serves all."""

    env: JaxEnv

    def __call__(self) -> JaxEnv:
        return self.env


def _takes(factory: Factory, parameter: str, named: bool = False) -> bool:
    """Whether the factory has this parameter; by ``**kwargs`` too, unless it must be ``named``."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return False
    return parameter in parameters or (not named and any(p.kind is p.VAR_KEYWORD for p in parameters.values()))


def _is_adapters(factory: Factory, option: str) -> bool:
    """Whether an option is meant for our adapter of PettingZoo environments, and not for the factory."""
    return option in OWN_OPTIONS and not _takes(factory, option)


def _check_options(name: str, factory: Factory, options: Mapping[str, Any]) -> None:
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return
    for option in options:
        if not _takes(factory, option):
            raise UnknownName(f"option of environment {name!r}:", option, parameters)
