"""Blueprints: lanes in the order of environments, everyone's share of them, and the wires that join the sides."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from drafts import UNROLL, Machine, drafted, loop, same, side, two_policies
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.core.delivery import Delivery
from weft.core.errors import PlanError
from weft.core.recipe import from_recipe, to_recipe
from weft.graph.graph import Graph
from weft.graph.split import split
from weft.graph.stream import Rhythm, Sharing
from weft.runtimes.workers.layout.blueprint import Blueprint, Side

PLAIN = [
    "env*2 | act | learn",
    "env*2 | act*2 | learn*2",
    "env*4 | act*3 | learn",
    "env | act*4 | learn",
    "env*2 | act+learn",
    "env*2 | (act+learn)*2",
    "env | (act+learn)*4",
    "env+learn | act",
    "env+learn | act*2",
    "(env+learn)*2 | act",
    "env+act | learn",
    "(env+act)*2 | learn",
    "(env+act)*4 | learn*2",
    "env+act+learn",
    "(env+act+learn)*2",
    "(env+act+grad)*2 | apply",
    "env*2 | (act+grad)*2 | apply",
    "(env+act)*4 | grad*2 | apply",
    "env*2 | act | grad*2 | apply",
    "env*2 | act+apply | grad*2",
]

ON_UNROLLS = loop().insert("mine", same)
TWO_ON_UNROLLS = ON_UNROLLS.insert("second", same, host=True)
THAT_READS = loop().insert("mine", same, reads="learn")
ON_PARAMS = loop().insert("mine", same, on="params")
ON_GRADIENTS = loop().insert("mine", same, on="gradients")
TWO_POLICIES = two_policies()
LAYOUTS: list[tuple[str, Graph]] = [
    *((plan, loop()) for plan in PLAIN),
    *((plan, loop(pure_env=True)) for plan in ("env*2 | act | learn", "(env+act)*2 | learn")),
    ("env*2 | act | mine*2 | learn", ON_UNROLLS),
    ("env*2 | act*2 | mine*4 | learn*2", ON_UNROLLS),
    ("(env+act)*4 | mine*3 | learn", ON_UNROLLS),
    ("(env+act)*2 | mine+learn", ON_UNROLLS),
    ("env*2 | act+mine | learn", ON_UNROLLS),
    ("env+mine | act | learn", ON_UNROLLS),
    ("(env+act+mine)*2 | learn", ON_UNROLLS),
    ("(env+act+mine+grad)*2 | apply", ON_UNROLLS),
    ("(env+act)*2 | mine*2 | grad*2 | apply", ON_UNROLLS),
    ("(env+act)*4 | mine*2 | second | learn", TWO_ON_UNROLLS),
    ("env*2 | act | (mine+second)*2 | learn*2", TWO_ON_UNROLLS),
    ("(env+act)*2 | second | mine+learn", TWO_ON_UNROLLS),
    ("env*2 | act*2 | mine*2 | learn*2", THAT_READS),
    ("(env+act)*2 | mine+learn", THAT_READS),
    ("env*2 | act*2 | learn | mine", ON_PARAMS),
    ("env*2 | (act+mine)*2 | learn", ON_PARAMS),
    ("(env+act)*2 | learn+mine", ON_PARAMS),
    ("(env+act+grad)*2 | mine | apply", ON_GRADIENTS),
    ("(env+act+grad)*4 | mine*2 | apply", ON_GRADIENTS),
    ("(env+act)*2 | grad*2 | mine+apply", ON_GRADIENTS),
    ("env*2 | act | learn", TWO_POLICIES),
    ("env*2 | act.red*2 | act.blue | learn.red | learn.blue", TWO_POLICIES),
    ("(env+act)*2 | learn.red | learn.blue", TWO_POLICIES),
    ("env*2 | act.red+learn.red | act.blue+learn.blue", TWO_POLICIES),
    ("env*2 | act*2 | learn.red*2 | learn.blue*2", TWO_POLICIES),
    ("env+act.red | act.blue | learn", TWO_POLICIES),
]
layouts = pytest.mark.parametrize(
    ("plan", "graph"), LAYOUTS, ids=[f"{plan} of {','.join(graph.names)}" for plan, graph in LAYOUTS]
)
synchronies = pytest.mark.parametrize("lockstep", [True, False], ids=["lockstep", "lag"])


@layouts
@synchronies
def test_every_layout_holds_together(plan, graph, lockstep):
    blueprint = drafted(plan, graph=graph, lockstep=lockstep)
    check_lanes(blueprint, 8)
    check_sides(blueprint, split(graph, plan_fragments(blueprint)))
    check_wires(blueprint, split(graph, plan_fragments(blueprint)))
    assert from_recipe(json.loads(json.dumps(to_recipe(blueprint)))) == blueprint


def plan_fragments(blueprint: Blueprint) -> list[str]:
    return [name for each in blueprint.sides for name in each.fragments]


def check_lanes(blueprint: Blueprint, envs: int) -> None:
    """Every environment in one lane, in order, and all lanes of the same size."""
    rows = [i for lane in blueprint.lanes for i in range(lane.first, lane.first + lane.rows)]
    assert rows == list(range(envs))
    assert len({lane.rows for lane in blueprint.lanes}) == 1
    assert [lane.index for lane in blueprint.lanes] == list(range(len(blueprint.lanes)))


def check_sides(blueprint: Blueprint, graph: Graph) -> None:
    """Each fragment once in each replica; whoever meets lanes has a contiguous share; learners have equal ones."""
    everyone = list(range(len(blueprint.lanes)))
    assert [each.index for each in blueprint.sides] == everyone_of(blueprint.sides)
    assert [worker.index for worker in blueprint.workers] == everyone_of(blueprint.workers)
    assert sorted(i for worker in blueprint.workers for i in worker.sides) == everyone_of(blueprint.sides)
    for worker in blueprint.workers:
        assert all(blueprint.sides[s].worker == worker.index for s in worker.sides)
    for fragment in graph.fragments:
        sides = blueprint.sides_of(fragment.name)
        assert [each.rank for each in sides] == list(range(sides[0].replicas))
        assert len({each.worker for each in sides}) == len(sides)
        streams = (*graph.into(fragment.name), *graph.out_of(fragment.name))
        if any(s.sharing is Sharing.ENVIRONMENT for s in streams):
            assert [i for each in sides for i in each.lanes] == everyone, "in the order of environments"
            assert all(each.lanes for each in sides), f"{fragment.name} without environments"
            if fragment.role.computes_gradients:
                assert len({len(each.lanes) for each in sides}) == 1, "learners share evenly"
        else:
            assert not any(each.lanes for each in sides if each.fragments == (fragment.name,))
    assert {name for each in blueprint.publishing for name in each.fragments} >= set(blueprint.publishers)


def everyone_of(rows) -> list[int]:
    return list(range(len(rows)))


def check_wires(blueprint: Blueprint, graph: Graph) -> None:
    """Every stream that crosses from one side to another has its wires, each with the ends that it should have."""
    assert [wire.index for wire in blueprint.wires] == everyone_of(blueprint.wires)
    assert len({wire.name for wire in blueprint.wires}) == len(blueprint.wires)
    expected: set[int] = set()
    for stream in graph.streams:
        writers, readers = blueprint.sides_of(stream.source), blueprint.sides_of(stream.target)
        wires = [w for w in blueprint.wires if (w.source, w.stream) == (stream.source, stream.name)]
        wires = [w for w in wires if not w.readers or set(w.readers) & {each.index for each in readers}]
        expected |= {wire.index for wire in wires}
        assert {wire.writer for wire in wires} <= {each.index for each in writers}
        assert {wire.delivery for wire in wires} <= {stream.delivery}
        if stream.delivery is Delivery.LATEST:
            check_newest(blueprint, wires, writers, readers)
        elif stream.sharing is Sharing.ENVIRONMENT:
            check_by_lane(blueprint, wires, writers, readers)
            every_step = stream.rhythm is Rhythm.STEP
            assert {wire.every_step for wire in wires} <= {every_step}
            rows = blueprint.lanes[0].rows
            assert {wire.samples for wire in wires} <= {0 if every_step else UNROLL * rows}
        else:
            check_by_writer(blueprint, wires, writers, readers)
    assert expected == set(everyone_of(blueprint.wires)), "a wire that no stream of the graph asks for"


def check_by_lane(blueprint: Blueprint, wires, writers: list[Side], readers: list[Side]) -> None:
    """One wire for each lane whose writer and reader are different sides, in the order of lanes."""
    apart = []
    for lane in blueprint.lanes:
        (writer,), (reader,) = ([s for s in sides if lane.index in s.lanes] for sides in (writers, readers))
        if writer.index != reader.index:
            apart.append((lane.index, writer.index, (reader.index,)))
    assert [(wire.lane, wire.writer, wire.readers) for wire in wires] == apart


def check_by_writer(blueprint: Blueprint, wires, writers: list[Side], readers: list[Side]) -> None:
    """A wire from each replica that is not the reader itself; each reader has a contiguous share of them."""
    assert [w.lane for w in wires] == [-1] * len(wires)
    inside = {each.index for each in writers} & {each.index for each in readers}
    assert sorted([wire.writer for wire in wires] + list(inside)) == sorted(each.index for each in writers)
    ranks = [blueprint.sides[reader].rank for wire in wires for reader in wire.readers]
    assert len(ranks) == len(wires), "one reader each"
    assert ranks == sorted(ranks)
    if not inside:
        assert set(ranks) == {each.rank for each in readers}, "a reader without a writer"
        # What they carry, all together, is the environments' steps of one unroll.
        rounds = [wire.samples * wire.in_round for wire in wires]
        assert sum(rounds) == UNROLL * 8


def check_newest(blueprint: Blueprint, wires, writers: list[Side], readers: list[Side]) -> None:
    """Each replica of the reader has one wire to read, unless it is in the side that writes."""
    assert {wire.lane for wire in wires} <= {-1}
    for reader in readers:
        found = [wire for wire in wires if reader.index in wire.readers]
        own = [writer for writer in writers if writer.index == reader.index]
        assert len(found) == (0 if own else 1), reader
    for wire in wires:
        assert wire.writer not in wire.readers


COUNTS = st.integers(1, 6)


@given(
    st.sampled_from(
        [
            ("env*{} | act*{} | mine*{} | learn*{}", ON_UNROLLS),
            ("(env+act)*{} | mine*{} | learn*{}", ON_UNROLLS),
            ("(env+act)*{} | mine*{} | grad*{} | apply", ON_UNROLLS),
            ("env*{} | act*{} | (mine+learn)*{}", ON_UNROLLS),
            ("env*{} | act.red*{} | act.blue*{} | learn.red | learn.blue", TWO_POLICIES),
            ("(env+act+grad)*{} | mine*{} | apply", ON_GRADIENTS),
            ("env*{} | (act+mine)*{} | learn*{}", ON_PARAMS),
        ]
    ),
    st.lists(COUNTS, min_size=4, max_size=4),
    st.integers(1, 24),
    st.integers(1, 5),
    st.booleans(),
)
@settings(deadline=None, database=None, max_examples=200)
def test_whatever_is_not_refused_holds_together(form, counts, envs, ring, lockstep):
    """And what is refused names a plan that is not."""
    plan, graph = form
    expression = plan.format(*counts)
    try:
        blueprint = drafted(expression, envs, graph=graph, ring=ring, lockstep=lockstep)
    except PlanError as refused:
        nearest = str(refused).partition(" runs now: '")[2].partition("'")[0]
        blueprint = drafted(nearest, envs, graph=graph, ring=ring, lockstep=lockstep)
    check_lanes(blueprint, envs)
    check_sides(blueprint, split(graph, plan_fragments(blueprint)))
    for wire in blueprint.wires:
        if wire.lane >= 0:
            assert wire.lane in blueprint.sides[wire.writer].lanes
            assert all(wire.lane in blueprint.sides[reader].lanes for reader in wire.readers)


# ---- lanes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "got"), [(1, 1), (2, 2), (3, 2), (4, 4), (100, 4)])
def test_a_ring_is_cut_as_asked_as_far_as_environments_divide(asked, got):
    blueprint = drafted("env*2 | act | learn", ring=asked)
    assert len(blueprint.lanes) == 2 * got
    assert [each.lanes for each in blueprint.sides_of("env")] == [tuple(range(got)), tuple(range(got, 2 * got))]


def test_a_ring_is_cut_finer_where_learners_or_acts_need_it():
    assert len(drafted("env | act | learn*4", ring=1).lanes) == 4
    assert len(drafted("env | act*4 | learn", ring=1).lanes) == 4
    assert len(drafted("env*3 | act | learn*2", envs=6, ring=1).lanes) == 6
    assert len(drafted("env | act | mine*4 | learn", graph=ON_UNROLLS, ring=1).lanes) == 4
    assert len(drafted("env | act.red*4 | act.blue | learn", graph=TWO_POLICIES, ring=1).lanes) == 4


def test_environments_beside_all_that_acts_in_them_are_one_lane():
    assert [lane.rows for lane in drafted("(env+act)*2 | learn", ring=4).lanes] == [4, 4]
    assert [lane.rows for lane in drafted("(env+act+grad)*4 | apply", ring=4).lanes] == [2, 2, 2, 2]
    assert len(drafted("env+act | learn", graph=TWO_POLICIES, ring=4).lanes) == 1
    assert len(drafted("env+act.red | act.blue | learn", graph=TWO_POLICIES, ring=4).lanes) == 4


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


# ---- sides ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "graph", "sides"),
    [
        ("env*2 | act+learn", loop(), ["env-0", "env-1", "act-0", "learn-0"]),
        ("env+act+learn", loop(), ["env+act-0", "learn-0"]),
        ("env+learn | act", loop(), ["env-0", "learn-0", "act-0"]),
        ("(env+act)*2 | mine+learn", ON_UNROLLS, ["env+act-0", "env+act-1", "mine+learn-0"]),
        ("(env+act+mine)*2 | learn", ON_UNROLLS, ["env+act-0", "mine-0", "env+act-1", "mine-1", "learn-0"]),
        ("env+act | mine+second+learn", TWO_ON_UNROLLS, ["env+act-0", "mine-0", "second-0", "learn-0"]),
        ("env+act | second | mine+learn", TWO_ON_UNROLLS, ["env+act-0", "mine-0", "learn-0", "second-0"]),
        ("env+act | mine+learn", THAT_READS, ["env+act-0", "mine+learn-0"]),
        ("env+act | grad | mine+apply", ON_GRADIENTS, ["env+act-0", "grad-0", "mine-0", "apply-0"]),
        ("env+act | learn", TWO_POLICIES, ["env+act.red+act.blue-0", "learn.red-0", "learn.blue-0"]),
        ("env+act.red | act.blue | learn.red+learn.blue", TWO_POLICIES, None),
    ],
)
def test_what_of_a_group_is_one_side(plan, graph, sides):
    """Environments with all their inference, and what absorbs with the pure maps whose messages all end in it."""
    found = [each.name for each in drafted(plan, graph=graph).sides]
    assert found == (sides or ["env-0", "act.red-0", "act.blue-0", "learn.red-0", "learn.blue-0"])


def test_a_side_is_run_by_the_role_that_its_fragments_share():
    roles = {each.stage: each.role for each in drafted("(env+act)*2 | mine+learn", graph=ON_UNROLLS).sides}
    assert roles == {"env+act": "step", "mine+learn": "learn"}
    roles = {each.stage: each.role for each in drafted("env+act | mine+grad | apply", graph=ON_UNROLLS).sides}
    assert roles == {"env+act": "step", "mine+grad": "grad", "apply": "apply"}


def test_learners_in_several_workers_are_one_program_and_gradients_are_not():
    blueprint = drafted("env*2 | act | learn*2")
    learning = {each.worker for each in blueprint.sides_of("learn")}
    for worker in blueprint.workers:
        assert blueprint.together(worker.index) == (learning if worker.index in learning else set())
    assert not any(each.together for each in drafted("(env+act+grad)*2 | apply").sides)
    assert not any(each.together for each in drafted("env*2 | act | learn").sides)


def test_each_learner_is_a_program_of_its_own():
    blueprint = drafted("env*2 | act | learn.red*2 | learn.blue*2", graph=TWO_POLICIES)
    red, blue = ({each.worker for each in blueprint.sides_of(f"learn.{team}")} for team in ("red", "blue"))
    assert blueprint.together(min(red)) == red
    assert blueprint.together(min(blue)) == blue
    assert set(blueprint.publishing_workers()) == red | blue


def test_which_sides_are_saved():
    def saving(blueprint):
        return {blueprint.sides[index].name for index in blueprint.saving()}

    everything = {"env-0", "env-1", "act-0", "mine-0", "learn-0"}
    assert saving(drafted("env*2 | act | mine | learn", graph=ON_UNROLLS, lockstep=True)) == everything
    assert saving(drafted("env*2 | act | mine | learn", graph=ON_UNROLLS)) == {"mine-0", "learn-0"}


def test_what_only_hands_samples_on_is_in_transit():
    def transit(blueprint):
        return [blueprint.sides[index].stage for index in blueprint.transit]

    assert transit(drafted("env*2 | act | learn")) == []
    assert transit(drafted("env*2 | act | mine*2 | learn", graph=ON_UNROLLS)) == ["mine", "mine"]
    assert transit(drafted("(env+act)*2 | mine+learn", graph=ON_UNROLLS)) == []
    assert transit(drafted("(env+act+grad)*2 | mine | apply", graph=ON_GRADIENTS)) == ["grad", "grad", "mine"]
    assert transit(drafted("env*2 | act | learn | mine", graph=ON_PARAMS)) == []


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


def test_host_code_has_no_accelerator():
    blueprint = drafted("(env+act)*2 | second*2 | mine+learn", graph=TWO_ON_UNROLLS, machine=Machine(cores=8, gpus=2))
    assert {w.name: w.device for w in blueprint.workers} == {
        "env+act-0": "gpu:0",
        "env+act-1": "gpu:1",
        "mine+learn-0": "gpu:0",
        "second-0": "cpu",
        "second-1": "cpu",
    }


# ---- wires ----------------------------------------------------------------------------------------------------------


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


def test_a_stream_with_maps_on_it_has_wires_of_each_leg():
    blueprint = drafted("(env+act)*2 | mine*2 | second | learn", graph=TWO_ON_UNROLLS)
    by_source = {}
    for wire in blueprint.wires:
        if wire.stream == "unroll":
            by_source.setdefault(wire.source, []).append(wire)
    assert list(by_source) == ["act", "mine", "second"]
    for (_, before), (source, after) in pairwise(by_source.items()):
        assert [wire.readers for wire in before] == [(wire.writer,) for wire in after]
        assert [wire.name for wire in after] == [f"unroll.{source}/0", f"unroll.{source}/1"]


def test_in_lockstep_nobody_runs_ahead_and_otherwise_by_max_lag():
    def ahead(blueprint):
        return {wire.capacity for wire in blueprint.wires if wire.stream == "unroll"}

    assert ahead(drafted("env*2 | act | learn", lockstep=True, max_lag=3)) == {1}
    assert ahead(drafted("env*2 | act | learn", max_lag=0)) == {1}
    assert ahead(drafted("env*2 | act | learn", max_lag=3)) == {4}
    assert ahead(drafted("env*2 | act | mine | learn", graph=ON_UNROLLS, max_lag=3)) == {4}


def test_where_gradients_are_applied_singly_each_is_a_version():
    def lags(plan, graph=None, **manner):
        return {w.max_lag for w in drafted(plan, graph=graph, **manner).wires if w.samples}

    assert lags("(env+act+grad)*4 | apply", max_lag=1) == {7}
    assert lags("(env+act+grad)*4 | apply", max_lag=0) == {3}
    assert lags("(env+act+grad)*4 | apply", lockstep=True) == {0}
    assert lags("(env+act)*4 | learn", max_lag=1) == {1}
    assert lags("(env+act)*4 | mine | learn", ON_UNROLLS, max_lag=1) == {1}
    assert lags("(env+act)*4 | mine | grad*2 | apply", ON_UNROLLS, max_lag=1) == {3}
    assert lags("(env+act+grad)*4 | mine | apply", ON_GRADIENTS, max_lag=1) == {7}


def test_gradients_go_to_the_one_apply_and_params_from_it_to_all():
    blueprint = drafted("(env+act+grad)*2 | apply")
    apply = side(blueprint, "apply")
    assert blueprint.publishing == [apply]
    for grad in blueprint.sides_of("grad"):
        wire = blueprint.wire(f"gradients/{grad.rank}")
        assert (wire.writer, wire.readers) == (grad.index, (apply.index,))
        assert wire.samples == 4 * UNROLL, "those of the unrolls that it was computed from"
    params = blueprint.wire("params")
    assert params.writer == apply.index
    assert {blueprint.sides[r].name for r in params.readers} == {"env+act-0", "env+act-1", "grad-0", "grad-1"}


def test_a_map_of_gradients_hands_on_as_many_in_a_round_as_it_gets():
    blueprint = drafted("(env+act+grad)*4 | mine*2 | apply", graph=ON_GRADIENTS, lockstep=True)
    handed = [w for w in blueprint.wires if w.source == "mine"]
    assert [(w.in_round, w.samples) for w in handed] == [(2, 2 * UNROLL), (2, 2 * UNROLL)]


def test_params_pass_the_map_that_is_on_them():
    blueprint = drafted("env*2 | act*2 | learn | mine", graph=ON_PARAMS)
    published, passed = blueprint.wire("params"), blueprint.wire("params.mine")
    assert published.readers == (side(blueprint, "mine").index,)
    assert (passed.writer, passed.readers) == (
        side(blueprint, "mine").index,
        tuple(each.index for each in blueprint.sides_of("act")),
    )
    beside = drafted("env*2 | (act+mine)*2 | learn", graph=ON_PARAMS)
    for rank in range(2):
        wire = beside.wire(f"params.mine/{rank}")
        assert wire.readers == (side(beside, "act", rank).index,), "an act reads the map of its own worker"
        assert wire.scheme == "inproc"
