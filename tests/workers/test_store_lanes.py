"""A store in a worker of its own, not in lockstep: which unrolls of a lane it takes to follow each other."""

from __future__ import annotations

import numpy as np
import pytest
from tasks import Office

import weft
from weft.core.specs import Box, Discrete, EnvSpec
from weft.runtimes.roles.store_side import StoreSide
from weft.runtimes.workers.wires import WireWriter

SPEC = EnvSpec("alike", Box((2,)), Discrete(2))
REPLAY = {"unroll": 4, "hidden": (8,), "capacity": 256, "batch": 32, "samples_per_insert": 2.0, "learning_begins": 1}


@pytest.fixture
def office():
    made = Office("(env+act)*2 | replay | learn", weft.DQN(**REPLAY, n_step=3), SPEC, envs=4, max_lag=7)
    made.open()
    yield made
    made.close()


def send(office: Office, lane: int, life: int, count: int, lost: int = 0) -> None:
    """Unrolls of a life of a lane's worker, all of whose observations look alike; ``lost`` were never sent before."""
    (wire,) = [w for w in office.blueprint.wires if w.samples and w.lane == lane]
    writer = WireWriter(wire, office.writer(wire.name), office.account, life)
    writer._earlier += lost
    for _ in range(count):
        for place in writer.reserve():
            place[...] = np.zeros_like(place)
        writer.commit(0)


def test_an_unroll_follows_the_one_before_of_its_lane_unless_another_life_or_a_loss_lies_between(office):
    """A worker that is replaced begins new episodes, and what they show may look as before."""
    (side,) = office.blueprint.sides_of("replay")
    store = StoreSide(office.task(side.worker), side)
    store.start()

    def keep() -> None:
        while store._keep():
            pass

    for lane in (0, 1):
        send(office, lane, 0, 2)
    keep()  # they take turns: lanes 0, 1, 0, 1
    send(office, 0, 1, 2)  # lane 0's worker was killed
    keep()
    send(office, 1, 0, 2, lost=1)
    keep()
    ring = store.home.state.ring
    assert np.asarray(ring.earlier)[:8].tolist() == [-1, -1, 0, 1, 2, 4, 3, 6]
    assert np.asarray(ring.continues)[:8].all(-1).tolist() == [True, True, False, False, True, False, True, False]
    assert np.asarray(ring.continues).any(-1).sum() == 4
    assert [int(ring.after[k]) for k in (0, 1, 4, 6)] == [2, 3, 5, 7]
    assert float(store.home.figures()["inserted"]) == 8 * 4 * 2
