"""Filling ``*auto``: how many replicas suit the machine.

- replicas on numbered devices: one for each of them;
- the whole loop in one group: one for each device that JAX has in this process;
- learn without env: one for each accelerator, less those that act on its own takes; at least 1;
- act on its own: one for every four accelerators; at least 1;
- env, alone or with others: the cores that the other groups' replicas leave; at least 1;
- everything else (replay, apply, your own): 1.

Then the largest number, up to that, by which the environments can be shared evenly; of env with act also a multiple of
the learners, who learn from whole replicas, were it more than that. So a plan is never refused for a count that was
filled.
"""

from __future__ import annotations

from weft.plans.fit import holds
from weft.plans.machine import Machine
from weft.plans.plan import Group, Plan


def fill(plan: Plan, machine: Machine, envs: int) -> Plan:
    """The plan with every ``replicas`` a number; those that were numbers stay. ``envs``: all the run has."""
    for with_env in (False, True):  # the groups with env take what the others leave
        for index, group in enumerate(plan.groups):
            if group.replicas is None and holds(group, "env") == with_env:
                plan = plan.with_group(index, replicas=_suited(group, plan, machine, envs))
    return plan


def divisor_up_to(envs: int, limit: int) -> int:
    """The largest number up to ``limit`` (at least 1) that divides ``envs``."""
    return next(n for n in range(max(1, min(limit, envs)), 0, -1) if envs % n == 0)


def _suited(group: Group, plan: Plan, machine: Machine, envs: int) -> int:
    others = [other for other in plan.groups if other is not group]
    if holds(group, "apply"):  # apart from grad, else the two were fitted to learn: the params have one owner
        return 1
    numbered = group.device is not None and group.device.indices is not None
    if numbered or not others:
        limit = machine.count(group.device)
    elif holds(group, "env"):
        limit = machine.cores - sum(other.replicas or 1 for other in others)
        if holds(group, "act"):
            learners = next((other.replicas or 1 for other in others if holds(other, "learn", "grad")), 1)
            fits = shares(envs, learners)
            return max((n for n in fits if n <= limit), default=min(fits, default=1))
    elif holds(group, "learn", "grad"):
        limit = machine.gpus - (_act_share(machine) if any(_acts_alone(other) for other in others) else 0)
    elif _acts_alone(group):
        limit = _act_share(machine)
    else:
        limit = 1
    return divisor_up_to(envs, limit)


def shares(envs: int, learners: int) -> list[int]:
    """How many replicas of env and act can share ``envs`` among them, and be shared by ``learners``, both evenly."""
    return [n for n in range(learners, envs + 1, learners) if envs % n == 0]


def _acts_alone(group: Group) -> bool:
    return holds(group, "act") and not holds(group, "env", "learn", "grad")


def _act_share(machine: Machine) -> int:
    return max(1, machine.gpus // 4)
