"""Blueprints of plans on a machine without accelerators, and the small graphs that they are drafted from."""

from __future__ import annotations

from functools import cache
from typing import Any

import weft
from weft.core.specs import Box, Discrete, EnvSpec, Spec
from weft.graph.graph import Graph
from weft.graph.loops import several_policies
from weft.plans import Machine, parse
from weft.plans.fit import fit
from weft.plans.plan import Plan
from weft.runtimes.synchrony import synchrony
from weft.runtimes.workers.layout.blueprint import Blueprint, Side
from weft.runtimes.workers.layout.draft import draft

UNROLL = 4
ALGORITHM = weft.A2C(unroll=UNROLL, hidden=(8,))
"""Its learn comes apart into grad and apply."""

MANNER: dict[str, Any] = {"lockstep": False, "max_lag": 1}
"""What tests take unless they say otherwise."""


@cache
def loop(envs: int = 8, pure_env: bool = False) -> Graph:
    """env, act, learn."""
    spec = EnvSpec("drafts:Env", Box((2,)), Discrete(2), pure=pure_env)
    return ALGORITHM.with_spec(Spec(spec, envs, 10)).graph()


@cache
def two_policies(envs: int = 8) -> Graph:
    """One env with two teams, and an act and a learn for each."""
    teams = {name: EnvSpec(f"drafts:{name}", Box((2,)), Discrete(2)) for name in ("red", "blue")}
    spec = EnvSpec.of_teams("drafts:Two", teams)
    return several_policies(dict.fromkeys(teams, ALGORITHM), Spec(spec, envs, 10))


def same(state: Any, message: Any, *params: Any) -> tuple[Any, Any]:
    """What a map does that changes nothing."""
    return state, message


def resolved(expression: str, graph: Graph) -> Plan:
    """A plan for a graph, whose counts are all written."""
    plan = fit(parse(expression), graph)
    for index, group in enumerate(plan.groups):
        plan = plan.with_group(index, replicas=group.replicas or 1)
    return plan


def drafted(
    expression: str,
    envs: int = 8,
    machine: Machine | None = None,
    graph: Graph | None = None,
    *,
    pure_env: bool = False,
    ring: int = 2,
    channel: str = "shm",
    **manner: Any,
) -> Blueprint:
    """The blueprint of an expression for ``envs`` environments; of the plain loop, unless another graph is given."""
    graph = graph or loop(envs, pure_env)
    agreed = synchrony(**MANNER | manner)
    machine = machine or Machine(cores=2)
    return draft(resolved(expression, graph), graph, envs, machine, agreed, ring=ring, channel=channel)


def side(blueprint: Blueprint, fragment: str, rank: int = 0) -> Side:
    """The side that runs a fragment, of one replica."""
    return next(s for s in blueprint.sides_of(fragment) if s.rank == rank)
