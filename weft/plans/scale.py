"""Other counts for a plan: more or fewer replicas of its groups, each named by any fragment in it. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from weft.core.errors import PlanError, UnknownName
from weft.plans.plan import FRAGMENT_NAME, Plan

HOW = "FRAGMENT=REPLICAS, such as env=64"
HOW_BOUNDS = "FRAGMENT=LEAST:MOST, such as env=2:64"
_COUNT = re.compile(rf"({FRAGMENT_NAME})=([0-9]{{1,9}})")
_BOUNDS = re.compile(rf"({FRAGMENT_NAME})=([0-9]{{1,9}}):([0-9]{{1,9}})")


class Bounds(NamedTuple):
    """How few and how many replicas a group may have."""

    least: int
    most: int


def read_counts(words: Sequence[str]) -> dict[str, int]:
    """``env=64`` and so on, by fragment. Raises PlanError."""
    counts: dict[str, int] = {}
    for word in words:
        match = _COUNT.fullmatch(word)
        if match is None or int(match[2]) < 1:
            raise PlanError(f"{word!r} is no count of replicas: expected {HOW}, at least 1.")
        if match[1] in counts:
            raise PlanError(f"{match[1]!r} was given twice, as {counts[match[1]]} and as {match[2]}.")
        counts[match[1]] = int(match[2])
    return counts


def read_bounds(text: str) -> dict[str, Bounds]:
    """``env=2:64,act=1:8``, by fragment, in the order given. Raises PlanError."""
    bounds: dict[str, Bounds] = {}
    for word in re.split(r"[,\s]+", text.strip()) if text.strip() else ():
        match = _BOUNDS.fullmatch(word)
        if match is None or not 1 <= int(match[2]) <= int(match[3]):
            raise PlanError(f"{word!r} are no bounds of replicas: expected {HOW_BOUNDS}, the least at least 1.")
        if match[1] in bounds:
            raise PlanError(f"{match[1]!r} was given bounds twice.")
        bounds[match[1]] = Bounds(int(match[2]), int(match[3]))
    return bounds


def rescaled(plan: Plan, counts: Mapping[str, int]) -> Plan:
    """The plan with so many replicas of the groups that hold these fragments; itself where it has them already.

    Raises UnknownName for a fragment that it has not, PlanError where one group gets two counts. Whether the plan can
    run is not asked.
    """
    asked: dict[int, tuple[str, int]] = {}
    for name, count in counts.items():
        if name not in plan.fragments:
            raise UnknownName("fragment", name, plan.fragments, f"The run's plan is '{plan}'.")
        index = plan.groups.index(plan.group_of(name))
        other, before = asked.setdefault(index, (name, count))
        if before != count:
            raise PlanError(
                f"{other} and {name} are one group, {str(plan.groups[index])!r}: it has one number of replicas, and "
                f"{before} and {count} were asked for."
            )
    for index, (_, count) in asked.items():
        plan = plan.with_group(index, replicas=count)
    return plan


def filled(plan: Plan, bounds: Mapping[str, Bounds], fits: Callable[[Plan], bool]) -> Plan | None:
    """The plan with as many replicas as fit, within bounds; None where no counts within them fit.

    What is named first gets as many as leave the others their least. ``fits`` says whether a plan can run and has room.
    """

    def counts(bound: Bounds) -> range:
        return range(bound.most, bound.least - 1, -1)

    def search(left: list[str], chosen: Plan) -> Plan | None:
        if not left:
            return chosen if fits(chosen) else None
        for count in counts(bounds[left[0]]):
            found = search(left[1:], rescaled(chosen, {left[0]: count}))
            if found is not None:
                return found
        return None

    return search(list(bounds), plan)
