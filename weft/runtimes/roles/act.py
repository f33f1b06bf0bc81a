"""The role of inference: timesteps and params in, actions out at every step, and an unroll every T steps.

Apart from its environments it is a side of its own: it takes whatever lanes are ready, up to all of them, and never
waits for stragglers; batches are padded to a few sizes so that nothing is compiled twice. Where synchrony wants whole
batches it waits for all, so that every plan computes the same ones.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from weft.core.buffers import timestep_buffers
from weft.core.trees import tree_leaves, tree_map
from weft.core.types import Acted, Array, Timestep, Tree
from weft.runtimes.hosted.blocks import seen
from weft.runtimes.hosted.rolling import LaneCheckpoint, bring_back, kept_rows
from weft.runtimes.hosted.unroll_buffer import Ended, UnrollBuffer
from weft.runtimes.workers.acting import ActingContext
from weft.runtimes.workers.counting.account import OfWire
from weft.runtimes.workers.episode_reports import EpisodeReports
from weft.runtimes.workers.lane_checkpoint import from_words, lane_schema, to_words
from weft.runtimes.workers.layout.blueprint import Lane, Side
from weft.runtimes.workers.side import Saved
from weft.runtimes.workers.unroll_writer import UnrollWriter
from weft.streams.channel import Message, Reader, Stamp, Writer

if TYPE_CHECKING:
    from weft.runtimes.workers.wiring import Task


class ActRole:
    """How inference runs apart from its environments. Together with them it is part of their side."""

    def side(self, task: Task, side: Side) -> ActSide:
        """Serves the lanes of its share."""
        (actor,) = task.actors(side)
        acting = ActingContext(task, side, actor, each_step=True)
        lanes = []
        for index in side.lanes:
            lane = task.blueprint.lanes[index]
            (timesteps,) = [w for w in task.blueprint.into(side.index) if w.lane == index and w.every_step]
            (actions,) = [w for w in task.blueprint.out_of(side.index) if w.lane == index and w.every_step]
            task.account.wires[timesteps.index][OfWire.READER_LIFE] = task.life
            ends = task.reader(timesteps, side), task.writer(actions), task.unroll_writer(side, actor.name, index)
            state = LaneState(acting, *ends, task.account.wires[actions.index])
            state.stand(_saved_lane(task, acting, lane))
            lanes.append(state)
        reports = EpisodeReports(acting.context.link, task.blueprint_acts, always=acting.synchrony.in_order)
        return ActSide(acting, lanes, reports)


ACT = ActRole()


def _saved_lane(task: Task, acting: ActingContext, lane: Lane) -> tuple[LaneCheckpoint, Any] | None:
    """Where a lane stood when the run was saved, and which of its environments could be brought back."""
    saved = task.lane_leaves(lane)
    if saved is None:
        return None
    then: LaneCheckpoint = from_words(saved[acting.actor.name], lane_schema(acting.algorithm, lane.rows))
    kept = kept_rows(task.body["lost"].get(str(lane.index), []), lane.rows)
    nothing = np.zeros(lane.rows, np.float64), np.zeros(lane.rows, np.int64)
    now = LaneCheckpoint(acting.start_carry(lane.rows), then.timestep, *nothing)
    return bring_back(now, then, kept), kept


class State(Enum):
    """What a lane waits for."""

    SLOT = "slot"  # room for its next unroll, and in lockstep its params
    TIMESTEP = "timestep"  # its environments
    ACT = "act"  # the next batch, for an action
    VALUE = "value"  # the next batch, for the value of what follows its unroll
    PENDING = "pending"  # the batch that it is in
    REPLY = "reply"  # room for its action


class LaneState:
    """One lane's unroll as it is built. Only ``ActSide`` changes it."""

    def __init__(
        self, acting: ActingContext, timesteps: Reader, actions: Writer, unrolls: UnrollWriter, sent_words: Any
    ) -> None:
        self.lane, self.timesteps, self.actions, self.unrolls = unrolls.lane, timesteps, actions, unrolls
        self.sent_words = sent_words  # of the wire of actions, in the account
        self.state = State.SLOT
        self.buffer: UnrollBuffer | None = None
        self.t = -1  # the row that is filled; -1: none
        self.rolled = False  # row 0 of the next unroll is the last row of ``buffer``
        self.version = -1
        self.keys = acting.keys_of(self.lane)
        self.carry: Tree = acting.start_carry(self.lane.rows)
        self.drawn: Tree = None
        self.noise: list[Tree] = []
        self.answers = Stamp(-1)  # which timestep the next action answers
        self.action: Any = None
        self.env_life: int | None = None
        self.episode_return = np.zeros(self.lane.rows, np.float64)
        self.episode_length = np.zeros(self.lane.rows, np.int64)
        self.targets: dict[int, list[list[Any]]] = {}  # for each buffer, the leaves of each row
        self._stood: tuple[LaneCheckpoint, Any] | None = None

    def stand(self, where: tuple[LaneCheckpoint, Any] | None) -> None:
        """Go on from where the lane stood; the second part says which of its environments could be brought back."""
        self._stood = where

    def begin(self, start: Tree, *, midway: bool) -> None:
        """Environments begin: anew, or, the first time, from where the lane stood. Their timestep is in row 0.

        ``midway``: they did not; it is act that is new, and what their episodes gave before that is not known.
        """
        self.carry, stood = start, self._stood
        self.episode_return[:], self.episode_length[:] = 0, 0
        if midway:
            self.episode_return[~self._row_seen(0).first] = np.nan
        self._stood = None
        if stood is not None:
            checkpoint, kept = stood
            self.carry = checkpoint.carry
            self.episode_return[:], self.episode_length[:] = checkpoint.episode_return, checkpoint.episode_length
            for place, then in zip(tree_leaves(self._row_seen(0)), tree_leaves(checkpoint.timestep), strict=True):
                np.copyto(place, then, where=kept.reshape((-1, *[1] * (place.ndim - 1))))

    def checkpoint(self) -> LaneCheckpoint | None:
        """Where the lane stands; None unless it has sent an unroll and waits to begin the next."""
        if self.state is not State.SLOT or not self.rolled or self.buffer is None:
            return None
        timestep = tree_map(np.copy, self._row_seen(-1))
        return LaneCheckpoint(self.carry, timestep, self.episode_return, self.episode_length)

    def _row_seen(self, t: int) -> Timestep:
        assert self.buffer is not None
        return self.buffer.outs[t]._replace(final_observation=None)

    def row(self, t: int) -> list[Any]:
        """The leaves of row t of the buffer, in the channel's order."""
        assert self.buffer is not None
        known = self.targets.get(id(self.buffer))
        if known is None:
            known = self.targets[id(self.buffer)] = [tree_leaves(out) for out in self.buffer.outs]
        return known[t]


