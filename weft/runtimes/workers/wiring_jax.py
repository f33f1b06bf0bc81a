"""The sides that compute: act, actor, learn, grad and apply, built from a worker's task."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from weft.core.recipe import from_recipe
from weft.graph.algorithm import Algorithm
from weft.runtimes.compiled.replicas import Layout
from weft.runtimes.hosted.blocks import Block
from weft.runtimes.prepare.jax_setup import set_up
from weft.runtimes.roles.act import ActSide, LaneState
from weft.runtimes.roles.acting import Acting, sends_extras, unroll_block
from weft.runtimes.roles.actor import HostActor, JaxActor
from weft.runtimes.roles.apply import ApplySide
from weft.runtimes.roles.grad import GradSide, gradient_schema
from weft.runtimes.roles.learn import LearnSide
from weft.runtimes.roles.unroll_writer import UnrollWriter
from weft.runtimes.workers.collector import Collector, UnrollReader
from weft.runtimes.workers.gradients import GradientReader, GradientWriter
from weft.runtimes.workers.lane_checkpoint import LaneCheckpoint, cut, from_words, keep_where, lane_schema
from weft.runtimes.workers.layout.blueprint import Lane, Side
from weft.runtimes.workers.wiring import Task, Wired


def wire_jax(task: Task, sides: list[Side]) -> Wired:
    """The sides of a worker that loads JAX."""
    set_up(cache=False)
    devices = _join_learners(task, sides)
    algorithm: Algorithm = from_recipe(task.body["algorithm"]).bind(from_recipe(task.body["spec"]))
    wired = Wired(task, [], [])
    for side in sides:
        if side.kind in ("act", "actor"):
            _wire_acting(task, side, algorithm, wired)
        elif side.kind == "learn":
            _wire_learn(task, side, algorithm, wired, devices)
        elif side.kind == "grad":
            _wire_grad(task, side, algorithm, wired)
        elif side.kind == "apply":
            _wire_apply(task, side, algorithm, wired)
    return wired


def _join_learners(task: Task, sides: list[Side]) -> tuple[Any, ...]:
    """This learner's device, or those of all learners where there are several: one of each process."""
    learning = [side for side in sides if side.kind == "learn"]
    coordinator = task.body.get("coordinator")
    if not learning or coordinator is None:
        return (jax.local_devices()[0],)
    if task.blueprint.workers[learning[0].worker].device == "cpu":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        coordinator,
        task.blueprint.learners,
        learning[0].rank,
        initialization_timeout=60,
        coordinator_bind_address=coordinator,  # by itself it would be reached from other machines
    )
    first: dict[int, Any] = {}
    for device in sorted(jax.devices(), key=lambda d: d.id):
        first.setdefault(device.process_index, device)
    return tuple(first[index] for index in sorted(first))


def _extras(task: Task, algorithm: Algorithm) -> bool:
    together = bool(task.blueprint.kind("actor"))
    compiled = together and task.source.pure is not None
    return sends_extras(algorithm, lockstep=task.blueprint.lockstep, compiled=compiled)


def _wire_acting(task: Task, side: Side, algorithm: Algorithm, wired: Wired) -> None:
    blueprint, post = task.blueprint, task.post(side)
    acting = Acting(
        post,
        algorithm,
        algorithm.graph(),
        blueprint,
        task.reader("params", side),
        seed=task.seed,
        each_step=side.kind == "act",
    )
    extras = _extras(task, algorithm)

    def outlet(index: int) -> UnrollWriter:
        lane = blueprint.lanes[index]
        schema = unroll_block(algorithm, lane.rows, extras=extras)
        environment = algorithm.spec.environment
        return UnrollWriter(lane, task.writer(f"unroll/{index}"), schema, environment, task.account, task.life)

    if side.kind == "act":
        lanes = [
            LaneState(acting, task.reader(f"timestep/{i}", side), task.writer(f"action/{i}"), outlet(i))
            for i in side.lanes
        ]
        for lane in lanes:
            lane.stand(_standing(task, algorithm, lane.lane, acting))
        wired.sides.append(ActSide(acting, lanes))
        return
    source, (index,) = task.source, side.lanes
    actor = (
        JaxActor(acting, outlet(index), source.pure, task.seed)
        if source.pure is not None
        else HostActor(acting, outlet(index), _host(source), task.seed)
    )
    wired.sides.append(actor)
    snapshots = task.body.get("snapshots")
    leaves = _lane_leaves(task, blueprint.lanes[index])
    snapshot = snapshots.get(str(index)) if snapshots else None
    wired.starts.append(lambda: wired.ready.update(lost={str(index): actor.start(leaves, snapshot)}))


