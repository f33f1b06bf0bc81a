"""The role of the environments: actions in, timesteps out, at every step.

With all inference for them in the same group it is one loop with it (``rollout_side``). Apart from it, it is a ring of
slices: while one slice waits for its actions, another is stepped, so that inference costs no time as long as it takes
less than stepping the other slices does (SRL, arXiv 2306.16688). Loads no JAX, unless its environment is in JAX.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.core.buffers import of_team, timestep_buffers
from weft.core.trees import tree_leaves, unflatten
from weft.core.types import Timestep
from weft.envs.protocol import HostEnv, HostFactory
from weft.runtimes.workers.counting.account import OfSide, OfWire
from weft.runtimes.workers.layout.blueprint import Side
from weft.runtimes.workers.side import Saved, SideContext
from weft.runtimes.workers.trouble_reports import TroubleReports
from weft.streams.channel import Arrays, Message, Reader, Stamp, Writer
from weft.streams.memory import open_slots

if TYPE_CHECKING:
    from weft.runtimes.workers.wiring import Task


class StepRole:
    """How environments run in a worker. In one process the engines step them."""

    def side(self, task: Task, side: Side) -> Any:
        """With everything that acts in them one loop, else a ring of slices."""
        if len(side.fragments) > 1:
            from weft.runtimes.roles.rollout_side import rollout_side

            return rollout_side(task, side)
        slices = [slice_of(task, side, lane) for lane in side.lanes]
        return StepSide(task.context(side), host_factory(task), task.seed, slices, task.body.get("snapshots"))


STEP = StepRole()


def host_factory(task: Task) -> HostFactory:
    """What makes the environments for the host; those in JAX behind an adapter."""
    source = task.source
    if source.host is not None:
        return source.host
    from weft.envs.jax_on_host import JaxOnHostFactory

    assert source.pure is not None
    return JaxOnHostFactory(source.pure)


@dataclass
class Seat:
    """One team's way to what acts for it; a single one where there are no teams."""

    team: str
    timesteps: Writer
    actions: Reader
    sent_words: Any  # of the wire of timesteps, in the account
    slab: list[Arrays] | None = None  # the slots of what act builds, where act says what goes
    slots: dict[int, tuple[Any, Timestep]] = field(default_factory=dict)
    rows: dict[tuple[int, int], Timestep] = field(default_factory=dict)  # of the slab, by slot and row
    answer: Message | None = None  # an action that waits for those of the other teams
    act_life: int = 0  # to which the last timestep was sent
    sent: Stamp = field(default_factory=Stamp)  # of the last timestep

    @property
    def reader_life(self) -> int:
        """Which life of act serves the seat now."""
        noted = self.timesteps.noted  # comes from another host too, with the first answer of a new life
        return noted if noted >= 0 else int(self.sent_words[OfWire.READER_LIFE])


@dataclass
class Slice:
    """One lane: its environments, and a seat for each team."""

    lane: int
    first: int
    rows: int
    seats: list[Seat]
    env: HostEnv | None = None
    joint: Timestep | None = None  # where an environment with teams writes
    waiting: Timestep | None = None  # the first timestep, until there is room for it
    sequence: int = 0


def slice_of(task: Task, side: Side, lane: int) -> Slice:
    """A lane's slice, its channels opened."""
    into = {w.stream.partition(".")[2]: w for w in task.blueprint.into(side.index) if w.lane == lane}
    seats = []
    for wire in task.blueprint.out_of(side.index):
        if wire.lane == lane:
            team = wire.stream.partition(".")[2]
            reader = task.reader(into[team], side)
            slab = None if wire.slab < 0 else open_slots(task.specs[task.blueprint.wires[wire.slab].name])
            seats.append(Seat(team, task.writer(wire), reader, task.account.wires[wire.index], slab))
    place = task.blueprint.lanes[lane]
    return Slice(lane, place.first, place.rows, seats)


