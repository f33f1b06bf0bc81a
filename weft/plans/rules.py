"""The rules that a resolved plan must keep to be carried out. Each refusal names the rule and the nearest plan.

    platform   several groups are worker processes, which are started on Linux
    parts      a fragment is split only where its code comes apart
    devices    replicas that average gradients on accelerators have one each
    joint      learners whose replicas are processes have a group each
    stores     what a store gives goes straight to what learns from it, in its own group or in another; each of
               several learners has as many shards as the others
    lanes      every learner has equally many environments in whole lanes, everything else at least one lane

A lane is environments that go through inference together: all of a replica's where environments and inference are in
one group, else any slice of a replica's environments.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace

from weft.core.errors import PlanError
from weft.graph.fragment import MapCode
from weft.graph.graph import Graph
from weft.graph.stream import Sharing
from weft.plans.fill import divisor_up_to, joint_learners, learners, one_lane_each, shares
from weft.plans.fit import fit, holds, role_of
from weft.plans.machine import Machine
from weft.plans.plan import Device, Group, Plan


def executable(plan: Plan, graph: Graph, machine: Machine, *, envs: int) -> None:
    """Return if a resolved plan can be executed here; else ``PlanError`` with the rule and the nearest plan."""
    _platform(plan)
    _parts(plan, graph, envs)
    _stores(plan, graph)
    for index, group in enumerate(plan.groups):
        _devices(plan, index, group, graph, machine, envs)
        _joint(plan, group, graph, machine)
    _lanes(plan, graph, envs)


def runs_now(plan: Plan, graph: Graph, machine: Machine, *, envs: int) -> bool:
    """Whether ``executable`` accepts the plan."""
    try:
        executable(plan, graph, machine, envs=envs)
    except PlanError:
        return False
    return True


def needs_workers(plan: Plan, graph: Graph, machine: Machine) -> bool:
    """Whether a plan runs in worker processes: it has several groups, or more replicas than devices here.

    Replicas with host code below inference are processes too: in one process it would get the messages of all replicas.
    On a cluster every plan is.
    """
    if len(plan.groups) > 1 or machine.hosts:
        return True
    group = plan.groups[0]
    return (group.replicas or 1) > (1 if has_host_code(graph) else machine.count(group.device))


def has_host_code(graph: Graph) -> bool:
    """Whether a fragment other than the environments is host code; what only looks on is no part of the loop."""
    return any(not f.pure and not f.role.makes_steps and not f.role.watches for f in graph.fragments)


def learner_replicas(plan: Plan, graph: Graph) -> int:
    """How many replicas share a batch; all learners have as many, or PlanError."""
    counts = {g.replicas or 1 for g in learners(plan, graph)}
    if len(counts) > 1:
        least = min(counts)
        nearest = plan
        for index, group in enumerate(plan.groups):
            if group in learners(plan, graph):
                nearest = _with_replicas(nearest, index, least)
        raise PlanError(
            f"plan '{plan}' has learners with {' and '.join(map(str, sorted(counts)))} replicas, and the learners of "
            f"one run share its environments in the same way: give all of them as many. Nearest plan that runs now: "
            f"'{nearest}'."
        )
    return counts.pop() if counts else 1


def gradient_replicas(plan: Plan, graph: Graph) -> int:
    """How many replicas compute gradients that another fragment applies; 1 where none do."""
    apart = [
        g.replicas or 1
        for g in plan.groups
        for n in g.fragments
        if role_of(n, graph).computes_gradients and not role_of(n, graph).publishes
    ]
    return max(apart, default=1)


def one_state(plan: Plan, graph: Graph) -> None:
    """In lockstep what has a state is not replicated by itself: each replica would see its own environments only.

    Else ``PlanError``. In a group with a learner its replicas share one state.
    """
    for index, group in enumerate(plan.groups):
        if (group.replicas or 1) == 1 or holds(group, graph, lambda role: role.computes_gradients):
            continue
        for name in group.fragments:
            code = graph.fragment(name).code if name in graph.names else None
            keeps = getattr(code, "init", None) is not None and isinstance(code, MapCode)
            if role_of(name, graph).stores and learner_replicas(plan, graph) % (group.replicas or 1) == 0:
                continue  # a shard for each learner, as on devices of one process
            if keeps or role_of(name, graph).stores:
                nearest = plan.with_group(index, replicas=1)
                raise PlanError(
                    f"plan '{plan}' replicates {name!r}, which has a state, and in lockstep the result must not depend "
                    f"on the number of replicas. Leave --lockstep out, or use one replica: '{nearest}'."
                )


def _platform(plan: Plan) -> None:
    if len(plan.groups) > 1 and sys.platform != "linux":
        raise PlanError(
            f"plan '{plan}' needs worker processes, which this version starts on Linux only (here: {sys.platform}). "
            "Nearest plan that runs now: 'inline'."
        )


def _parts(plan: Plan, graph: Graph, envs: int) -> None:
    """A part is away from its fragment only if the code says that it comes apart."""
    for fragment in graph.fragments:
        parts = [part for part in fragment.parts if part in plan.fragments]
        if parts and not getattr(fragment.code, "splits", True):
            joined = even(_joined(plan, graph, fragment.name, fragment.parts), graph, envs)
            raise PlanError(
                f"plan '{plan}' parts {' from '.join(parts)}, and this algorithm makes several updates in one "
                f"{fragment.name} call, which do not come apart (A2C's and IMPALA's do). Nearest plan that runs now: "
                f"'{joined}'."
            )


def _stores(plan: Plan, graph: Graph) -> None:
    """What a store gives goes straight to what learns from it: beside it, or in another group.

    Each of several learners has shards of its own, at least one.
    """
    for fragment in graph.fragments:
        if not fragment.role.stores or fragment.name not in plan.fragments:
            continue
        whole = _until_learned(graph, fragment.name)
        after = tuple(n for name in whole for n in (name, *graph.fragment(name).parts) if n in plan.fragments)
        home = next(i for i, group in enumerate(plan.groups) if fragment.name in group.fragments)
        homes = {i for i, group in enumerate(plan.groups) if set(after) & set(group.fragments)}
        reader = max(homes, default=home)
        shards, learning = plan.groups[home].replicas or 1, plan.groups[reader].replicas or 1
        if len(homes) > 1:
            reason = f"parts {' from '.join(map(repr, after))}, which get what {fragment.name!r} draws"
            nearest = _beside(plan, graph, fragment.name, after)
        elif (reader != home or shards > 1) and not all(graph.fragment(name).pure for name in whole):
            where = "puts {} apart from" if reader != home else "replicates {} beside"
            reason = f"{where.format(repr(fragment.name))} {after[0]!r}, which is host code on what it draws"
            nearest = _beside(plan, graph, fragment.name, after)
        elif reader != home and shards % learning and learning % shards:
            reason = (
                f"has {shards} of {fragment.name!r} and {learning} of what learns from it: each learner has as many "
                "shards as the others, or each replica of the store as many learners"
            )
            nearest = _with_replicas(plan, home, learning)
        else:
            continue
        raise PlanError(f"plan '{plan}' {reason}. Nearest plan that runs now: '{nearest}'.")


def _until_learned(graph: Graph, store: str) -> tuple[str, ...]:
    """The fragments that what a store draws comes to, with the learner that it ends at, in the graph's order."""
    reached, new = {store}, [store]
    while new:
        name = new.pop()
        if not graph.fragment(name).role.publishes:
            more = {s.target for s in graph.out_of(name) if s.counted} - reached
            reached, new = reached | more, [*new, *more]
    return tuple(n for n in graph.names if n in reached - {store})