class Pending(NamedTuple):
    """A batch on its way through the device."""

    work: list[tuple[LaneState, State]]  # the lanes in it, and what for
    acted: Acted
    value: Array | None


class ActSide:
    """Acts for its lanes; ``run`` returns only by an exception."""

    def __init__(self, acting: ActingContext, lanes: list[LaneState], reports: EpisodeReports) -> None:
        self.acting, self.lanes, self.context, self._reports = acting, lanes, acting.context, reports
        # Where an unroll has one version of the params: exactly the calls that are made in one process.
        self._whole, self._valued = acting.synchrony.whole_batches, not acting.synchrony.one_params
        rows = lanes[0].lane.rows
        like = timestep_buffers(acting.algorithm.spec.environment, (rows,))
        # Final observations are copied only where an episode was cut: they are as large as all the rest.
        self._final = {id(leaf) for leaf in tree_leaves(like.final_observation)}
        leaves = tree_leaves(like)
        self._always = [i for i, leaf in enumerate(leaves) if id(leaf) not in self._final]
        self._seldom = [i for i, leaf in enumerate(leaves) if id(leaf) in self._final]
        self._truncated = next(i for i, leaf in enumerate(leaves) if leaf is like.truncated)
        self._sizes = [n for n in (2**k for k in range(16)) if n < len(lanes)] + [len(lanes)]
        self.context.saves = self._saved
        self._on_accelerator = jax.local_devices()[0].platform != "cpu"

    def start(self) -> dict[str, Any]:
        """Everything is made already."""
        return {}

    def close(self) -> None:
        """Nothing to free."""

    def run(self) -> None:
        """Serve, for ever; raises Stopped at the run's end."""
        pending: Pending | None = None
        while True:
            moved = False
            for lane in self.lanes:
                moved |= self._advance(lane)
            if pending is not None:  # the device was at work meanwhile
                self._complete(pending)
                pending, moved = None, True
            ready = [lane for lane in self.lanes if lane.state in (State.ACT, State.VALUE)]
            if ready and (not self._whole or len(ready) == len(self.lanes)):
                pending, moved = self._dispatch(ready), True
            if moved:
                self.context.tick()
            else:
                self.context.wait()

    def _advance(self, lane: LaneState) -> bool:
        """Take a lane as far as it gets without acting; whether it got anywhere."""
        start = lane.state
        if lane.state is State.REPLY:
            self._reply(lane)
        if lane.state is State.SLOT:
            self._begin(lane)
        if lane.state is State.TIMESTEP:
            message = lane.timesteps.receive(0)
            if message is not None:
                self._take(lane, message)
                return True
        return lane.state is not start

    def _begin(self, lane: LaneState) -> None:
        """A new unroll, where there is room for it."""
        acting = self.acting
        buffer = lane.unrolls.begin_unroll(acting.weights, acting.synchrony, self.context)
        if buffer is None:
            return
        before, lane.buffer = lane.buffer, buffer
        lane.version = acting.weights.version
        # Step 0 of an environment's keys went to its first reset, so its steps count from 1.
        lane.drawn = acting.programs.noise(lane.keys, np.int32(lane.unrolls.produced + 1))
        lane.noise = buffer.by_step(jax.tree.map(np.asarray, lane.drawn))
        buffer.forget_cuts()
        if lane.rolled and before is not None:
            before.roll(into=buffer)
            lane.t, lane.rolled, lane.state = 0, False, State.ACT
            self._keep_carry(lane)
        else:
            lane.t, lane.state = -1, State.TIMESTEP

    def _take(self, lane: LaneState, message: Message) -> None:
        """A timestep has come: it is the result of the last action, or the first of an environment that began anew."""
        buffer = lane.buffer
        assert buffer is not None
        life = message.stamp.incarnation
        if message.stamp[:3] == lane.answers[:3]:  # sent again, to a new life of act, which had found it already
            lane.timesteps.release(message)
            return
        if lane.t >= 0 and (life != lane.env_life or message.stamp.tag != self.context.life):
            # Of new environments, or by an action that act's own predecessor sent before it died: not what follows from
            # the action recorded here. What there is of the unroll is given up, and counted.
            lane.unrolls.give_up(lane.t)
            lane.t = -1
            buffer.forget_cuts()
        fresh = lane.t < 0
        lane.env_life = life
        lane.t += 1
        target = lane.row(lane.t)
        for i in self._always:
            np.copyto(target[i], message.arrays[i])
        if np.count_nonzero(message.arrays[self._truncated]):
            for i in self._seldom:
                np.copyto(target[i], message.arrays[i])
        lane.answers = message.stamp._replace(tag=self.context.life)
        lane.timesteps.release(message)
        if fresh:
            lane.begin(self.acting.start_carry(lane.lane.rows), midway=lane.answers.sequence > 0)
        if lane.t == 0:
            self._keep_carry(lane)
            lane.state = State.ACT
            return
        lane.unrolls.count(1)
        buffer.note_cuts(lane.t - 1, lane.carry)
        if lane.t < buffer.length:
            lane.state = State.ACT
        elif self._valued:
            lane.state = State.VALUE
        else:
            self._finish(lane, None)

    def _keep_carry(self, lane: LaneState) -> None:
        assert lane.buffer is not None
        tree_map(np.copyto, lane.buffer.block.carry, lane.carry)

    def _finish(self, lane: LaneState, last: Array | None) -> None:
        """Send the unroll; ``last`` is the value of what follows it, where it is known already."""
        acting, buffer = self.acting, lane.buffer
        assert buffer is not None
        buffer.finish(acting.weights.params, lane.carry, acting.programs.bootstrap, last)
        block = buffer.block
        if block.extras and acting.programs.recalls:  # a step's call has left them out
            extras = acting.programs.extras(acting.weights.leaves, block.carry, seen(block), lane.drawn)
            jax.tree.map(lambda place, x: np.copyto(place, np.asarray(x)), block.extras, extras)
        ended: list[Ended] = []
        totals = buffer.count_episodes(lane.episode_return, lane.episode_length, [ended])
        lane.episode_return, lane.episode_length = totals
        self._reports.tell_ended(acting.actor.name, lane.lane, lane.unrolls.produced, buffer.length, ended)
        lane.unrolls.commit(lane.version)
        lane.rolled, lane.state = True, State.SLOT
        self._begin(lane)

    def _dispatch(self, ready: list[LaneState]) -> Pending:
        """One inference call for the lanes that are ready; on an accelerator it returns before the work is done."""
        acting = self.acting
        if self._valued:
            acting.weights.refresh()
        act = acting.programs.act_and_value if self._valued else acting.programs.act
        # A lane that is only to be valued brings any noise: its action is thrown away.
        inputs = [
            (lane.carry, lane.buffer.seen_by(act)[lane.t], lane.noise[lane.t % lane.buffer.length])
            for lane in ready
            if lane.buffer
        ]
        size = next(n for n in self._sizes if n >= len(ready))
        inputs += [inputs[0]] * (size - len(ready))  # padding: computed, and thrown away
        batch = inputs[0] if size == 1 else tree_map(lambda *x: np.concatenate(x), *inputs)
        gave = act.call(act.params(acting.weights.leaves), *batch)
        acted, value = gave if self._valued else (gave, None)
        if not self._valued and acting.programs.recalls:
            acted = Acted(gave, batch[0], {})  # there is nothing in its carry
        if self._on_accelerator:  # all at once: each by itself would wait for the device again
            for leaf in jax.tree.leaves((acted, value)):
                leaf.copy_to_host_async()
        work = [(lane, lane.state) for lane in ready]
        for lane in ready:
            lane.state = State.PENDING
        return Pending(work, acted, value)

    def _complete(self, pending: Pending) -> None:
        """Send the actions; then, while environments step, keep what learn wants remembered."""
        rows, action = pending.work[0][0].lane.rows, np.asarray(pending.acted.action)
        for k, (lane, state) in enumerate(pending.work):
            if state is State.ACT:
                lane.action = action[k * rows : (k + 1) * rows]
                self._reply(lane)
        carry, extras = jax.tree.map(np.asarray, (pending.acted.carry, pending.acted.extras))
        values = None if pending.value is None else np.asarray(pending.value)
        for k, (lane, state) in enumerate(pending.work):
            mine = slice(k * rows, (k + 1) * rows)
            if state is State.VALUE:
                self._finish(lane, None if values is None else values[mine])
                continue
            assert lane.buffer is not None
            lane.carry = jax.tree.map(lambda x, mine=mine: x[mine], carry)
            remembered = jax.tree.map(lambda x, mine=mine: x[mine], extras)
            lane.buffer.remember(lane.t, Acted(lane.action, lane.carry, remembered))

    def _reply(self, lane: LaneState) -> None:
        place = lane.actions.reserve(0)
        if place is None:  # an earlier action is still there, for environments that died, or by an act that died
            lane.state = State.REPLY
            return
        np.copyto(place[0], lane.action)
        lane.sent_words[OfWire.SENT] += 1
        lane.actions.commit(lane.answers)
        lane.state = State.TIMESTEP

    def _saved(self) -> Saved | None:
        stand = [lane.checkpoint() for lane in self.lanes]
        if any(where is None for where in stand):
            return None
        words = [to_words(where) for where in stand]
        name = self.acting.actor.name
        lanes = [[name, lane.lane.index, len(leaves)] for lane, leaves in zip(self.lanes, words, strict=True)]
        return {"lanes": lanes}, [leaf for leaves in words for leaf in leaves]
