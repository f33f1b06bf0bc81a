"""The plan as data: groups of fragments, how many replicas of each, and where they run.

A plan prints as the one line it was read from (``str(plan)``), becomes plain JSON (``to_dict``), and two plans can be
compared in words (``diff``). It knows nothing of a graph or a machine: ``weft.plans.resolve`` brings them together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from weft.core.errors import PlanError, nearest

FRAGMENT_NAME = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*(?:\.\*)?"
DEVICE_FORMS = "cpu, gpu, gpu:0, gpu:0-3 or node:NAME"


@dataclass(frozen=True)
class Device:
    """Where a group runs: ``cpu``, any ``gpu``, the GPUs from ``first`` to ``last``, both included, or ``node:NAME``.

    A node is a host of a cluster that has this name or this label.
    """

    kind: str
    first: int | None = None
    last: int | None = None
    node: str = ""

    def __post_init__(self) -> None:
        if self.kind == "node" and self.node:
            return
        if self.kind not in ("cpu", "gpu"):
            near = nearest(self.kind, ("cpu", "gpu", "node"), count=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise PlanError(f"unknown device {self.kind!r}: expected {DEVICE_FORMS}.{hint}")
        if self.first is None:
            if self.last is not None:
                raise PlanError(f"device {self.kind!r}: a last number needs a first one")
            return
        if self.kind == "cpu":
            raise PlanError("device 'cpu' has no numbers: cores are shared out by the number of replicas. Write '@cpu'")
        if self.last is None:
            object.__setattr__(self, "last", self.first)
        elif self.last < self.first:
            raise PlanError(
                f"device 'gpu:{self.first}-{self.last}' runs backwards: write 'gpu:{self.last}-{self.first}'"
            )

    @classmethod
    def from_text(cls, text: str) -> Device:
        """Read ``cpu``, ``gpu``, ``gpu:0``, ``gpu:0-3`` or ``node:NAME``."""
        if node := re.fullmatch(r"node:([A-Za-z0-9_.:-]{1,100})", text):
            return cls("node", node=node[1])
        match = re.fullmatch(r"([A-Za-z]\w*)(?::(\d{1,6})(?:-(\d{1,6}))?)?", text)
        if match is None:
            raise PlanError(f"cannot read the device {text!r}: expected {DEVICE_FORMS}")
        kind, first, last = match.groups()
        return cls(kind, None if first is None else int(first), None if last is None else int(last))

    @property
    def indices(self) -> range | None:
        """The numbers of the GPUs that were named; None where any will do."""
        return None if self.first is None or self.last is None else range(self.first, self.last + 1)

    def __str__(self) -> str:
        if self.first is None:
            return f"node:{self.node}" if self.node else self.kind
        return f"{self.kind}:{self.first}" if self.first == self.last else f"{self.kind}:{self.first}-{self.last}"


@dataclass(frozen=True)
class Group:
    """Fragments that run together in one worker. ``replicas`` None means: as many as suit the machine (``*auto``)."""

    fragments: tuple[str, ...]
    replicas: int | None = 1
    device: Device | None = None  # None: wherever JAX runs by default

    def __post_init__(self) -> None:
        if not self.fragments:
            raise PlanError("a group needs at least one fragment")
        for name in self.fragments:
            if not re.fullmatch(FRAGMENT_NAME, name):
                raise PlanError(f"{name!r} cannot be a fragment's name: letters, digits and _, in parts joined by dots")
        if self.replicas is not None and self.replicas < 1:
            raise PlanError(f"group {'+'.join(self.fragments)!r}: expected at least 1 replica, got {self.replicas}")

    def __str__(self) -> str:
        together = "+".join(self.fragments)
        copies = "*auto" if self.replicas is None else f"*{self.replicas}" if self.replicas > 1 else ""
        suffix = copies + (f"@{self.device}" if self.device else "")
        return f"({together}){suffix}" if suffix and len(self.fragments) > 1 else together + suffix


@dataclass(frozen=True)
class Plan:
    """The groups, in the order in which data passes them."""

    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        if not self.groups:
            raise PlanError("a plan needs at least one group")

    @property
    def fragments(self) -> tuple[str, ...]:
        """Every fragment named, group by group, as often as it is named."""
        return tuple(name for group in self.groups for name in group.fragments)

    def group_of(self, fragment: str) -> Group:
        """The first group that holds ``fragment``."""
        for group in self.groups:
            if fragment in group.fragments:
                return group
        raise PlanError(f"plan {str(self)!r} has no fragment {fragment!r}")

    def with_group(self, index: int, **changes: Any) -> Plan:
        """A copy whose group ``index`` has other ``fragments``, ``replicas`` or ``device``."""
        changed = replace(self.groups[index], **changes)
        return Plan((*self.groups[:index], changed, *self.groups[index + 1 :]))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON: what ``plan.json`` holds. ``from_dict`` reads it back to an equal plan."""
        groups = [
            {"fragments": list(g.fragments), "replicas": g.replicas, "device": str(g.device) if g.device else None}
            for g in self.groups
        ]
        return {"expression": str(self), "groups": groups}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Plan:
        """The plan that ``to_dict`` wrote; ``expression`` there is for people and is not read."""
        try:
            groups = tuple(
                Group(
                    fragments=tuple(str(name) for name in group["fragments"]),
                    replicas=None if group["replicas"] is None else int(group["replicas"]),
                    device=None if group["device"] is None else Device.from_text(group["device"]),
                )
                for group in data["groups"]
            )
        except (KeyError, TypeError, ValueError) as error:
            raise PlanError(
                f"cannot read a stored plan: {type(error).__name__}: {error}. Expected "
                '{"groups": [{"fragments": ["env", …], "replicas": 1, "device": null}, …]}'
            ) from None
        return cls(groups)

    def __str__(self) -> str:
        return " | ".join(str(group) for group in self.groups)


def diff(before: Plan, after: Plan) -> list[str]:
    """What changes from ``before`` to ``after``, a sentence each; empty where they place everything the same.

    The order of groups, and of fragments within a group, is not a difference.
    """
    changes: list[str] = []
    told: set[frozenset[str]] = set()
    for name in dict.fromkeys((*before.fragments, *after.fragments)):
        if name not in after.fragments:
            changes.append(f"{name}: no longer in the plan (was in '{before.group_of(name)}')")
            continue
        if name not in before.fragments:
            changes.append(f"{name}: new, in '{after.group_of(name)}'")
            continue
        old, new = before.group_of(name), after.group_of(name)
        if set(old.fragments) != set(new.fragments):
            changes.append(f"{name}: moves from '{old}' to '{new}'")
        elif frozenset(old.fragments) not in told:
            told.add(frozenset(old.fragments))
            changes.extend(_same_fragments(old, new))
    return changes


def _same_fragments(old: Group, new: Group) -> list[str]:
    label = "+".join(old.fragments)
    changes = []
    if old.replicas != new.replicas:
        changes.append(f"{label}: from {_copies(old)} to {_copies(new)}")
    if old.device != new.device:
        changes.append(f"{label}: from {old.device or 'the default device'} to {new.device or 'the default device'}")
    return changes


def _copies(group: Group) -> str:
    if group.replicas is None:
        return "as many replicas as suit the machine"
    return f"{group.replicas} replica{'s' if group.replicas > 1 else ''}"