class StepSide:
    """Steps its slices whenever their actions come; ``run`` returns only by an exception."""

    def __init__(
        self,
        context: SideContext,
        make: HostFactory,
        seed: int,
        slices: list[Slice],
        snapshots: dict[str, Any] | None = None,
    ) -> None:
        self.context, self.make, self.seed, self.slices, self._snapshots = context, make, seed, slices, snapshots
        context.saves = self._saved
        self._troubles = TroubleReports(context.link)

    def start(self) -> dict[str, Any]:
        """Make and reset all environments, or bring them back; by lane, the rows that could not be, exactly.

        Does not wait for room: a slot may still hold a timestep of an earlier life, which act takes only once it has
        heard of the other slices.
        """
        lost: dict[str, list[int]] = {}
        for part in self.slices:
            part.env = self.make(part.rows, self.seed, part.first)
            part.waiting = timestep_buffers(part.env.spec, (part.rows,))
            if part.seats[0].team:
                part.joint = timestep_buffers(part.env.spec, (part.rows,))
            if self._snapshots is None:
                part.env.reset(part.waiting)
            else:
                lost[str(part.lane)] = part.env.restore(self._snapshots[str(part.lane)], part.waiting)
            self._send_first(part)
            self.context.tick()
        return {"lost": lost}

    def run(self) -> None:
        """Step, for ever; raises Stopped at the run's end and what the environment raises."""
        while True:
            stepped = False
            for part in self.slices:
                if part.waiting is not None:
                    stepped |= self._send_first(part)
                for seat in part.seats:
                    if seat.answer is not None:
                        continue
                    message = seat.actions.receive(0)
                    if message is None:
                        continue
                    stamp = message.stamp
                    if (stamp.incarnation, stamp.sequence) == (self.context.life, part.sequence - 1):
                        seat.answer = message
                    else:  # meant for a predecessor that died
                        seat.actions.release(message)
                        self.context.tick()
                        stepped = True
                if all(seat.answer is not None for seat in part.seats):
                    self._step(part)
                    self.context.tick()
                    stepped = True
            if not stepped:
                self.context.wait()
                for part in self.slices:
                    self._send_again(part)

    def snapshots(self) -> dict[str, Any]:
        """What every slice needs to be brought back, by lane. Only while all of them wait for actions."""
        return {str(part.lane): part.env.snapshot() for part in self.slices if part.env is not None}

    def _saved(self) -> Saved:
        for part in self.slices:
            self._troubles.tell(part.env, at_once=True)
        return {"snapshots": self.snapshots()}, []

    def close(self) -> None:
        """Close the environments; may be called twice."""
        for part in self.slices:
            if part.env is not None:
                part.env.close()
                part.env = None

    def _step(self, part: Slice) -> None:
        """All actions of a slice are here: step it, and send what came of it."""
        assert part.env is not None
        if part.joint is None:  # straight from the slot of the action into the slot of the timestep
            (seat,) = part.seats
            assert seat.answer is not None
            part.env.step(seat.answer.arrays[0], self._out(part, seat))
        else:
            actions: Any = {s.team: s.answer.arrays[0] for s in part.seats if s.answer is not None}
            part.env.step(actions, part.joint)
            for seat in part.seats:
                for place, leaf in zip(
                    tree_leaves(self._out(part, seat)), tree_leaves(of_team(part.joint, seat.team)), strict=True
                ):
                    np.copyto(place, leaf)
        self.context.words[OfSide.STEPS] += part.rows
        self._troubles.tell(part.env)
        for seat in part.seats:
            assert seat.answer is not None
            answer, seat.answer = seat.answer, None
            seat.actions.release(answer)
            self._send(part, seat, answer.stamp.tag, answer.stamp.version)
        part.sequence += 1

    def _out(self, part: Slice, seat: Seat) -> Timestep:
        """Where the next timestep is written: as the action says, into the slab or into the slot of the message.

        Act has released that: it has sent an action since. Final observations are always in the message.
        """
        while (arrays := seat.timesteps.reserve(0)) is None:
            self.context.wait()
        known = seat.slots.get(id(arrays))
        if known is None:  # the tree is built once for each slot
            assert part.env is not None
            like = of_team(timestep_buffers(part.env.spec, (part.rows,)), seat.team)
            known = seat.slots[id(arrays)] = (arrays, unflatten(like, arrays))
        where = 0 if seat.answer is None else seat.answer.stamp.version
        if not where or seat.slab is None:
            return known[1]
        length = len(seat.slab[0][0])
        place, row = divmod(where - 1, length)
        at = place % len(seat.slab), row
        if at not in seat.rows:
            # The first arrays of a slot are those of its timesteps.
            like = known[1]._replace(final_observation=None)
            leaves = [leaf[row] for leaf in seat.slab[at[0]][: len(tree_leaves(like))]]
            seat.rows[at] = unflatten(like, leaves)._replace(final_observation=known[1].final_observation)
        return seat.rows[at]

    def _send_first(self, part: Slice) -> bool:
        """Send what the slice began with, if there is room; whether there was."""
        slots = [seat.timesteps.reserve(0) for seat in part.seats]
        if any(arrays is None for arrays in slots):
            return False
        assert part.waiting is not None
        for seat, arrays in zip(part.seats, slots, strict=True):
            assert arrays is not None
            for place, leaf in zip(arrays, tree_leaves(of_team(part.waiting, seat.team)), strict=True):
                np.copyto(place, leaf)
            self._send(part, seat)
        part.waiting = None
        part.sequence += 1
        return True

    def _send(self, part: Slice, seat: Seat, by: int = -1, where: int = 0) -> None:
        """``by``: which life of act has sent the action that this follows from; -1 after a reset.

        ``where`` it was written, as the action said; 0: into the message.
        """
        seat.sent = Stamp(part.lane, self.context.life, part.sequence, where, part.rows, by)
        seat.act_life = seat.reader_life
        seat.sent_words[OfWire.SENT] += 1
        seat.timesteps.commit(seat.sent)

    def _send_again(self, part: Slice) -> None:
        """Where act died: it may have taken the last timestep with it. The slot still holds what was written there."""
        if part.waiting is not None:
            return
        for seat in part.seats:
            if seat.act_life != seat.reader_life and seat.answer is None and seat.timesteps.reserve(0) is not None:
                seat.act_life = seat.reader_life
                seat.timesteps.commit(seat.sent)
