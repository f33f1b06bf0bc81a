"""What this version's local runtime can execute: the layouts of both papers, in this process or in workers."""

from __future__ import annotations

import sys

from weft.core.errors import PlanError
from weft.graph.graph import Graph
from weft.plans.fill import divisor_up_to, shares
from weft.plans.fit import complete, holds, role
from weft.plans.machine import Machine
from weft.plans.plan import Device, Group, Plan

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
    _laid_out(plan, graph, envs)
    if not splits and "apply" in plan.fragments:
        joined = _even(_joined(plan), envs)
        raise PlanError(
            f"plan '{plan}' parts grad from apply, and this algorithm makes several updates in one learn call, which "
            f"do not come apart (A2C's and IMPALA's do). Nearest plan that runs now: '{joined}'."
        )
    for index, group in enumerate(plan.groups):
        _devices(plan, index, group, machine, envs)
    shared_out(plan, envs)


def runs_now(plan: Plan, graph: Graph, machine: Machine, *, envs: int) -> bool:
    """Whether ``executable`` accepts the plan."""
    try:
        executable(plan, graph, machine, envs=envs)
    except PlanError:
        return False
    return True


def shared_out(plan: Plan, envs: int) -> None:
    """Return if all learners can have equally many environments in whole lanes, and every act at least one lane.

    Environments beside act are one lane; an env worker's can be cut as finely as one by one. Else ``PlanError``.
    """
    nearest = _even(plan, envs)
    if nearest == plan:
        return
    env, act, learn = (plan.groups[_place(plan, *roles)] for roles in (("env",), ("act",), ("learn", "grad")))
    workers, acts, learners = (group.replicas or 1 for group in (env, act, learn))
    name = "learn" if holds(learn, "learn") else "grad"
    if env is act:
        reason = (
            f"{workers} replica{'s'[: workers > 1]} of env and act cannot be shared evenly among {learners} {name}, "
            f"each of which learns from whole replicas. Use a multiple of {learners} of them, or fewer {name}."
        )
    else:
        reason = (
            f"{workers} env worker{'s'[: workers > 1]} with {envs} environments in all cannot share them among {acts} "
            f"act and {learners} {name} in whole slices. Use a number of environments that {workers} and {learners} "
            f"divide, with one for each act at least."
        )
    raise PlanError(f"plan '{plan}': {reason} Nearest plan that runs now: '{nearest}'.")


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


def _laid_out(plan: Plan, graph: Graph, envs: int) -> None:
    loop = {"env", "act", "learn", "grad", "apply"}
    layout = tuple(frozenset(role(name) for name in group.fragments) & loop for group in plan.groups)
    for group in plan.groups:
        own = [name for name in group.fragments if role(name) not in loop]
        if own and "apply" in plan.fragments:
            raise PlanError(
                f"plan '{plan}' parts grad from apply, and this version runs fragments of your own ({own[0]!r}) only "
                f"beside a whole learn. Nearest plan that runs now: '{_beside_learn(_joined(plan), graph, envs)}'."
            )
        if own and not holds(group, "learn", "grad"):
            raise PlanError(
                f"plan '{plan}' puts {own[0]!r} away from learn, and this version runs fragments of your own beside "
                f"learn only. Nearest plan that runs now: '{_beside_learn(plan, graph, envs)}'."
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


def _beside_learn(plan: Plan, graph: Graph, envs: int) -> Plan:
    loop = ("env", "act", "learn", "grad", "apply")
    kept = [tuple(n for n in g.fragments if role(n) in loop) for g in plan.groups]
    groups = tuple(Group(names, g.replicas, g.device) for names, g in zip(kept, plan.groups, strict=True) if names)
    return _even(complete(Plan(groups), graph), envs)


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
    smaller = _even(plan.with_group(index, replicas=divisor_up_to(envs, devices)), envs)
    raise PlanError(
        f"plan '{plan}' needs a GPU for each of the {replicas} replicas of '{group}', and JAX has {devices} here: run "
        f"where it sees as many, or write @cpu. Nearest plan that runs now: '{smaller}'."
    )


def _even(plan: Plan, envs: int) -> Plan:
    """The plan with the nearest counts by which lanes can be shared out: itself, where it has them."""
    env, act, learn = (_place(plan, *roles) for roles in (("env",), ("act",), ("learn", "grad")))
    learners = divisor_up_to(envs, plan.groups[learn].replicas or 1)
    plan = _with_replicas(plan, learn, learners)
    if env == act:
        workers = plan.groups[env].replicas or 1
        return _with_replicas(plan, env, min(shares(envs, learners), key=lambda n: (abs(n - workers), n)))
    plan = _with_replicas(plan, env, divisor_up_to(envs, plan.groups[env].replicas or 1))
    return _with_replicas(plan, act, min(envs, plan.groups[act].replicas or 1))


def _place(plan: Plan, *roles: str) -> int:
    """The number of the first group with a fragment in one of these roles."""
    return next(index for index, group in enumerate(plan.groups) if holds(group, *roles))


def _with_replicas(plan: Plan, index: int, replicas: int) -> Plan:
    """A copy with so many replicas of a group, and no more devices named than these can use."""
    group, device = plan.groups[index], plan.groups[index].device
    if replicas == (group.replicas or 1):
        return plan
    if device is not None and device.indices is not None and replicas < len(device.indices):
        device = Device("gpu", device.indices[0], device.indices[replicas - 1])
    return plan.with_group(index, replicas=replicas, device=device)
