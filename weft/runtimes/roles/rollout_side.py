"""Environments and everything that acts in them as one side of a worker: as in one process, with learning elsewhere.

Host environments write straight into the slots that go on; a JAX environment is rolled out by one compiled program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from weft.core.trees import tree_map
from weft.core.types import Tree
from weft.envs.dialled_jax import Follower
from weft.runtimes.compiled.episodes import EpisodeSlices
from weft.runtimes.compiled.rollout import Actor, make_rollout
from weft.runtimes.hosted.blocks import fill
from weft.runtimes.hosted.rolling import (
    LaneCheckpoint,
    RollingAct,
    Stepper,
    bring_back,
    kept_rows,
    roll_out,
)
from weft.runtimes.hosted.unroll_buffer import Ended, UnrollBuffer
from weft.runtimes.roles.step import host_factory
from weft.runtimes.workers.acting import ActingContext
from weft.runtimes.workers.counting.account import OfSide
from weft.runtimes.workers.episode_order import Told
from weft.runtimes.workers.episode_reports import EpisodeReports
from weft.runtimes.workers.lane_checkpoint import from_words, lane_schema, to_words
from weft.runtimes.workers.layout.blueprint import Side
from weft.runtimes.workers.side import Saved
from weft.runtimes.workers.trouble_reports import TroubleReports
from weft.runtimes.workers.unroll_writer import UnrollWriter

if TYPE_CHECKING:
    from weft.runtimes.workers.wiring import Task


def rollout_side(task: Task, side: Side) -> HostRollout | JaxRollout:
    """The side that a worker's environment needs."""
    return JaxRollout(task, side) if task.source.pure is not None else HostRollout(task, side)


class _Rollout:
    """What both kinds share: one lane, and for each act its params and the wire that its unrolls leave by."""

    def __init__(self, task: Task, side: Side) -> None:
        self.task, self.context = task, task.context(side)
        (index,) = side.lanes
        self.lane = task.blueprint.lanes[index]
        self.actors: list[Actor] = task.actors(side)
        self.acting = [ActingContext(task, side, actor, each_step=False) for actor in self.actors]
        self.writers: list[UnrollWriter] = [task.unroll_writer(side, actor.name, index) for actor in self.actors]
        always = task.blueprint.synchrony.in_order
        self._reports = EpisodeReports(self.context.link, task.blueprint_acts, always=always)
        self._length = self.actors[0].algorithm.unroll

    def _begin(self) -> list[UnrollBuffer]:
        """Room for an unroll of each act, and params to make it with; waits for both."""
        buffers: list[UnrollBuffer] = []
        for writer, acting in zip(self.writers, self.acting, strict=True):
            begin: Callable[[], UnrollBuffer | None] = acting.begin_with(writer)
            while (buffer := begin()) is None:
                self.context.wait()
            buffers.append(buffer)
        return buffers

    def _send(self) -> None:
        for writer, acting in zip(self.writers, self.acting, strict=True):
            writer.commit(acting.weights.version)

    def _count(self, steps: int) -> None:
        for writer in self.writers:
            writer.count(steps)
        self.context.words[OfSide.STEPS] += steps * self.lane.rows


