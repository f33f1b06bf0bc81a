"""Every environment by its name: which adapter a name belongs to, and what an unknown one may have meant."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from weft.core.errors import ConfigError, UnknownName
from weft.core.identity import identity, is_plain
from weft.core.recipe import SCRIPT
from weft.envs.builtin import BUILTIN
from weft.envs.factory import is_jax_env, load_factory, open_factory
from weft.envs.gymnasium import open_gymnasium
from weft.envs.importing import importable
from weft.envs.pettingzoo import open_pettingzoo
from weft.envs.protocol import VECTOR_MODES, EnvLike, EnvSource, JaxEnv

SCHEMES: Mapping[str, str] = {
    "weft": "built in, in JAX",
    "gymnax": "of the gymnax package, in JAX",
    "pgx": "games of the Pgx package, in JAX",
    "jaxmarl": "of the JaxMARL package, in JAX, several agents",
    "pettingzoo": "of PettingZoo and mpe2, several agents",
}
"""What may stand before the colon of a name; any other word is a module of yours."""

LATER = ("brax", "envpool")
"""Names that are kept for adapters to come."""


def open_environment(env: EnvLike, *, vector: str = "auto", **options: Any) -> EnvSource:
    """The source of an environment: its spec, and how to make it. A host environment is made once, checked and closed.

    ``env`` is a Gymnasium id, ``weft:NAME``, ``gymnax:NAME``, ``pgx:NAME``, ``jaxmarl:NAME``, ``pettingzoo:NAME``,
    ``package.module:factory``, a function that makes one environment, a JAX environment, or a source (returned as it
    is). ``options`` go to ``gymnasium.make``, to ``jaxmarl.make``, to the factory, or to the built-in's class.
    ``vector``: ``"native"`` takes the vector environment that an id registers, ``"each"`` our own vectoriser,
    ``"auto"`` the native one where there is one that takes the options.
    """
    if vector not in VECTOR_MODES:
        raise UnknownName("vector mode", vector, VECTOR_MODES)
    if isinstance(env, str):
        return _by_name(env, vector, options)
    if isinstance(env, EnvSource):
        _no_options(env.name, options)
        return env
    if is_jax_env(env) and not isinstance(env, type):
        pure: JaxEnv = env  # type: ignore[assignment]
        _no_options(pure.spec.name, options)
        return EnvSource(pure.spec.name, pure.spec, pure=pure, code=identity(pure))
    if callable(env):
        return open_factory(_name_of(env), env, options, vector)
    raise ConfigError(
        f"not an environment: {env!r}. Expected a name, a JAX environment (spec, reset, step), or a function making "
        "a gymnasium.Env or a PettingZoo environment: every row of a batch needs its own, so an environment that was "
        "already made cannot be used."
    )


def _by_name(name: str, vector: str, options: Mapping[str, Any]) -> EnvSource:
    scheme, colon, rest = name.partition(":")
    if not colon:
        return open_gymnasium(name, vector, options, _builtin_names())
    if scheme == "weft":
        from weft.envs import builtin

        pure = builtin.load(rest, **options)
        return EnvSource(name, pure.spec, pure=pure)
    if scheme == "gymnax":
        from weft.envs import gymnax

        _no_options(name, options)
        loaded = gymnax.load(rest)
        return EnvSource(name, loaded.spec, pure=loaded)
    if scheme == "pgx":
        from weft.envs import pgx

        _no_options(name, options)
        game = pgx.load(rest)
        return EnvSource(name, game.spec, pure=game)
    if scheme == "jaxmarl":
        from weft.envs import jaxmarl

        several = jaxmarl.load(rest, **options)
        return EnvSource(name, several.spec, pure=several)
    if scheme == "pettingzoo":
        return open_pettingzoo(name, options, vector)
    if scheme in LATER:
        raise ConfigError(f"environment {name!r}: {scheme}: is not yet supported. 'weft envs' lists what is.")
    if not all(part.isidentifier() for part in scheme.split(".")) or not importable(scheme):
        hint = f"There is no module of that name either, installed or here (in {name!r})."
        if scheme.endswith(".py"):
            hint = f"A module is named, not a file: {scheme.removesuffix('.py').strip('./').replace('/', '.')}:{rest}"
        raise UnknownName("kind of environment", scheme, SCHEMES, hint)
    if all(part.isidentifier() for part in rest.split(".")):
        return open_factory(name, load_factory(name), options, vector)
    # Gymnasium's own notation: a module that registers an id (which, with its version, is no Python name).
    return open_gymnasium(name, vector, options, _builtin_names())


def modules_of(name: str) -> list[str]:
    """The module that opening an environment by its name would import, but for those that names are built in for.

    None for ``weft:`` and the other schemes, Gymnasium's own ids and ALE's. Imports nothing.
    """
    scheme, colon, _ = name.partition(":")
    if colon:
        return [] if scheme in SCHEMES or scheme in LATER else [scheme]
    entry = getattr(gym.registry.get(name), "entry_point", None)
    module = entry.partition(":")[0] if isinstance(entry, str) else str(getattr(entry, "__module__", ""))
    return [module] if entry is not None and module.partition(".")[0] not in ("gymnasium", "ale_py") else []


def _builtin_names() -> list[str]:
    return [f"weft:{name}" for name in BUILTIN]


def _no_options(name: str, options: Mapping[str, Any]) -> None:
    if options:
        raise ConfigError(f"environment {name!r} takes no options, got {', '.join(sorted(options))}")


def _name_of(factory: Any) -> str:
    """``module:function``, of a partial with its arguments; never with a memory address, so that it stays the same."""
    if isinstance(factory, functools.partial):
        given = [_text(value) for value in factory.args]
        given += [f"{name}={_text(value)}" for name, value in factory.keywords.items()]
        return f"{_name_of(factory.func)}({', '.join(given)})"
    named = factory if hasattr(factory, "__qualname__") else type(factory)
    module = str(named.__module__)
    return f"{'__main__' if module == SCRIPT else module}:{named.__qualname__}"


def _text(value: Any) -> str:
    return repr(value) if is_plain(value) else _name_of(value)
