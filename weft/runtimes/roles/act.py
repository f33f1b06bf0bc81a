"""The role of inference: timesteps and params in, actions out at every step, and an unroll every T steps.

Apart from its environments it is a side of its own: it takes whatever lanes are ready, up to all of them, and never
waits for stragglers; batches are padded to a few sizes so that nothing is compiled twice. Where synchrony wants whole
batches it waits for all, so that every plan computes the same ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.runtimes.hosted.rolling import LaneCheckpoint, bring_back, kept_rows
from weft.runtimes.roles.act_lane import LaneState
from weft.runtimes.roles.act_side import ActSide
from weft.runtimes.workers.acting import ActingContext
from weft.runtimes.workers.counting.account import OfWire
from weft.runtimes.workers.episode_reports import EpisodeReports
from weft.runtimes.workers.lane_checkpoint import from_words, lane_schema
from weft.runtimes.workers.layout.blueprint import Lane, Side

if TYPE_CHECKING:
    from weft.runtimes.workers.wiring import Task


class ActRole:
    """How inference runs apart from its environments. Together with them it is part of their side."""

    def side(self, task: Task, side: Side) -> ActSide:
        """Serves the lanes of its share."""
        (actor,) = task.actors(side)
        acting = ActingContext(task, side, actor, each_step=True)
        lanes: list[LaneState] = []
        for index in side.lanes:
            lane = task.blueprint.lanes[index]
            (timesteps,) = [w for w in task.blueprint.into(side.index) if w.lane == index and w.every_step]
            (actions,) = [w for w in task.blueprint.out_of(side.index) if w.lane == index and w.every_step]
            task.account.wires[timesteps.index][OfWire.READER_LIFE] = task.life
            reader = task.reader(timesteps, side)
            reader.note(task.life)
            ends = reader, task.writer(actions), task.unroll_writer(side, actor.name, index)
            words, in_place = task.account.wires[actions.index], timesteps.slab >= 0
            state = LaneState(acting, *ends, words, number=len(lanes), in_place=in_place)
            state.stand(_saved_lane(task, acting, lane))
            lanes.append(state)
        reports = EpisodeReports(acting.context.link, task.blueprint_acts, always=acting.synchrony.in_order)
        readers = {reader for w in task.blueprint.out_of(side.index) if w.samples for reader in w.readers}
        here = all(task.blueprint.sides[reader].worker == side.worker for reader in readers)
        return ActSide(acting, lanes, reports, task.left if here else None)


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
