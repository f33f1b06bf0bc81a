"""A prepared run under another plan: the same program, with its fragments elsewhere or in other numbers."""

from __future__ import annotations

from dataclasses import replace

from weft.core.errors import PlanError
from weft.graph.graph import Graph
from weft.plans import Machine, Plan, executable, needs_workers, resolve
from weft.plans.fit import holds
from weft.plans.plan import Group
from weft.plans.rules import gradient_replicas, learner_replicas, one_state
from weft.runtimes.prepare.config import Prepared
from weft.runtimes.prepare.memory import fits_in_memory


def replanned(prepared: Prepared, plan: str | Plan, machine: Machine) -> Prepared:
    """The run under ``plan``, on ``machine``: as many environments, and the same batches for learn. Starts nothing.

    Raises PlanError, UnknownName or ConfigError where that cannot be, with the reason.
    """
    graph, source = prepared.graph, prepared.source
    resolved = resolve(
        plan,
        graph,
        machine,
        envs=prepared.envs,
        pure_env=source.pure is not None,
        environment=source.name,
    )
    executable(resolved, graph, machine, envs=prepared.envs)
    fits_in_memory(graph, resolved, machine, prepared.seeds)
    if prepared.lockstep:
        one_state(resolved, graph)
    if not (prepared.in_workers and needs_workers(resolved, graph, machine)):
        raise PlanError(
            f"the run's plan '{prepared.plan}' and '{resolved}' must both run in workers: what runs in one process has "
            "no replicas that others could join. Begin a run with a plan such as 'actors' (`weft plans`)."
        )
    _same_program(prepared.plan, resolved, graph)
    other = replace(prepared, plan=resolved, machine=machine)
    for kept in ("rule", "dials", "played"):  # the dials stand where the curriculum has turned them
        if kept in prepared.__dict__:
            other.__dict__[kept] = prepared.__dict__[kept]
    return other


def _same_program(before: Plan, after: Plan, graph: Graph) -> None:
    """Refuse what would change what a learn call is, or what of a state there is."""
    counts = [
        ("what learns", learner_replicas(before, graph), learner_replicas(after, graph)),
        ("what computes gradients", gradient_replicas(before, graph), gradient_replicas(after, graph)),
        ("what stores", _stores(before, graph), _stores(after, graph)),
    ]
    for what, has, wanted in counts:
        if has != wanted:
            raise PlanError(
                f"plan '{after}' has {wanted} of {what}, and the run under way has {has}: the batches of a learn call "
                "would be others. Scale what steps, acts or maps; for other learners begin another run."
            )


def stays(group: Group, graph: Graph) -> bool:
    """Whether a group has as many replicas as long as the run lasts."""
    return holds(group, graph, lambda r: r.computes_gradients or r.publishes or r.stores or r.single or r.watches)


def _stores(plan: Plan, graph: Graph) -> int:
    return max((g.replicas or 1 for g in plan.groups if holds(g, graph, lambda role: role.stores)), default=0)