class HostRollout(_Rollout):
    """Host environments and act; ``run`` returns only by an exception."""

    def __init__(self, task: Task, side: Side) -> None:
        super().__init__(task, side)
        self._stepper: Stepper | None = None
        self._acts: list[RollingAct] = []
        self._stands: list[LaneCheckpoint] | None = None  # between two unrolls
        self._troubles = TroubleReports(self.context.link)
        self.context.saves = self._saved

    def start(self) -> dict[str, Any]:
        """Make the environments, or bring them back to where they stood; the rows that could not be, exactly."""
        rows, task = self.lane.rows, self.task
        env = host_factory(task)(rows, task.seed, self.lane.first)
        for acting, actor in zip(self.acting, self.actors, strict=True):
            act = RollingAct(acting.programs, acting.keys_of(self.lane), acting.start_carry(rows), rows, actor.team)
            act.buffer = task.scratch(actor, rows)
            self._acts.append(act)
        self._stepper = Stepper([env], self._acts, env.spec, rows)
        snapshots = task.body.get("snapshots")
        saved = task.lane_leaves(self.lane)
        if saved is None or snapshots is None:
            self._stepper.reset()
            lost: list[int] = []
        else:
            (lost,) = self._stepper.restore([snapshots[str(self.lane.index)]])
        kept, stands = kept_rows(lost, rows), []
        for act, actor in zip(self._acts, self.actors, strict=True):
            assert act.buffer is not None
            first = act.buffer.outs[0]._replace(final_observation=None)
            now = LaneCheckpoint(act.carry, tree_map(np.copy, first), *act.totals)
            if saved is not None and snapshots is not None:
                now = bring_back(now, from_words(saved[actor.name], lane_schema(actor.algorithm, rows)), kept)
            stands.append(now)
        self._stands = stands
        return {"lost": {str(self.lane.index): lost}}

    def run(self) -> None:
        """Make unrolls, for ever; raises Stopped at the run's end and what the environment raises."""
        assert self._stands is not None
        assert self._stepper is not None
        buffers = self._begin()
        for act, buffer, stands in zip(self._acts, buffers, self._stands, strict=True):
            tree_map(np.copyto, buffer.outs[0]._replace(final_observation=None), stands.timestep)
            act.carry, act.totals = stands.carry, (stands.episode_return, stands.episode_length)
        while True:
            self._stands = None
            self._unroll(buffers)
            self._troubles.tell(self._stepper.environments[0])
            self._send()
            self._stands = [act.checkpoint() for act in self._acts]
            before, buffers = buffers, self._begin()
            for old, new in zip(before, buffers, strict=True):
                old.roll(into=new)

    def _unroll(self, buffers: list[UnrollBuffer]) -> None:
        assert self._stepper is not None
        for act, acting, writer, buffer in zip(self._acts, self.acting, self.writers, buffers, strict=True):
            jax.tree.map(np.copyto, buffer.block.carry, jax.tree.map(np.asarray, act.carry))
            act.begin(buffer, acting.weights.leaves, writer.produced + 1)
        roll_out(self._acts, self._stepper, self._length, self._tick)
        for k, (act, acting) in enumerate(zip(self._acts, self.acting, strict=True)):
            ended: list[Ended] = []
            act.finish(acting.weights.params, acting.weights.leaves, [ended])
            self._reports.tell_ended(self.actors[k].name, self.lane, self.writers[k].produced, self._length, ended)

    def _tick(self) -> None:
        self._count(1)
        self.context.tick()

    def _saved(self) -> Saved | None:
        if self._stands is None or self._stepper is None:
            return None
        self._troubles.tell(self._stepper.environments[0], at_once=True)
        words = {actor.name: to_words(stands) for actor, stands in zip(self.actors, self._stands, strict=True)}
        lanes = [[name, self.lane.index, len(leaves)] for name, leaves in words.items()]
        body = {"lanes": lanes, "snapshots": {str(self.lane.index): self._stepper.environments[0].snapshot()}}
        return body, [leaf for leaves in words.values() for leaf in leaves]

    def close(self) -> None:
        """Close the environments; may be called twice."""
        if self._stepper is not None:
            for env in self._stepper.environments:
                env.close()
            self._stepper = None


class JaxRollout(_Rollout):
    """JAX environments and act, rolled out by one program; ``run`` returns only by an exception."""

    def __init__(self, task: Task, side: Side) -> None:
        super().__init__(task, side)
        assert task.source.pure is not None
        env = task.source.pure
        rollout = make_rollout(self.actors, env)
        self._follower = Follower(env)
        self._init, self._roll = jax.jit(rollout.init), jax.jit(rollout.unroll, donate_argnums=(1,))
        self._state: Tree = None
        self._still = True
        self.context.saves = self._saved

    def _saved(self) -> Saved | None:
        if not self._still:
            return None
        leaves = to_words(self._state)
        return {"lanes": [["", self.lane.index, len(leaves)]]}, leaves

    def start(self) -> dict[str, Any]:
        """Start the environments, or bring them back to where they stood, always exactly."""
        indices = np.arange(self.lane.first, self.lane.first + self.lane.rows, dtype=np.int32)
        arguments = np.int32(self.task.seed), indices
        saved = self.task.lane_leaves(self.lane)
        if saved is None:  # its episodes begin anew, and its steps go on where an earlier life's ended
            self._state = self._init(*arguments)._replace(step=jax.numpy.int32(self.writers[0].produced))
        else:
            self._state = jax.device_put(from_words(saved[""], jax.eval_shape(self._init, *arguments)))
        return {}

    def run(self) -> None:
        """Make unrolls, for ever; raises Stopped at the run's end."""
        while True:
            buffers = self._begin()
            self._still = False
            params = {a.name: acting.weights.params for a, acting in zip(self.actors, self.acting, strict=True)}
            now = self._state._replace(env=self._follower.follow(self._state.env))
            self._state, unrolls, slices = self._roll(params, now)
            for actor, buffer in zip(self.actors, buffers, strict=True):
                fill(buffer.block, jax.device_get(unrolls[actor.name]))
            self._count(self._length)
            self._tell(jax.device_get(slices))
            self._send()
            self._still = True
            self.context.tick()

    def _tell(self, slices: dict[str, EpisodeSlices]) -> None:
        for actor, writer in zip(self.actors, self.writers, strict=True):
            found, until = slices[actor.name], writer.produced
            told = [
                Told(
                    until - self._length + int(t),
                    self.lane.first,
                    int(found.episodes[t]),
                    float(found.return_sum[t]),
                    int(found.length_sum[t]),
                )
                for t in np.flatnonzero(found.episodes)
            ]
            self._reports.tell(actor.name, self.lane, until, told)

    def close(self) -> None:
        """Nothing to free."""
