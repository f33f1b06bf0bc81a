"""Filling ``*auto``: how many replicas suit the machine.

- replicas on numbered devices: one for each of them;
- the whole graph in one group: one for each device that JAX has in this process;
- what learns, without the environments: one for each accelerator, less those that inference on its own takes; at
  least 1;
- inference on its own: one for every four accelerators; at least 1;
- the environments, alone or with others: the cores that the other groups' replicas leave; at least 1;
- learners of several policies in one group, beside other groups: 1;
- everything else (a replay, what owns the params, your own): 1.

Then the largest number, up to that, by which the environments can be shared evenly. Replicas that hold environments
together with all inference for them are rounded up to a multiple of the learners. So a plan is never refused for a
count that Weft filled in.
"""

from __future__ import annotations

from weft.graph.graph import Graph
from weft.graph.role import Wants
from weft.plans.fit import holds, role_of
from weft.plans.machine import Machine
from weft.plans.plan import Group, Plan


def fill(plan: Plan, graph: Graph, machine: Machine, envs: int) -> Plan:
    """The plan with every ``replicas`` a number; those that were numbers stay. ``envs``: all the run has."""
    for with_steps in (False, True):  # the groups with environments take what the others leave
        for index, group in enumerate(plan.groups):
            if group.replicas is None and _wants(group, graph, Wants.CORES) == with_steps:
                plan = plan.with_group(index, replicas=_suited(group, plan, graph, machine, envs))
    return plan


def divisor_up_to(envs: int, limit: int) -> int:
    """The largest number up to ``limit`` (at least 1) that divides ``envs``."""
    return next(n for n in range(max(1, min(limit, envs)), 0, -1) if envs % n == 0)


def shares(envs: int, learners: int) -> list[int]:
    """How many replicas of whole lanes can share ``envs`` among them, and be shared by ``learners``, both evenly."""
    return [n for n in range(learners, envs + 1, learners) if envs % n == 0]


def one_lane_each(group: Group, graph: Graph) -> bool:
    """Whether a group has the environments and all inference for them, so that each replica is one lane."""
    acts = [f.name for f in graph.fragments if f.role.every_step]
    return all(name in group.fragments for name in acts)


def learners(plan: Plan, graph: Graph) -> list[Group]:
    """The groups that eat whole batches, which all environments are shared evenly among."""
    return [g for g in plan.groups if holds(g, graph, lambda role: role.computes_gradients)]


def joint_learners(group: Group, graph: Graph) -> list[str]:
    """The learners of a group whose replicas, were there several, would be one program each."""
    return [name for name in group.fragments if role_of(name, graph).one_program]


def _suited(group: Group, plan: Plan, graph: Graph, machine: Machine, envs: int) -> int:
    others = [other for other in plan.groups if other is not group]
    if any(role_of(name, graph).single or role_of(name, graph).stores for name in group.fragments):
        return 1
    if (others or machine.hosts) and len(joint_learners(group, graph)) > 1:
        return 1
    numbered = group.device is not None and group.device.indices is not None
    if numbered or not others:
        limit = machine.count(group.device)
    elif _wants(group, graph, Wants.CORES):
        limit = machine.cores - sum(other.replicas or 1 for other in others)
        if one_lane_each(group, graph):
            eaters = [g for g in learners(plan, graph) if g is not group]
            fits = shares(envs, eaters[0].replicas or 1 if eaters else 1)
            return max((n for n in fits if n <= limit), default=min(fits, default=1))
    elif _wants(group, graph, Wants.ACCELERATORS):
        alone = any(_infers_alone(other, graph) for other in others)
        limit = machine.gpus - (_inference_share(machine) if alone else 0)
    elif _infers_alone(group, graph):
        limit = _inference_share(machine)
    else:
        limit = 1
    return divisor_up_to(envs, limit)


def _wants(group: Group, graph: Graph, what: Wants) -> bool:
    return holds(group, graph, lambda role: role.wants is what)


def _infers_alone(group: Group, graph: Graph) -> bool:
    more = _wants(group, graph, Wants.CORES) or _wants(group, graph, Wants.ACCELERATORS)
    return _wants(group, graph, Wants.INFERENCE) and not more


def _inference_share(machine: Machine) -> int:
    return max(1, machine.gpus // 4)