def _beside(plan: Plan, graph: Graph, store: str, after: tuple[str, ...]) -> Plan:
    """The plan with a store, and all that what it draws comes to, where the last of that is."""
    together = {store, *after}
    groups = []
    for group in plan.groups:
        names = tuple(n for n in group.fragments if n not in together)
        names += (store, *after) if after[-1] in group.fragments else ()
        replicas = 1 if after[-1] in names else group.replicas
        groups += [replace(group, fragments=names, replicas=replicas)] if names else []
    return fit(Plan(tuple(groups)), graph)


def _joined(plan: Plan, graph: Graph, name: str, parts: tuple[str, ...]) -> Plan:
    """The plan with a fragment whole, where its last part is."""
    groups = []
    for group in plan.groups:
        names = tuple(name if n == parts[-1] else n for n in group.fragments if n not in parts[:-1])
        if names:
            groups.append(Group(names, group.replicas, group.device))
    return fit(Plan(tuple(groups)), graph)


def _devices(plan: Plan, index: int, group: Group, graph: Graph, machine: Machine, envs: int) -> None:
    """Replicas that average their gradients need a device each, unless they are processes on the CPU."""
    replicas, devices = group.replicas or 1, machine.count(group.device)
    on_gpu = machine.gpus > 0 and (group.device is None or group.device.kind == "gpu")
    if replicas <= devices or not on_gpu or not holds(group, graph, lambda role: role.one_program):
        return
    smaller = even(plan.with_group(index, replicas=divisor_up_to(envs, devices)), graph, envs)
    raise PlanError(
        f"plan '{plan}' needs a GPU for each of the {replicas} replicas of '{group}', and JAX has {devices} here: run "
        f"where it sees as many, or write @cpu. Nearest plan that runs now: '{smaller}'."
    )


def _joint(plan: Plan, group: Group, graph: Graph, machine: Machine) -> None:
    """Several learners in each of several processes: their programs would meet in another order in each, and hang."""
    learning = joint_learners(group, graph)
    if len(learning) < 2 or (group.replicas or 1) == 1 or not needs_workers(plan, graph, machine):
        return
    nearest = plan
    for parted in (g for g in plan.groups if len(joint_learners(g, graph)) > 1):
        rest = tuple(n for n in parted.fragments if n not in joint_learners(parted, graph))
        each = [(n,) for n in joint_learners(parted, graph)]
        at = nearest.groups.index(parted)
        apart = tuple(replace(parted, fragments=names) for names in ([rest] if rest else []) + each)
        nearest = Plan((*nearest.groups[:at], *apart, *nearest.groups[at + 1 :]))
    raise PlanError(
        f"plan '{plan}' has {' and '.join(learning)} in one group of {group.replicas} processes, and learners that "
        f"average their gradients over processes need a group each. Nearest plan that runs now: '{nearest}'."
    )


