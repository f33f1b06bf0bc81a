"""What environments can be used here, and what to install for the others: for ``weft envs``."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec as GymSpec

from weft.core.errors import ConfigError
from weft.envs.builtin import BUILTIN


@dataclass(frozen=True)
class EnvListing:
    """One line of the list: an environment, or a family that is not installed (``ALE/*``)."""

    name: str  # as `weft train` takes it
    kind: str  # "weft", "gymnasium", "gymnax", "pgx", "jaxmarl", "pettingzoo", "yours"
    summary: str
    usable: bool
    install: str = ""  # the command that makes it usable


@dataclass(frozen=True)
class _Family:
    summary: str
    package: str = ""  # the module that it needs; "" where Gymnasium suffices
    install: str = ""


_FAMILIES = {  # by the package within gymnasium.envs
    "classic_control": _Family("classic control"),
    "toy_text": _Family("toy text"),
    "mujoco": _Family("MuJoCo robots", "mujoco", "pip install 'weft[mujoco]'"),
    "box2d": _Family("Box2D physics", "Box2D", "pip install swig 'gymnasium[box2d]'"),
    "phys2d": _Family("classic control, in JAX on the host"),
    "tabular": _Family("toy text, in JAX on the host"),
}


def usable(all_versions: bool = False) -> list[EnvListing]:
    """Every environment that Weft knows of: built-ins, Gymnasium's, those of other packages, then how to add your own.

    Nothing is made, so that one listed as usable may still fail to start. Of each Gymnasium id only the latest
    version is listed unless ``all_versions``. Loads gymnax, Pgx and JaxMARL (and JAX) where installed.
    """
    own = EnvListing(
        "package.module:factory",
        "yours",
        "a function that makes a gymnasium.Env, a PettingZoo or a JAX environment",
        True,
    )
    return [*_builtins(), *_gymnasium(all_versions), *_gymnax(), *_in_jax(), *_pettingzoo(), own]


def _builtins() -> list[EnvListing]:
    return [EnvListing(f"weft:{name}", "weft", builtin.summary, True) for name, builtin in BUILTIN.items()]


def _gymnasium(all_versions: bool) -> list[EnvListing]:
    atari = _installed("ale_py")
    if atari:
        importlib.import_module("ale_py")  # registers its ids
    specs = [spec for spec in gym.registry.values() if isinstance(spec.entry_point, str)]
    latest: dict[tuple[str | None, str], int] = {}
    for spec in specs:
        key = (spec.namespace, spec.name)
        latest[key] = max(latest.get(key, -1), -1 if spec.version is None else spec.version)
    rows = [
        _registered(spec)
        for spec in specs
        if all_versions or (-1 if spec.version is None else spec.version) == latest[spec.namespace, spec.name]
    ]
    if not atari:
        rows.append(EnvListing("ALE/*", "gymnasium", "Atari games", False, "pip install 'weft[atari]'"))
    return sorted(rows, key=lambda row: (not row.usable, row.summary, row.name))


def _registered(spec: GymSpec) -> EnvListing:
    module = str(spec.entry_point).partition(":")[0]
    parts = module.split(".")
    if parts[:2] == ["gymnasium", "envs"] and len(parts) > 2 and parts[2] in _FAMILIES:
        family = _FAMILIES[parts[2]]
    else:
        family = _Family(f"from {parts[0]}", parts[0], f"pip install {parts[0].replace('_', '-')}")
    here = not family.package or _installed(family.package)
    return EnvListing(spec.id, "gymnasium", family.summary, here, "" if here else family.install)


def _gymnax() -> list[EnvListing]:
    if not _installed("gymnax"):
        return [EnvListing("gymnax:*", "gymnax", "environments in JAX", False, "pip install 'weft[gymnax]'")]
    from weft.envs import gymnax

    try:
        names = gymnax.names()
    except ConfigError as error:
        return [EnvListing("gymnax:*", "gymnax", str(error).partition(". ")[0], False, "pip install 'weft[gymnax]'")]
    return [EnvListing(f"gymnax:{name}", "gymnax", "in JAX", True) for name in names]


def _in_jax() -> list[EnvListing]:
    """Pgx's and JaxMARL's."""
    rows: list[EnvListing] = []
    for scheme, summary in (("pgx", "a game, in JAX"), ("jaxmarl", "several agents, in JAX")):
        missing = EnvListing(f"{scheme}:*", scheme, summary, False, f"pip install 'weft[{scheme}]'")
        if not _installed(scheme):
            rows.append(missing)
            continue
        try:
            names = importlib.import_module(f"weft.envs.{scheme}").names()
        except Exception as error:  # whatever its import raises
            rows.append(replace(missing, summary=f"installed, but cannot be imported: {type(error).__name__}: {error}"))
            continue
        rows += [EnvListing(f"{scheme}:{name}", scheme, summary, True) for name in names]
    return rows


def _pettingzoo() -> list[EnvListing]:
    extra = "pip install 'weft[pettingzoo]'"
    if not _installed("pettingzoo"):
        return [EnvListing("pettingzoo:*", "pettingzoo", "several agents", False, extra)]
    from weft.envs import pettingzoo

    rows = []
    for id, here in pettingzoo.names().items():
        summary = f"several agents, {id.partition('/')[0]}"
        install = "" if here else pettingzoo.install_for(id)
        rows.append(EnvListing(f"pettingzoo:{id}", "pettingzoo", summary, here, install))
    if not _installed("mpe2"):
        rows.append(EnvListing("pettingzoo:mpe/*", "pettingzoo", "several agents, mpe", False, extra))
    return sorted(rows, key=lambda row: not row.usable)


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
