"""What this version's local runtime can execute: the layouts of both papers, in this process or in workers."""

from __future__ import annotations

import sys

from weft.core.errors import PlanError
from weft.graph.graph import Graph
from weft.plans.fill import divisor_up_to
from weft.plans.fit import complete, holds, role
from weft.plans.machine import Machine
from weft.plans.plan import Group, Plan

LAYOUTS: tuple[tuple[frozenset[str], ...], ...] = tuple(
    tuple(frozenset(group.split("+")) for group in layout.split(" | "))
    for layout in (
        "env+act+learn",
        "env | act+learn",
        "env+act | learn",
        "env | act | learn",
        "env+act+grad | apply",
        "env | act+grad | apply",
        "env+act | grad | apply",
        "env | act | grad | apply",
    )
)
"""Which of the loop's fragments may be together; a fragment of your own on the unroll stream sits beside learn."""


def executable(plan: Plan, graph: Graph, machine: Machine, *, envs: int, splits: bool = True) -> None:
    """Return if a resolved plan can be executed now; else ``PlanError`` with the reason and the nearest that can.

    ``splits``: whether the algorithm's learn comes apart into grad and apply.
    """
    _in_workers(plan)
    _laid_out(plan, graph)
    if not splits and "apply" in plan.fragments:
        joined = _joined(plan)
        raise PlanError(
            f"plan '{plan}' parts grad from apply, and this algorithm makes several updates in one learn call, which "
            f"do not come apart (A2C's and IMPALA's do). Nearest plan that runs now: '{joined}'."
        )
    for index, group in enumerate(plan.groups):
        _devices(plan, index, group, machine, envs)


def runs_now(plan: Plan, graph: Graph, machine: Machine, *, envs: int) -> bool:
    """Whether ``executable`` accepts the plan."""
    try:
        executable(plan, graph, machine, envs=envs)
    except PlanError:
        return False
    return True


def needs_workers(plan: Plan, machine: Machine) -> bool:
    """Whether a plan runs in worker processes: it has several groups, or more replicas than devices here."""
    if len(plan.groups) > 1:
        return True
    group = plan.groups[0]
    return (group.replicas or 1) > machine.count(group.device)


def _in_workers(plan: Plan) -> None:
    if len(plan.groups) > 1 and sys.platform != "linux":
        raise PlanError(
            f"plan '{plan}' needs worker processes, which this version starts on Linux only (here: {sys.platform}). "
            "Nearest plan that runs now: 'inline'."
        )


def _laid_out(plan: Plan, graph: Graph) -> None:
    loop = {"env", "act", "learn", "grad", "apply"}
    layout = tuple(frozenset(role(name) for name in group.fragments) & loop for group in plan.groups)
    for group in plan.groups:
        own = [name for name in group.fragments if role(name) not in loop]
        if own and "apply" in plan.fragments:
            raise PlanError(
                f"plan '{plan}' parts grad from apply, and this version runs fragments of your own ({own[0]!r}) only "
                f"beside a whole learn. Nearest plan that runs now: '{_beside_learn(_joined(plan), graph)}'."
            )
        if own and not holds(group, "learn", "grad"):
            raise PlanError(
                f"plan '{plan}' puts {own[0]!r} away from learn, and this version runs fragments of your own beside "
                f"learn only. Nearest plan that runs now: '{_beside_learn(plan, graph)}'."
            )
    if layout not in LAYOUTS:
        known = "; ".join(" | ".join("+".join(g) for g in _written(layout)) for layout in LAYOUTS[:4])
        raise PlanError(
            f"plan '{plan}' keeps env, act and learn in groups that this version does not join (it joins: {known}; "
            "each with its own counts, learn also as grad | apply). Nearest plan that runs now: 'env | act | learn'."
        )


def _written(layout: tuple[frozenset[str], ...]) -> list[list[str]]:
    order = ("env", "act", "learn", "grad", "apply")
    return [sorted(group, key=order.index) for group in layout]


def _beside_learn(plan: Plan, graph: Graph) -> Plan:
    loop = ("env", "act", "learn", "grad", "apply")
    kept = [tuple(n for n in g.fragments if role(n) in loop) for g in plan.groups]
    groups = tuple(Group(names, g.replicas, g.device) for names, g in zip(kept, plan.groups, strict=True) if names)
    return complete(Plan(groups), graph)


def _joined(plan: Plan) -> Plan:
    """The plan with grad and apply as one learn, where apply is."""
    groups = []
    for group in plan.groups:
        names = tuple(n for n in group.fragments if role(n) != "grad")
        if names:
            names = tuple("learn" if role(n) == "apply" else n for n in names)
            groups.append(Group(names, group.replicas, group.device))
    return Plan(tuple(groups))


def _devices(plan: Plan, index: int, group: Group, machine: Machine, envs: int) -> None:
    """Replicas that average their gradients need a device each, unless they are processes on the CPU."""
    replicas, devices = group.replicas or 1, machine.count(group.device)
    on_gpu = machine.gpus > 0 and (group.device is None or group.device.kind == "gpu")
    if replicas <= devices or not on_gpu or not holds(group, "learn"):  # grad sends its gradients, and may share one
        return
    smaller = plan.with_group(index, replicas=divisor_up_to(envs, devices))
    raise PlanError(
        f"plan '{plan}' needs a GPU for each of the {replicas} replicas of '{group}', and JAX has {devices} here: run "
        f"where it sees as many, or write @cpu. Nearest plan that runs now: '{smaller}'."
    )