def _lanes(plan: Plan, graph: Graph, envs: int) -> None:
    nearest = even(plan, graph, envs)
    if nearest == plan:
        return
    home = plan.groups[_steps_at(plan, graph)]
    workers = home.replicas or 1
    steps = next(n for n in home.fragments if role_of(n, graph).makes_steps)
    eaters = [g for g in learners(plan, graph) if g is not home or not one_lane_each(home, graph)]
    names = [
        (next(n for n in g.fragments if role_of(n, graph).computes_gradients), g.replicas or 1)
        for g in eaters or learners(plan, graph)
    ]
    eating = " and ".join(f"{count} {name}" for name, count in names)
    least = math.lcm(*(count for _, count in names)) if names else 1
    sharing = [(n, g.replicas or 1) for g in plan.groups for n in g.fragments if _shares_lanes(n, graph)]
    acting = " and ".join(n for n in home.fragments if role_of(n, graph).every_step)
    if one_lane_each(home, graph) and workers % least == 0 and envs % workers == 0:
        name, count = next(each for each in sharing if each[1] > workers)
        reason = (
            f"{workers} replica{'s'[: workers > 1]} of {acting} cannot be shared among {count} {name}, each of which "
            f"takes from one of them at least. Use {workers} {name} at most."
        )
    elif one_lane_each(home, graph):
        many = next(iter(sorted(names, key=lambda n: -n[1])), ("", 1))[0]
        reason = (
            f"{workers} replica{'s'[: workers > 1]} of {acting} cannot be shared evenly among {eating}, each of which "
            f"learns from whole replicas. Use a multiple of {least} of them, or fewer {many}."
        )
    else:
        others = " and ".join(f"{count} {name}" for name, count in sharing)
        reason = (
            f"{workers} {steps} worker{'s'[: workers > 1]} with {envs} environments in all cannot share them among "
            f"{others} and {eating} in whole slices. Use a number of environments that {workers} and {least} divide, "
            f"with one for each of the others at least."
        )
    raise PlanError(f"plan '{plan}': {reason} Nearest plan that runs now: '{nearest}'.")


def even(plan: Plan, graph: Graph, envs: int) -> Plan:
    """The plan with the nearest counts by which lanes can be shared out: itself, where it has them."""
    for index, group in enumerate(plan.groups):
        if holds(group, graph, lambda role: role.computes_gradients):
            plan = _with_replicas(plan, index, divisor_up_to(envs, group.replicas or 1))
    counts = {g.replicas or 1 for g in learners(plan, graph)}
    while envs % math.lcm(*counts):  # of several learners: the largest gives way
        index = max(range(len(plan.groups)), key=lambda i: plan.groups[i].replicas or 1)
        plan = _with_replicas(plan, index, divisor_up_to(envs, (plan.groups[index].replicas or 1) - 1))
        counts = {g.replicas or 1 for g in learners(plan, graph)}
    least = math.lcm(*counts) if counts else 1
    home = _steps_at(plan, graph)
    workers = plan.groups[home].replicas or 1
    lanes = envs
    if one_lane_each(plan.groups[home], graph):
        lanes = min(shares(envs, least), key=lambda n: (abs(n - workers), n))
        plan = _with_replicas(plan, home, lanes)
    else:
        plan = _with_replicas(plan, home, divisor_up_to(envs, workers))
    for index, group in enumerate(plan.groups):
        if index != home and any(_shares_lanes(name, graph) for name in group.fragments):
            plan = _with_replicas(plan, index, min(lanes, group.replicas or 1))
    return plan


def _shares_lanes(name: str, graph: Graph) -> bool:
    """Whether a fragment that neither steps nor learns takes messages by their environments."""
    role = role_of(name, graph)
    if role.makes_steps or role.computes_gradients or name not in graph.names:
        return False
    return any(s.sharing is Sharing.ENVIRONMENT for s in graph.into(name))


def _steps_at(plan: Plan, graph: Graph) -> int:
    """The number of the group that has the environments."""
    return next(i for i, group in enumerate(plan.groups) if holds(group, graph, lambda role: role.makes_steps))


def _with_replicas(plan: Plan, index: int, replicas: int) -> Plan:
    """A copy with so many replicas of a group, and no more devices named than these can use."""
    group, device = plan.groups[index], plan.groups[index].device
    if replicas == (group.replicas or 1):
        return plan
    if device is not None and device.indices is not None and replicas < len(device.indices):
        device = Device("gpu", device.indices[0], device.indices[replicas - 1])
    return plan.with_group(index, replicas=replicas, device=device)
