"""Blueprints: lanes in the order of environments, everyone's share of them, and the wires that join the sides."""

from __future__ import annotations

import json

import pytest
from drafts import Machine, drafted

from weft.core.delivery import Delivery
from weft.core.errors import PlanError
from weft.core.recipe import from_recipe, to_recipe

LAYOUTS = [
    "env*2 | act | learn",
    "env*2 | act*2 | learn*2",
    "env*4 | act*3 | learn",
    "env | act*4 | learn",
    "env*2 | act+learn",
    "env*2 | (act+learn)*2",
    "env | (act+learn)*4",
    "(env+act)*2 | learn",
    "(env+act)*4 | learn*2",
    "(env+act+learn)*2",
    "(env+act+grad)*2 | apply",
    "env*2 | (act+grad)*2 | apply",
    "(env+act)*4 | grad*2 | apply",
    "env*2 | act | grad*2 | apply",
]


@pytest.mark.parametrize("plan", LAYOUTS)
@pytest.mark.parametrize("lockstep", [True, False])
def test_every_layout_holds_together(plan, lockstep):
    """Every environment in one lane, every lane with one of each role, every learner with an equal share."""
    blueprint = drafted(plan, lockstep=lockstep)
    rows = [i for lane in blueprint.lanes for i in range(lane.first, lane.first + lane.rows)]
    assert rows == list(range(8))
    assert len({lane.rows for lane in blueprint.lanes}) == 1
    assert [lane.index for lane in blueprint.lanes] == list(range(len(blueprint.lanes)))
    everyone = list(range(len(blueprint.lanes)))
    acting = [*blueprint.kind("act"), *blueprint.kind("actor")]
    assert sorted(i for side in acting for i in side.lanes) == everyone
    assert all(side.lanes for side in acting), "an act without environments"
    learning = blueprint.kind("learn") or blueprint.kind("grad")
    assert len(learning) == blueprint.learners
    assert [i for side in learning for i in side.lanes] == everyone, "learners in the order of environments"
    assert {len(side.lanes) for side in learning} == {blueprint.pieces}
    for lane in blueprint.lanes:
        assert lane.index in learning[lane.learner].lanes
        unroll = blueprint.wire(f"unroll/{lane.index}")
        assert lane.index in blueprint.sides[unroll.writer].lanes
        assert unroll.readers == (learning[lane.learner].index,)
    for worker in blueprint.workers:
        assert all(blueprint.sides[s].worker == worker.index for s in worker.sides)
    assert [side.index for side in blueprint.sides] == list(range(len(blueprint.sides)))
    params = blueprint.wire("params")
    assert params.delivery is Delivery.LATEST
    assert set(params.readers) >= {side.index for side in acting}
    assert from_recipe(json.loads(json.dumps(to_recipe(blueprint)))) == blueprint


@pytest.mark.parametrize(("asked", "got"), [(1, 1), (2, 2), (3, 2), (4, 4), (100, 4)])
def test_a_ring_is_cut_as_asked_as_far_as_environments_divide(asked, got):
    blueprint = drafted("env*2 | act | learn", ring=asked)
    assert len(blueprint.lanes) == 2 * got
    assert [side.lanes for side in blueprint.kind("env")] == [tuple(range(got)), tuple(range(got, 2 * got))]


def test_a_ring_is_cut_finer_where_learners_or_acts_need_it():
    assert len(drafted("env | act | learn*4", ring=1).lanes) == 4
    assert len(drafted("env | act*4 | learn", ring=1).lanes) == 4
    assert len(drafted("env*3 | act | learn*2", envs=6, ring=1).lanes) == 6


def test_environments_beside_act_are_one_lane():
    assert [lane.rows for lane in drafted("(env+act)*2 | learn", ring=4).lanes] == [4, 4]
    assert [lane.rows for lane in drafted("(env+act+grad)*4 | apply", ring=4).lanes] == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("plan", "envs", "reason", "nearest"),
    [
        ("env*3 | act | learn*2", 3, "share them among 1 act and 2 learn in whole slices", "env*3 | act | learn"),
        ("env | act | learn*3", 8, "share them among 1 act and 3 learn", "env | act | learn*2"),
        ("env*2 | act*3 | learn", 2, "share them among 3 act", "env*2 | act*2 | learn"),
        ("env*3 | (act+learn)*4", 4, "share them among 4 act and 4 learn", "env*2 | (act+learn)*4"),
        ("env+act | learn*2", 8, "1 replica of env and act cannot be shared evenly", "(env+act)*2 | learn*2"),
        ("(env+act)*3 | learn*2", 6, "3 replicas of env and act cannot be shared evenly", "(env+act)*2 | learn*2"),
        ("(env+act)*2 | grad*4 | apply", 8, "evenly among 4 grad", "(env+act)*4 | grad*4 | apply"),
    ],
)
def test_lanes_that_cannot_be_shared_out_are_refused(plan, envs, reason, nearest):
    with pytest.raises(PlanError) as caught:
        drafted(plan, envs)
    message = str(caught.value)
    assert plan in message
    assert reason in message
    assert "Use a" in message, "it does not say what to do"
    assert message.endswith(f"Nearest plan that runs now: '{nearest}'.")
    assert drafted(nearest, envs).lanes


