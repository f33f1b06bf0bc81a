"""A worker's part of a blueprint: all that it asks for, and no more with ten times as many others."""

from __future__ import annotations

import json

import pytest
from drafts import drafted

from weft.core.recipe import from_recipe, to_recipe
from weft.runtimes.workers.layout.blueprint import Blueprint

PLANS = ["env*4 | act*2 | learn", "(env+act)*4 | learn", "env*2 | act+learn", "env*4 | act | grad*2 | apply"]


def told(blueprint: Blueprint, worker: int) -> Blueprint:
    """The part as it comes to the worker."""
    part: Blueprint = from_recipe(json.loads(json.dumps(to_recipe(blueprint.for_worker(worker)))))
    return part


@pytest.mark.parametrize("channel", ["shm", "tcp"])
@pytest.mark.parametrize("plan", PLANS)
def test_a_part_answers_as_the_whole(plan: str, channel: str) -> None:
    whole = drafted(plan, channel=channel)
    for worker in whole.workers:
        part = told(whole, worker.index)
        assert part.workers[worker.index] == worker
        assert {name for side in part.sides for name in side.fragments} == {
            name for side in whole.sides for name in side.fragments
        }
        assert (len(part.sides), len(part.wires), len(part.lanes)) == (
            len(whole.sides),
            len(whole.wires),
            len(whole.lanes),
        )
        for index in worker.sides:
            side = whole.sides[index]
            assert part.sides[index] == side
            assert part.out_of(index) == whole.out_of(index)
            assert [w.index for w in part.into(index)] == [w.index for w in whole.into(index)]
            assert all(part.lanes[lane] == whole.lanes[lane] for lane in (0, *side.lanes))
            for wire in (*part.into(index), *part.out_of(index)):
                assert all(part.sides[end].worker == whole.sides[end].worker for end in (wire.writer, *wire.readers))
                assert part.wire(wire.name) == wire == part.wires[wire.index]
                if wire.slab >= 0 and wire.writer == index:
                    assert part.wires[wire.slab] == whole.wires[wire.slab]


def test_what_is_not_in_a_part() -> None:
    part = told(drafted("env*4 | act*2 | learn"), 0)
    with pytest.raises(IndexError, match="number 1 is not in this worker's part"):
        part.workers[1]


@pytest.mark.parametrize("plan", ["env*{} | act*2 | learn", "(env+act)*{} | learn"])
def test_a_part_does_not_grow_with_the_others(plan: str) -> None:
    few, many = (
        len(json.dumps(to_recipe(drafted(plan.format(n), envs=n, channel="tcp").for_worker(0)))) for n in (20, 200)
    )
    assert many < 1.1 * few


def test_one_listener_for_all_that_a_worker_reads() -> None:
    blueprint = drafted("env*4 | act*2 | learn", channel="tcp")
    groups = blueprint.listeners()
    assert sorted(name for names in groups for name in names) == sorted(wire.name for wire in blueprint.wires)
    home = {wire.name: blueprint.sides[wire.readers[0]].worker for wire in blueprint.wires}
    for names in groups:
        assert len({(home[name], name.partition("/")[0]) for name in names}) == 1
    assert sum(len(names) for names in groups if names[0].startswith("unroll")) == len(blueprint.lanes)
    assert len([names for names in groups if names[0].startswith("unroll")]) == 1
