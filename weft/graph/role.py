"""Roles: the ways in which a fragment meets its streams. All that plans and layouts know of a fragment is its role.

A role has two halves. This one is data: what a plan may do with a fragment of the role. The other half, how it runs, is
the object that ``runs`` names, imported where it is needed (``weft.runtimes.roles`` says what that object must have).
A user registers a role of their own with ``register_role``, in a module that is imported wherever the graph is built.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import Any

from weft.core.errors import GraphError, UnknownName


class Wants(Enum):
    """What ``*auto`` gives a group with a fragment of the role."""

    CORES = "cores"  # the cores that the other groups leave
    ACCELERATORS = "accelerators"  # one replica for each accelerator
    INFERENCE = "inference"  # in a group without the two above: one replica for every four accelerators
    ONE = "one"


@dataclass(frozen=True)
class Role:
    """What a plan and a layout may assume of fragments of a role. Unless told otherwise: what a map is."""

    name: str
    runs: str  # "package.module:name" of the object that runs it
    makes_steps: bool = False  # owns the environments
    every_step: bool = False  # meets the environments at every step, with the one that owns them
    publishes: bool = False  # gives params: its state is the run's, and only a checkpoint replaces it
    computes_gradients: bool = False  # eats whole batches: its replicas must share the environments evenly
    one_program: bool = False  # replicas are one program that averages gradients: each needs a device
    single: bool = False  # one replica at most: it owns what the others share
    wants: Wants = Wants.ONE
    absorbs: bool = False  # pure maps and stores just before it in its group become part of its program
    stores: bool = False  # keeps what it takes and draws from it: what follows runs as often as its code says
    watches: bool = False  # only looks on: takes the newest params and gives nothing, so that training goes on without

    def code(self) -> Any:
        """The half that runs, imported now."""
        module, _, name = self.runs.partition(":")
        found = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return found


_ROLES: dict[str, Role] = {}
_BY_NAME = {"env": "step", "act": "act", "replay": "store", "learn": "learn", "grad": "grad", "apply": "apply"}
"""The role of a fragment that names none, by the first part of its name; a fragment of any other name is a map."""


def register_role(role: Role) -> Role:
    """Make a role known. The same again is fine; another of the same name is refused."""
    known = _ROLES.get(role.name)
    if known is not None and known != role:
        raise GraphError(
            f"two roles are called {role.name!r}: {known.runs} is registered, and {role.runs} came now. Rename one."
        )
    _ROLES[role.name] = role
    return role


def role(name: str) -> Role:
    """The role called ``name``; refused with the nearest where there is none."""
    if name not in _ROLES:
        raise UnknownName("role", name, _ROLES, "weft.register_role makes one of your own known.")
    return _ROLES[name]


def usual_role(fragment: str) -> str:
    """The role of a fragment that names none: by the first part of its name, ``act`` for ``act.hiders``; else map."""
    return _BY_NAME.get(fragment.partition(".")[0], "map")


_HOME = "weft.runtimes.roles"
register_role(Role("step", f"{_HOME}.step:STEP", makes_steps=True, every_step=True, wants=Wants.CORES))
register_role(Role("act", f"{_HOME}.act:ACT", every_step=True, wants=Wants.INFERENCE))
register_role(Role("map", f"{_HOME}.map:MAP"))
register_role(Role("store", f"{_HOME}.store:STORE", stores=True))
register_role(Role("watch", f"{_HOME}.watch:WATCH", watches=True))
register_role(
    Role(
        "learn",
        f"{_HOME}.learn:LEARN",
        publishes=True,
        computes_gradients=True,
        one_program=True,
        wants=Wants.ACCELERATORS,
        absorbs=True,
    )
)
register_role(Role("grad", f"{_HOME}.grad:GRAD", computes_gradients=True, wants=Wants.ACCELERATORS, absorbs=True))
register_role(Role("apply", f"{_HOME}.apply:APPLY", publishes=True, single=True))
