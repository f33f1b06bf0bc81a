"""Fitting a plan to a graph: which fragments its names stand for, and in which order they are written."""

from __future__ import annotations

from dataclasses import replace

from weft.core.errors import UnknownName
from weft.graph.graph import Graph
from weft.plans.plan import Group, Plan


def role(fragment: str) -> str:
    """What a fragment does in the loop, by its name up to the first dot: ``act`` for ``act.hiders``."""
    return fragment.split(".", 1)[0]


def holds(group: Group, *roles: str) -> bool:
    """Whether a group has a fragment in one of these roles."""
    return any(role(name) in roles for name in group.fragments)


def plan_names(graph: Graph) -> tuple[str, ...]:
    """Every name a plan may use for a graph: its fragments, each followed by its parts."""
    return tuple(name for f in graph.fragments for name in (f.name, *f.parts))


def stands_for(name: str, graph: Graph) -> tuple[str, ...]:
    """The fragments or parts a plan means by ``name``: itself, or all in that role (``act``: every ``act.x``)."""
    known = plan_names(graph)
    return (name,) if name in known else tuple(n for n in known if role(n) == name)


def fit(plan: Plan, graph: Graph, hint: str = "") -> Plan:
    """The plan with the graph's own names, in the graph's order; all parts of a fragment in one group are the fragment.

    Raises ``UnknownName`` for a name that the graph does not have. What is missing or twice stays so.
    """
    order = {name: index for index, name in enumerate(plan_names(graph))}
    groups = []
    for group in plan.groups:
        names: list[str] = []
        for name in group.fragments:
            found = stands_for(name, graph)
            if not found:
                raise UnknownName("fragment", name, order, hint or f"It is in the plan {str(plan)!r}.")
            names.extend(found)
        for fragment in graph.fragments:
            if fragment.parts and all(part in names for part in fragment.parts):
                names = [n for n in names if n not in fragment.parts] + [fragment.name]
        groups.append(replace(group, fragments=tuple(sorted(names, key=order.__getitem__))))
    return Plan(tuple(sorted(groups, key=lambda g: order[g.fragments[0]])))


def missing(plan: Plan, graph: Graph) -> tuple[str, ...]:
    """The graph's fragments that a fitted plan leaves out; a part, where the plan has another part of the same."""
    named = set(plan.fragments)
    absent: list[str] = []
    for fragment in graph.fragments:
        if fragment.name in named:
            continue
        parts = [part for part in fragment.parts if part not in named]
        if not fragment.parts or len(parts) == len(fragment.parts):
            absent.append(fragment.name)
        else:
            absent.extend(parts)
    return tuple(absent)


def complete(plan: Plan, graph: Graph) -> Plan:
    """A fitted plan with what it leaves out put beside learn (or grad, or else into the last group)."""
    absent = missing(plan, graph)
    if not absent:
        return plan
    beside = next((i for i, g in enumerate(plan.groups) if holds(g, "learn", "grad")), len(plan.groups) - 1)
    return fit(plan.with_group(beside, fragments=(*plan.groups[beside].fragments, *absent)), graph)