def test_wires_between_workers_are_channels_and_within_one_are_in_memory():
    blueprint = drafted("env*2 | act+learn", channel="tcp")
    schemes = {wire.stream: wire.scheme for wire in blueprint.wires}
    # Unrolls too are within one worker there, but their counts must outlive it: the ledger is made of them.
    assert schemes == {"timestep": "tcp", "action": "tcp", "unroll": "shm", "params": "inproc"}
    apart = {wire.stream: wire.scheme for wire in drafted("env | act | learn").wires}
    assert apart == {"timestep": "shm", "action": "shm", "unroll": "shm", "params": "shm"}
    several = drafted("env*2 | (act+learn)*2")
    assert several.wire("params").scheme == "shm", "the second act reads the first learner's params"
    assert {wire.scheme for wire in drafted("(env+act)*2 | learn", channel="tcp").wires} == {"tcp"}


def test_in_lockstep_nobody_runs_ahead_and_otherwise_by_max_lag():
    def ahead(blueprint):
        return {wire.capacity for wire in blueprint.wires if wire.stream == "unroll"}

    assert ahead(drafted("env*2 | act | learn", lockstep=True, max_lag=3)) == {1}
    assert ahead(drafted("env*2 | act | learn", max_lag=0)) == {1}
    assert ahead(drafted("env*2 | act | learn", max_lag=3)) == {4}


def test_where_gradients_are_applied_singly_each_is_a_version():
    assert drafted("(env+act+grad)*4 | apply", max_lag=1).max_lag == 7
    assert drafted("(env+act+grad)*4 | apply", max_lag=0).max_lag == 3
    assert drafted("(env+act+grad)*4 | apply", max_lag=1, lockstep=True).max_lag == 1
    assert drafted("(env+act)*4 | learn", max_lag=1).max_lag == 1


def test_gradients_go_to_the_one_apply_and_params_from_it_to_all():
    blueprint = drafted("(env+act+grad)*2 | apply")
    (apply,) = blueprint.kind("apply")
    assert blueprint.central
    for grad in blueprint.kind("grad"):
        wire = blueprint.wire(f"gradients/{grad.rank}")
        assert (wire.writer, wire.readers) == (grad.index, (apply.index,))
    params = blueprint.wire("params")
    assert params.writer == apply.index
    assert {blueprint.sides[r].name for r in params.readers} == {"actor-0", "actor-1", "grad-0", "grad-1"}


def test_env_workers_load_no_jax_unless_their_environment_is_in_jax():
    by_name = {worker.name: worker for worker in drafted("env*2 | act | learn").workers}
    assert {name: worker.loads_jax for name, worker in by_name.items()} == {
        "env-0": False,
        "env-1": False,
        "act-0": True,
        "learn-0": True,
    }
    assert all(worker.loads_jax for worker in drafted("env*2 | act | learn", pure_env=True).workers)
    assert [w.name for w in drafted("(env+act)*2 | learn").workers] == ["env+act-0", "env+act-1", "learn-0"]


@pytest.mark.parametrize(
    ("plan", "gpus", "devices"),
    [
        ("env*2 | act | learn", 0, ["cpu", "cpu", "cpu", "cpu"]),
        ("env*2 | act | learn", 1, ["cpu", "cpu", "gpu:0", "gpu:0"]),
        ("env*2 | act@gpu:1 | learn@gpu:0", 2, ["cpu", "cpu", "gpu:1", "gpu:0"]),
        ("env*2 | act@cpu | learn*2@gpu:0-1", 2, ["cpu", "cpu", "cpu", "gpu:0", "gpu:1"]),
        ("(env+act)*2 | learn", 1, ["cpu", "cpu", "gpu:0"]),
        ("(env+act)*2 | learn", 2, ["gpu:0", "gpu:1", "gpu:0"]),
        ("(env+act)*2@gpu:0 | learn", 2, ["gpu:0", "gpu:0", "gpu:0"]),
    ],
)
def test_where_workers_compute(plan, gpus, devices):
    blueprint = drafted(plan, machine=Machine(cores=8, gpus=gpus))
    assert [worker.device for worker in blueprint.workers] == devices
