"""The act side of a worker: takes timesteps, acts for the lanes that are ready, sends actions, builds unrolls.

Its environments write each timestep into the row of the unroll that it belongs to, where both share memory: an action
says where what follows from it goes (``UnrollWriter.where``). So an observation is copied once on this host, into the
batch, which an accelerator reads by itself (``pinned.py``).
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any

import jax
import numpy as np

from weft.core.buffers import timestep_buffers
from weft.core.trees import tree_leaves, tree_map
from weft.core.types import Acted, Array, Tree
from weft.runtimes.hosted.act_call import ActCall
from weft.runtimes.hosted.blocks import seen
from weft.runtimes.hosted.pinned import can_pin
from weft.runtimes.hosted.unroll_buffer import Ended
from weft.runtimes.packing import unpack_on_host
from weft.runtimes.roles.act_batch import Pending, Room, sizes_for
from weft.runtimes.roles.act_lane import LaneState, State
from weft.runtimes.roles.act_pace import Pace
from weft.runtimes.roles.act_resident import Resident
from weft.runtimes.workers.acting import ActingContext
from weft.runtimes.workers.ahead import Ahead
from weft.runtimes.workers.counting.account import OfSide, OfWire
from weft.runtimes.workers.episode_reports import EpisodeReports
from weft.runtimes.workers.lane_checkpoint import to_words
from weft.runtimes.workers.left import Left
from weft.runtimes.workers.side import LOOK_SECONDS, Saved
from weft.streams.channel import Message

IN_FLIGHT = 2
"""Batches on an accelerator at once: while it works on one, the host prepares the other."""


def on_accelerator() -> bool:
    """Whether this process computes on something else than its cores."""
    return bool(jax.local_devices()[0].platform != "cpu")


class ActSide:
    """Acts for its lanes; ``run`` returns only by an exception."""

    def __init__(
        self, acting: ActingContext, lanes: list[LaneState], reports: EpisodeReports, left: Left | None = None
    ) -> None:
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
        self._on_accelerator = on_accelerator()
        device = jax.local_devices()[0]
        self._pins = device if can_pin(device) else None
        self._sizes = sizes_for(len(lanes), self._whole, self._on_accelerator)
        self.context.saves = self._saved
        self._in_flight = IN_FLIGHT if self._on_accelerator and not self._whole else 1
        self._pace = Pace(len(lanes), waits=self._on_accelerator)
        self._handed: tuple[Any, tuple[Array, ...]] = ((), ())  # the params, and what act is handed of them
        self._rooms: dict[int, list[Room]] = {}  # those that are free, by their size
        self._ahead: Ahead | None = None  # what is being compiled
        self._compiled: list[int] = [] if self._on_accelerator else self._sizes  # sizes that can be called by now
        self._left, self._resident = left, None
        if left is not None and self._on_accelerator and self._valued:
            with suppress(ValueError):  # act does not look at all of the observation
                self._resident = Resident(self._act, len(lanes), rows, acting.algorithm.unroll, self._pins)

    def start(self) -> dict[str, Any]:
        """Begin to compile for an accelerator what will be called; others start meanwhile."""
        if self._on_accelerator:
            self._ahead = Ahead(self._compile)
        return {}

    def _compile(self) -> None:
        """The largest first, which is enough to begin with: a device compiles one after the other as it is."""
        rows = self.lanes[0].lane.rows
        for size in reversed(self._sizes):
            if self._resident is not None:
                self._resident.compile(size)
            elif self._pins is not None:
                self._act.compile_pinned(size * rows)
            else:
                self._act.compile(size * rows)
            self._compiled.insert(0, size)

    def close(self) -> None:
        """Nothing to free."""

    def run(self) -> None:
        """Serve, for ever; raises Stopped at the run's end."""
        pending: deque[Pending] = deque()
        while not self._compiled and self._ahead is not None and self._ahead.running:
            self.context.wait(0.05)
        while True:
            moved = False
            for lane in self.lanes:
                moved |= self._advance(lane)
            if pending and (len(pending) == self._in_flight or pending[0].done()):
                self._complete(pending.popleft())
                moved = True
            ready = [lane for lane in self.lanes if lane.state in (State.ACT, State.VALUE)]
            wait = self._patience(len(ready))
            if wait == 0.0:
                pending.append(self._dispatch(ready))
                moved = True
            elif pending and not moved:  # nothing to do but to wait for the device
                self._complete(pending.popleft())
                moved = True
            if moved:
                self.context.tick()
                self._pace.look(int(self.context.words[OfSide.BUSY_NS]))
            else:
                self.context.wait(wait)

    def _patience(self, ready: int) -> float:
        """Seconds to wait for more than the lanes that are ready; 0: act for them now."""
        if self._whole:
            return 0.0 if ready == len(self.lanes) else LOOK_SECONDS
        return self._pace.patience(ready) if ready else LOOK_SECONDS

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
        lane.noise = [np.asarray(leaf) for leaf in jax.tree.leaves(lane.drawn)]
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
        life, where = message.stamp.incarnation, message.stamp.version
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
        if where == 0 or where != lane.unrolls.where(lane.t):
            source = lane.unrolls.leaves_at(where) if where else [message.arrays[i] for i in self._always]
            for i, leaf in zip(self._always, source, strict=True):
                np.copyto(target[i], leaf)
        if np.count_nonzero(target[self._truncated]):
            for i in self._seldom:
                np.copyto(target[i], message.arrays[i])
        lane.answers = message.stamp._replace(version=0, tag=self.context.life)
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
        if self._resident is not None and self._left is not None:
            observation = self._resident.observation(lane.number)
            self._left.leave(acting.actor.name, lane.lane.index, lane.unrolls.sequence, observation)
        lane.unrolls.commit(lane.version)
        lane.rolled, lane.state = True, State.SLOT
        self._begin(lane)

    def _dispatch(self, ready: list[LaneState]) -> Pending:
        """One inference call for the lanes that are ready; on an accelerator it returns before the work is done."""
        acting = self.acting
        if self._valued:
            acting.weights.refresh()
        act = self._act
        size = next(n for n in self._compiled if n >= len(ready))
        rooms = self._rooms.setdefault(size, [])
        room = rooms.pop() if rooms else self._room(size)
        alone = size == 1 and self._pins is None  # what it sees can be handed over as it lies
        for j, lane in enumerate(ready):
            assert lane.buffer is not None
            sees, t = lane.buffer.seen_by(act)[lane.t], lane.t % lane.buffer.length
            # A lane that is only to be valued brings any noise: its action is thrown away.
            noise = [leaf[t] for leaf in lane.noise]
            room.fill(j, sees, noise, jax.tree.leaves(lane.carry), copy_seen=not alone)
        batch = self._params(), room.carry, sees if alone else room.seen, room.noise
        if self._resident is not None:
            where = self._resident.where([(lane.number, lane.t) for lane in ready], size)
            gave = self._resident.call(*batch, *where)
        else:
            gave = (act.call if self._pins is None else act.call_pinned)(*batch)
        if self._on_accelerator:  # all at once: each by itself would wait for the device again
            for leaf in jax.tree.leaves(gave):
                leaf.copy_to_host_async()
        work = [(lane, lane.state) for lane in ready]
        for lane in ready:
            lane.state = State.PENDING
        return Pending(work, size, room, gave)

    def _acted(self, gave: Tree) -> tuple[Acted, Any]:
        """What act gave, as NumPy, and the values of what it saw where they were asked for. Waits for the device."""
        programs = self.acting.programs
        if self._valued:
            acted, value = unpack_on_host(gave, programs.acted_and_value)
            return acted, value
        if programs.recalls:
            return Acted(np.asarray(gave), None, {}), None  # there is nothing in its carry
        return jax.tree.map(np.asarray, gave), None

    def _params(self) -> tuple[Array, ...]:
        """What act is handed of the params; put together once for each version."""
        leaves = self.acting.weights.leaves
        if self._handed[0] is not leaves:
            self._handed = leaves, self._act.params(leaves)
        return self._handed[1]

    @property
    def _act(self) -> ActCall:
        return self.acting.programs.act_and_value if self._valued else self.acting.programs.act

    def _room(self, size: int) -> Room:
        _, carry, sees, noise = self._act.takes(self.lanes[0].lane.rows)
        return Room(size, self.lanes[0].lane.rows, sees, noise, carry, self._pins)

    def _complete(self, pending: Pending) -> None:
        """Send the actions; then, while environments step, keep what learn wants remembered."""
        acted, values = self._acted(pending.gave)
        rows, action = pending.work[0][0].lane.rows, acted.action
        for k, (lane, state) in enumerate(pending.work):
            if state is State.ACT:
                lane.action = action[k * rows : (k + 1) * rows]
                self._reply(lane)
        extras, (carry, structure) = jax.tree.leaves(acted.extras), jax.tree.flatten(acted.carry)
        for k, (lane, state) in enumerate(pending.work):
            mine = slice(k * rows, (k + 1) * rows)
            if state is State.VALUE:
                self._finish(lane, None if values is None else values[mine])
                continue
            if carry:
                lane.carry = jax.tree.unflatten(structure, [leaf[mine] for leaf in carry])
            place, *rest = lane.kept(lane.t)
            place[...] = lane.action
            for kept, leaf in zip(rest, extras, strict=False):  # none where they are found for the whole unroll
                kept[...] = leaf[mine]
        self._rooms[pending.size].append(pending.room)

    def _reply(self, lane: LaneState) -> None:
        place = lane.actions.reserve(0)
        if place is None:  # an earlier action is still there, for environments that died, or by an act that died
            lane.state = State.REPLY
            return
        np.copyto(place[0], lane.action)
        lane.sent_words[OfWire.SENT] += 1
        where = lane.unrolls.where(lane.t + 1) if lane.in_place else 0
        lane.actions.commit(lane.answers._replace(version=where))
        lane.state = State.TIMESTEP

    def _saved(self) -> Saved | None:
        stand = [lane.checkpoint() for lane in self.lanes]
        if any(where is None for where in stand):
            return None
        words = [to_words(where) for where in stand]
        name = self.acting.actor.name
        lanes = [[name, lane.lane.index, len(leaves)] for lane, leaves in zip(self.lanes, words, strict=True)]
        return {"lanes": lanes}, [leaf for leaves in words for leaf in leaves]
