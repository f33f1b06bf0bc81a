"""Fitting a plan to a graph: which fragments its names stand for, and in which order they are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from weft.core.errors import UnknownName
from weft.graph.graph import Graph
from weft.graph.role import Role, role, usual_role
from weft.graph.stream import base_name
from weft.plans.plan import Group, Plan


def role_of(name: str, graph: Graph) -> Role:
    """The role of a fragment, or of a part that the graph has not split off."""
    return graph.fragment(name).role if name in graph.names else role(usual_role(name))


def holds(group: Group, graph: Graph, what: Callable[[Role], bool]) -> bool:
    """Whether a group has a fragment with a role for which ``what`` is true."""
    return any(what(role_of(name, graph)) for name in group.fragments)


def plan_names(graph: Graph) -> tuple[str, ...]:
    """Every name a plan may use for a graph: its fragments, each followed by its parts."""
    return tuple(name for f in graph.fragments for name in (f.name, *f.parts))


def stands_for(name: str, graph: Graph) -> tuple[str, ...]:
    """The fragments or parts that a plan means by ``name``.

    That is itself, or all of a family (``act`` and ``act.*``: every ``act.x``), or the parts that the graph has of it.
    """
    known = plan_names(graph)
    if name in known:
        return (name,)
    family = name.removesuffix(".*")
    found = tuple(n for n in known if n.startswith(f"{family}.") or base_name(n) == family)
    return found or tuple(f.name for f in graph.fragments if family in (f.part_of, base_name(f.part_of)))


def fit(plan: Plan, graph: Graph, hint: str = "") -> Plan:
    """The plan with the graph's own names, in the graph's order; all parts of a fragment in one group are the fragment.

    Raises ``UnknownName`` for a name that the graph does not have. What is missing, or named twice, is left so.
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
    """The graph's fragments that a fitted plan leaves out; a part, where the plan has another part of the same.

    What only looks on may be left out: ``seat`` finds a place for it.
    """
    named = set(plan.fragments)
    absent: list[str] = []
    for fragment in graph.fragments:
        if fragment.name in named or fragment.role.watches:
            continue
        parts = [part for part in fragment.parts if part not in named]
        if not fragment.parts or len(parts) == len(fragment.parts):
            absent.append(fragment.name)
        else:
            absent.extend(parts)
    return tuple(absent)


def seat(plan: Plan, graph: Graph, *, apart: bool) -> Plan:
    """A plan with the fragments that look on and that it leaves out: in a group of their own each, or in its only one.

    ``apart``: the plan runs in workers. There they are out of the way of the others; one process stays one.
    """
    for name in [f.name for f in graph.fragments if f.role.watches and f.name not in plan.fragments]:
        if apart:
            plan = Plan((*plan.groups, Group((name,))))
        else:
            plan = plan.with_group(0, fragments=(*plan.groups[0].fragments, name))
    return plan


def unwatched(plan: Plan, graph: Graph) -> Plan:
    """A plan without the fragments that only look on: where training runs."""
    watching = {f.name for f in graph.fragments if f.role.watches}
    kept = [tuple(n for n in group.fragments if n not in watching) for group in plan.groups]
    return Plan(tuple(replace(g, fragments=names) for g, names in zip(plan.groups, kept, strict=True) if names))


def complete(plan: Plan, graph: Graph) -> Plan:
    """A fitted plan with what it leaves out put beside its reader, or else beside its writer."""
    while absent := missing(plan, graph):
        name, at = next(
            ((n, place) for n in reversed(absent) if (place := _beside(n, plan, graph)) is not None),
            (absent[-1], len(plan.groups) - 1),
        )
        plan = plan.with_group(at, fragments=(*plan.groups[at].fragments, name))
        plan = fit(plan, graph)
    return plan


def _beside(name: str, plan: Plan, graph: Graph) -> int | None:
    """The group of a fragment's reader that the plan has; else of its writer, or of its other part."""
    whole = {part: f for f in graph.fragments for part in f.parts}
    if name in whole:
        near = [part for part in whole[name].parts if part != name]
    else:
        after = graph.names[graph.names.index(name) + 1 :]
        near = [s.target for s in graph.out_of(name) if s.target in after]
        near += [s.source for s in graph.into(name)] + [s.target for s in graph.out_of(name)]
    for other in near:
        for alias in (other, *(graph.fragment(other).parts[:1] if other in graph.names else ())):
            if alias in plan.fragments:
                return next(i for i, g in enumerate(plan.groups) if alias in g.fragments)
    return None
