"""What this version's runtime can execute: one group, in this process. The process runtime replaces this judgement."""

from __future__ import annotations

from weft.core.errors import PlanError
from weft.graph.graph import Graph
from weft.plans.fill import divisor_up_to
from weft.plans.machine import Machine
from weft.plans.plan import Group, Plan


def executable(plan: Plan, graph: Graph, machine: Machine, *, envs: int) -> None:
    """Return if a resolved plan can be executed now; else ``PlanError`` with the reason and the nearest that can."""
    if len(plan.groups) > 1:
        inline = Plan((Group(graph.names),))
        raise PlanError(
            f"plan '{plan}' has {len(plan.groups)} groups: it is a valid plan, but streams between groups come with "
            f"the process runtime, which this version does not have. Nearest plan that runs now: 'inline' ('{inline}')."
        )
    group = plan.groups[0]
    replicas, devices = group.replicas or 1, machine.count(group.device)
    if replicas > devices:
        kind = group.device.kind if group.device else "gpu" if machine.gpus else "cpu"
        smaller = plan.with_group(0, replicas=divisor_up_to(envs, devices))
        more = (
            "start with the environment variable "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={replicas} for as many CPU devices"
            if kind == "cpu"
            else "run where JAX sees as many GPUs"
        )
        raise PlanError(
            f"plan '{plan}' needs a device for each of its {replicas} replicas, and JAX has {devices} "
            f"{kind.upper()} device{'s' if devices != 1 else ''} for it in this process: {more}. "
            f"Nearest plan that runs now: '{smaller}'."
        )


def runs_now(plan: Plan, graph: Graph, machine: Machine, *, envs: int) -> bool:
    """Whether ``executable`` accepts the plan."""
    try:
        executable(plan, graph, machine, envs=envs)
    except PlanError:
        return False
    return True
