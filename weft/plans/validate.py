"""Resolving a plan: from what the user wrote to groups with every count filled, or a refusal before anything starts.

Each check looks for one thing that cannot be, and offers the smallest change that removes it. A refusal gives the
reasons of all checks that object; applying their changes until none does gives the nearest plan, which it names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from weft.core.errors import PlanError, UnknownName
from weft.graph.graph import Graph
from weft.plans.fill import fill
from weft.plans.fit import complete, fit, holds, missing, role_of, seat, stands_for
from weft.plans.machine import Machine
from weft.plans.named import NAMED, expand, named
from weft.plans.parse import parse
from weft.plans.plan import Device, Group, Plan
from weft.plans.rules import needs_workers, runs_now


@dataclass(frozen=True)
class _Setting:
    """What a plan is checked against."""

    graph: Graph
    machine: Machine
    envs: int
    pure_env: bool
    environment: str
    pure_alternative: str | None

    def on_host(self, name: str) -> bool:
        """Whether a fragment is host code, which no device can run."""
        fragment = next((f for f in self.graph.fragments if name == f.name or name in f.parts), None)
        role = role_of(name, self.graph)
        host = fragment is not None and not fragment.pure and not role.watches  # which uses JAX as it likes
        return (role.makes_steps and not self.pure_env) or host


class _Refusal(NamedTuple):
    reason: str
    nearest: Plan  # without this fault; others may remain


def resolve(
    plan: str | Plan,
    graph: Graph,
    machine: Machine,
    *,
    envs: int,
    pure_env: bool,
    environment: str = "",
    pure_alternative: str | None = None,
) -> Plan:
    """The plan for this graph on this machine: fragments in the graph's order, each once, and every count a number.

    ``plan`` is a named plan, an expression, or data. ``envs`` is the number of environments of the whole run,
    ``pure_env`` whether they are in JAX, ``environment`` their name, ``pure_alternative`` the same environment's name
    in JAX.
    Raises ``UnknownName`` for a name that nothing has, and ``PlanError`` with the reason and the nearest plan for what
    cannot be. Whether this version's runtime executes it is for ``executable`` to say.
    """
    if envs < 1:
        raise PlanError(f"a run needs at least 1 environment, got {envs}")
    setting = _Setting(graph, machine, envs, pure_env, environment, pure_alternative)
    resolved = fill(_read(plan, graph), graph, machine, envs)
    # Counts are filled before: what looks on takes nothing from training.
    resolved = seat(resolved, graph, apart=needs_workers(resolved, graph, machine))
    refusals = _refusals(resolved, setting)
    if refusals:
        raise _error(resolved, refusals, setting)
    return resolved


def _read(plan: str | Plan, graph: Graph) -> Plan:
    if isinstance(plan, Plan):
        return fit(plan, graph)
    alias = named(plan.strip())
    if alias is not None:
        return expand(alias, graph)
    expression = parse(plan)
    lone = len(expression.fragments) == 1 and not any(c in plan for c in "*@|+()")
    if lone and not stands_for(expression.fragments[0], graph):
        whole = "+".join(graph.names)
        raise UnknownName("plan", plan.strip(), [p.name for p in NAMED], f"Or write an expression, such as {whole!r}.")
    used = next((a for n in expression.fragments if (a := named(n)) and not stands_for(n, graph)), None)
    if used is not None and used.expression:
        raise PlanError(
            f"plan {plan.strip()!r}: {used.name!r} is the name of a whole plan and takes no counts or devices. Write "
            f"its expression with yours: '{used.expression}'."
        )
    return fit(expression, graph, f"It is in the plan {plan.strip()!r}.")


def _error(plan: Plan, refusals: list[_Refusal], setting: _Setting) -> PlanError:
    nearest = refusals[0].nearest
    while more := _refusals(nearest, setting):  # each change removes a fault and brings none back, so that this ends
        nearest = more[0].nearest
    text = f"plan '{plan}' cannot run: {'; '.join(r.reason for r in refusals)}. Nearest plan that fits: '{nearest}'"
    if not runs_now(nearest, setting.graph, setting.machine, envs=setting.envs):
        text += " (which this version does not execute; 'inline' runs now)"
    return PlanError(text + ".")


def _refusals(plan: Plan, setting: _Setting) -> list[_Refusal]:
    return [refusal for check in _CHECKS if (refusal := check(plan, setting)) is not None]


def _called(group: Group, plan: Plan) -> str:
    """A group in a reason: the message has just said the whole plan."""
    return "it" if len(plan.groups) == 1 else f"'{group}'"


def _twice(plan: Plan, setting: _Setting) -> _Refusal | None:
    seen: set[str] = set()
    reason = ""
    kept: list[Group] = []
    whole = {part: f.name for f in setting.graph.fragments for part in f.parts}
    for group in plan.groups:
        names: list[str] = []
        for name in group.fragments:
            if name in seen:
                reason = (
                    reason or f"{name!r} is there twice; a fragment belongs to one group, and '*' makes replicas of it"
                )
            elif whole.get(name) in plan.fragments:
                reason = reason or f"{name!r} is a part of {whole[name]!r}, which is there too"
            else:
                names.append(name)
            seen.add(name)
        if names:
            kept.append(replace(group, fragments=tuple(names)))
    return _Refusal(reason, fit(Plan(tuple(kept)), setting.graph)) if reason else None


def _left_out(plan: Plan, setting: _Setting) -> _Refusal | None:
    absent = missing(plan, setting.graph)
    if not absent:
        return None
    names = " and ".join(repr(name) for name in absent)
    reason = f"it has no place for {names} (the algorithm's fragments: {', '.join(setting.graph.names)})"
    return _Refusal(reason, complete(plan, setting.graph))


def _no_such_device(plan: Plan, setting: _Setting) -> _Refusal | None:
    gpus = setting.machine.gpus
    for index, group in enumerate(plan.groups):
        device = group.device
        if device is None or device.kind != "gpu":
            continue
        if gpus == 0:
            install = "on a machine with one: pip install 'weft[gpu]'"
            reason = f"{_called(group, plan)} asks for a GPU, and JAX sees none here ({install})"
            elsewhere = tuple(
                replace(g, device=None if g.device and g.device.kind == "gpu" else g.device) for g in plan.groups
            )
            return _Refusal(reason, Plan(elsewhere))
        if device.last is not None and device.first is not None and device.last >= gpus:
            reason = f"{_called(group, plan)} asks for {device}, and JAX sees only {Device('gpu', 0, gpus - 1)} here"
            inside = Device("gpu", device.first, gpus - 1) if device.first < gpus else Device("gpu")
            return _Refusal(reason, plan.with_group(index, device=inside))
    return None


def _host_code_on_gpu(plan: Plan, setting: _Setting) -> _Refusal | None:
    for index, group in enumerate(plan.groups):
        host = tuple(name for name in group.fragments if setting.on_host(name))
        if not host or group.device is None or group.device.kind != "gpu":
            continue
        pure = tuple(name for name in group.fragments if name not in host)
        apart = [replace(group, fragments=host, device=None)] + ([replace(group, fragments=pure)] if pure else [])
        if setting.machine.gpus == 0:  # then there is no device to keep the others on
            apart = [replace(group, device=None)]
        nearest = fit(Plan((*plan.groups[:index], *apart, *plan.groups[index + 1 :])), setting.graph)
        if not role_of(host[0], setting.graph).makes_steps:
            return _Refusal(f"{_called(group, plan)} puts {host[0]!r} on a GPU, and it is host code, not JAX", nearest)
        what = repr(setting.environment) if setting.environment else "this environment"
        where = f"{_called(group, plan)} puts {host[0]} on a GPU"
        reason = f"{where}, and {what} is host code: only a JAX environment runs there"
        if setting.pure_alternative:
            reason += f" ({setting.pure_alternative!r} is the same in JAX, and can)"
        return _Refusal(reason, nearest)
    return None


def _uneven(plan: Plan, setting: _Setting) -> _Refusal | None:
    envs = setting.envs
    plural = "s" if envs > 1 else ""
    for index, group in enumerate(plan.groups):
        replicas = group.replicas or 1
        even = holds(group, setting.graph, lambda role: role.makes_steps or role.computes_gradients)
        if even and envs % replicas:
            fewer = next(n for n in range(min(replicas, envs), 0, -1) if envs % n == 0)
            more = next((n for n in range(replicas, envs + 1) if envs % n == 0), fewer)
            can = f"{fewer} or {more} replicas can" if more != fewer else f"{fewer} can"
            also = f", or {-(-envs // replicas) * replicas} environments"
            share = f"cannot share {envs} environment{plural} evenly ({can}{also})"
            reason = f"{replicas} replicas of {_called(group, plan)} {share}"
            closest = more if more - replicas < replicas - fewer and more != fewer else fewer
            return _Refusal(reason, plan.with_group(index, replicas=closest))
        if holds(group, setting.graph, lambda role: role.every_step) and replicas > envs:
            reason = f"{_called(group, plan)} has more replicas than there are environments ({envs})"
            return _Refusal(reason, plan.with_group(index, replicas=envs))
    return None


def _one_owner(plan: Plan, setting: _Setting) -> _Refusal | None:
    graph = setting.graph
    for index, group in enumerate(plan.groups):
        alone = all(role_of(name, graph).watches for name in group.fragments)
        owner = next((name for name in group.fragments if alone or role_of(name, graph).single), None)
        if owner is not None and (group.replicas or 1) > 1:
            others = [p for f in graph.fragments if owner in f.parts for p in f.parts if p != owner]
            apart = f" apart from {others[0]!r}" if others else ""
            why = "the params have one owner" if role_of(owner, graph).publishes else "there is one of it at most"
            reason = f"{_called(group, plan)} replicates {owner!r}{apart}: {why}"
            return _Refusal(reason, plan.with_group(index, replicas=1))
    return None


def _idle_devices(plan: Plan, setting: _Setting) -> _Refusal | None:
    for index, group in enumerate(plan.groups):
        device, replicas = group.device, group.replicas or 1
        if device is None or device.indices is None or replicas >= len(device.indices):
            continue
        listed, plural = len(device.indices), "s" if replicas > 1 else ""
        reason = (
            f"{_called(group, plan)} names {listed} devices for {replicas} replica{plural}, and each replica uses one"
        )
        if setting.envs % listed == 0 and not holds(group, setting.graph, lambda role: role.single):
            return _Refusal(reason, plan.with_group(index, replicas=listed))
        fewer = Device("gpu", device.indices[0], device.indices[replicas - 1])
        return _Refusal(reason, plan.with_group(index, device=fewer))
    return None


_CHECKS: tuple[Callable[[Plan, _Setting], _Refusal | None], ...] = (
    _twice,
    _left_out,
    _host_code_on_gpu,
    _no_such_device,
    _uneven,
    _one_owner,
    _idle_devices,
)
