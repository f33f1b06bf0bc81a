"""The wires of a store in a worker of its own: unrolls by lane, what is drawn by shard, what is told to each shard."""

from __future__ import annotations

import pytest
from tasks import Office

import weft
from weft.core.specs import Box, Discrete, EnvSpec

SPEC = EnvSpec("alone", Box((2,)), Discrete(2))
REPLAY = {"unroll": 4, "hidden": (8,), "capacity": 256, "batch": 32, "learning_begins": 40}


def office(plan: str, *, lockstep: bool = False, ratio: float = 12.0, learners: int = 1, **fields) -> Office:
    algorithm = weft.DQN(**REPLAY, samples_per_insert=ratio, **fields)
    return Office(plan, algorithm, SPEC, envs=8, lockstep=lockstep, learners=learners)


def test_each_lane_has_one_shard_and_each_shard_its_own_way_to_learn_and_back():
    made = office("(env+act)*4 | replay*2 | learn", prioritised=True)
    blueprint = made.blueprint
    shards, (learn,) = blueprint.sides_of("replay"), blueprint.sides_of("learn")
    assert [side.lanes for side in shards] == [(0, 1), (2, 3)]
    assert all(side.shards == ("replay",) for side in shards)
    for side in shards:
        into, outof = blueprint.into(side.index), blueprint.out_of(side.index)
        assert [wire.lane for wire in into if wire.samples] == list(side.lanes)
        (drawn,), (told,) = [w for w in outof if w.drawn], [w for w in into if w.feedback]
        assert (drawn.readers, drawn.samples) == ((learn.index,), 0)
        assert (told.writer, told.samples) == (learn.index, 0)
        assert told.capacity > drawn.capacity  # learn never waits
        replay = made.schemas.graph_of(side).fragment("replay").code
        assert (replay.capacity, replay.begin) == (128, 20)
    assert blueprint.transit == ()
    assert {blueprint.workers[side.worker].device for side in shards} == {"cpu"}


@pytest.mark.parametrize(
    ("ratio", "fields", "lockstep", "batches"),
    [
        (12.0, {}, False, 6),  # 12 batches for an unroll: the most of its divisors that is not above 8
        (16.0, {}, False, 8),
        (7.0, {}, False, 7),
        (11.0, {}, False, 1),
        (16.0, {}, True, 8),
        (16.0, {"prioritised": True}, False, 8),
        (16.0, {"prioritised": True}, True, 1),  # it is told of each before it draws the next
    ],
)
def test_several_batches_are_drawn_at_a_time(ratio, fields, lockstep, batches):
    made = office("(env+act)*2 | replay | learn", ratio=ratio, lockstep=lockstep, **fields)
    (wire,) = [w for w in made.blueprint.wires if w.drawn]
    assert wire.batches == batches
    assert made.schemas.form(wire).schema.reward.shape == (batches, 32)
    assert all(w.batches == batches for w in made.blueprint.wires if w.feedback)


@pytest.mark.parametrize(
    ("plan", "lanes", "readers", "capacity", "workers"),
    [
        ("(env+act)*4 | replay*2 | learn*2", [(0, 1), (2, 3)], [0, 1], 128, 2),
        ("(env+act)*4 | replay | learn*2", [(0, 1), (2, 3)], [0, 1], 128, 1),
        ("(env+act)*4 | replay*4 | learn*2", [(0,), (1,), (2,), (3,)], [0, 0, 1, 1], 64, 4),
    ],
)
def test_each_of_several_learners_has_shards_of_its_own(plan, lanes, readers, capacity, workers):
    made = office(plan, learners=2, prioritised=True)
    blueprint = made.blueprint
    shards, learning = blueprint.sides_of("replay"), blueprint.sides_of("learn")
    assert [side.lanes for side in shards] == lanes
    assert [side.state_name("replay") for side in shards] == [f"replay-{k}" for k in range(len(lanes))]
    assert len({side.worker for side in shards}) == workers
    for side, reader in zip(shards, readers, strict=True):
        (drawn,) = [w for w in blueprint.out_of(side.index) if w.drawn]
        (told,) = [w for w in blueprint.into(side.index) if w.feedback]
        assert drawn.readers == (told.writer,) == (learning[reader].index,)
        assert made.schemas.form(drawn).schema.reward.shape[1:] == (16,)  # its part of a batch of 32
        assert made.schemas.graph_of(side).fragment("replay").code.capacity == capacity
    assert all(side.together and not side.shards for side in learning)


def test_beside_their_learners_stores_are_shards_and_what_learns_is_not():
    blueprint = office("(env+act)*4 | (replay+learn)*2", learners=2).blueprint
    sides = blueprint.sides_of("learn")
    assert [(side.state_name("replay"), side.state_name("learn")) for side in sides] == [
        ("replay-0", "learn"),
        ("replay-1", "learn"),
    ]