def _lane_leaves(task: Task, lane: Lane) -> list[Any] | None:
    """Where a lane stood when the run was saved; None where it begins anew."""
    if not task.body.get("standing"):
        return None
    return cut(task.arrays[task.body["resumed"] :], lane.first, lane.rows)


def _standing(task: Task, algorithm: Algorithm, lane: Lane, acting: Acting) -> tuple[LaneCheckpoint, Any] | None:
    leaves = _lane_leaves(task, lane)
    if leaves is None:
        return None
    standing: LaneCheckpoint = from_words(leaves, lane_schema(algorithm, lane.rows))
    lost = task.body["lost"].get(str(lane.index), [])
    kept = keep_where(lost, lane.rows)
    fresh = acting.start_carry(lane.rows)

    def chosen(then: Any, now: Any) -> Any:
        return np.where(kept.reshape((-1, *[1] * (np.ndim(then) - 1))), then, now)

    totals = (np.where(kept, standing.episode_return, 0.0), np.where(kept, standing.episode_length, 0))
    return LaneCheckpoint(jax.tree.map(chosen, standing.carry, fresh), standing.timestep, *totals), kept


def _host(source: Any) -> Any:
    assert source.host is not None
    return source.host


def _collector(task: Task, side: Side) -> Collector:
    blueprint = task.blueprint
    inlets = [UnrollReader(i, task.reader(f"unroll/{i}", side)) for i in side.lanes]
    lockstep, max_lag = blueprint.lockstep, blueprint.max_lag
    return Collector(inlets, blueprint.pieces, task.account, side.rank, lockstep=lockstep, max_lag=max_lag)


def _block(task: Task, algorithm: Algorithm) -> Block:
    return unroll_block(algorithm, task.blueprint.lanes[0].rows, extras=_extras(task, algorithm))


def _wire_grad(task: Task, side: Side, algorithm: Algorithm, wired: Wired) -> None:
    post, collector, block = task.post(side), _collector(task, side), _block(task, algorithm)
    steps = algorithm.unroll * task.blueprint.lanes[0].rows
    writer = task.writer(f"gradients/{side.rank}")
    grad = GradSide(
        post,
        algorithm,
        algorithm.graph(),
        collector,
        block,
        task.reader("params", side),
        GradientWriter(writer, collector, task.account, side.rank, steps, post.index, task.life),
        seed=int(task.body["seed"]),
        first=side.rank * algorithm.spec.envs,
    )
    wired.sides.append(grad)


def _wire_apply(task: Task, side: Side, algorithm: Algorithm, wired: Wired) -> None:
    blueprint = task.blueprint
    shapes, names = gradient_schema(algorithm, _block(task, algorithm), blueprint.pieces)
    apply = ApplySide(
        task.post(side),
        algorithm,
        [
            GradientReader(task.reader(f"gradients/{grad.rank}", side), task.account, grad.rank)
            for grad in blueprint.kind("grad")
        ],
        task.writer("params"),
        shapes,
        names,
        seed=int(task.body["seed"]),
        lockstep=blueprint.lockstep,
        max_lag=blueprint.max_lag,
    )
    wired.sides.append(apply)
    leaves = task.arrays[: task.body["resumed"]] or None
    wired.starts.append(lambda: apply.start(leaves))


def _wire_learn(task: Task, side: Side, algorithm: Algorithm, wired: Wired, devices: tuple[Any, ...]) -> None:
    schema, collector = _block(task, algorithm), _collector(task, side)
    learner = LearnSide(
        task.post(side),
        algorithm,
        algorithm.graph(),
        Layout(devices),
        collector,
        schema,
        task.writer("params") if side.rank == 0 else None,
        seed=int(task.body["seed"]),
        rank=side.rank,
    )
    wired.sides.append(learner)
    leaves = task.arrays[: task.body["resumed"]] or None
    wired.starts.append(lambda: learner.start(leaves))
