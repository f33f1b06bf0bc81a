"""The named plans, on every graph and machine; and which of them this version executes."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.core.errors import PlanError
from weft.graph import Graph
from weft.plans import Machine, catalogue, executable, needs_workers, parse, resolve

NAMES = [name for name, *_ in catalogue()]
LAYOUTS = [name for name in NAMES if name not in ("auto", "apex")]
MACHINE = Machine(cores=8, gpus=0, cpu_devices=2)


def resolved(name, graph, machine=MACHINE, envs=12) -> str:
    return str(resolve(name, graph, machine, envs=envs, pure_env=True))


def test_the_catalogue():
    assert NAMES == ["inline", "replicated", "actors", "seed", "srl", "environments", "central", "apex", "auto"]
    assert [name for name, _, _, now in catalogue() if not now] == ["auto"]
    for name, expression, who, _ in catalogue():
        assert who
        if name != "auto":
            parse(expression)


@pytest.mark.parametrize(
    ("name", "expression"),
    [
        ("inline", "env+act+learn"),
        ("replicated", "(env+act+learn)*2"),
        ("actors", "(env+act)*6 | learn"),
        ("seed", "env*6 | act+learn"),
        ("srl", "env*6 | act | learn"),
        ("environments", "env*6 | act+learn"),
        ("central", "(env+act+grad)*6 | apply"),
    ],
)
def test_a_name_is_an_expression_with_the_machine_s_counts(loop, name, expression):
    assert resolved(name, loop) == expression
    assert resolved(f" {name} ", loop) == expression


def test_what_a_name_does_not_mention_goes_beside_learn(loop, replay_loop):
    graph = loop.insert("relabel", lambda state, unroll: (state, unroll))
    assert resolved("inline", graph) == "env+act+relabel+learn"
    assert resolved("srl", graph) == "env*6 | act | relabel+learn"
    assert resolved("central", graph) == "(env+act+relabel+grad)*6 | apply"
    assert resolved("actors", replay_loop) == "(env+act)*6 | replay+learn"
    assert resolved("apex", replay_loop) == "(env+act)*6 | replay | learn"


def test_a_name_with_several_policies(two_policies):
    assert resolved("seed", two_policies) == "env*6 | act.hiders+act.seekers+learn.hiders+learn.seekers"


@pytest.mark.parametrize(("name", "lacks"), [("apex", "replay"), ("central", "grad")])
def test_a_name_whose_fragments_the_graph_lacks(loop, replay_loop, name, lacks):
    graph = {"apex": loop, "central": replay_loop}[name]
    with pytest.raises(PlanError, match=f"has no '{lacks}'.*Nearest plan that fits: 'actors'") as caught:
        resolved(name, graph)
    assert ", ".join(graph.names) in str(caught.value)
    resolved("actors", graph)


def test_auto_comes_with_the_planner(loop):
    with pytest.raises(PlanError, match=r"comes with the planner.*Nearest plan that runs now: 'inline'"):
        resolved("auto", loop)


@given(
    st.sampled_from(LAYOUTS),
    st.builds(Machine, cores=st.integers(1, 256), gpus=st.integers(0, 16), cpu_devices=st.integers(1, 16)),
    st.integers(1, 300),
    st.booleans(),
)
@settings(deadline=None, database=None)
def test_a_name_is_never_refused_for_its_counts(loop, name, machine, envs, pure_env):
    plan = resolve(name, loop, machine, envs=envs, pure_env=pure_env)
    if len(plan.groups) == 1:
        executable(plan, loop, machine, envs=envs)
    elif machine.cores > sum(group.replicas for group in plan.groups[1:]):
        assert sum(group.replicas for group in plan.groups) <= machine.cores


def judge(text, graph, machine=MACHINE, envs=12) -> None:
    executable(resolve(text, graph, machine, envs=envs, pure_env=True), graph, machine, envs=envs)


def test_single_groups_are_executed(loop):
    judge("inline", loop)
    judge("replicated", loop)
    judge("(env+act+learn)*2@cpu", loop)
    judge("env+act+relabel+learn", loop.insert("relabel", lambda state, unroll: (state, unroll)))
    judge("(env+act+learn)*2@gpu:1-2", loop, Machine(cores=2, gpus=4))


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("gpus", [0, 1, 4])
def test_every_layout_that_is_named_is_executed(loop, name, gpus):
    judge(name, loop, Machine(cores=8, gpus=gpus))


def test_learn_that_does_not_come_apart_is_refused_where_a_plan_parts_it(loop):
    plan = resolve("(env+act+grad)*2 | apply", loop, MACHINE, envs=12, pure_env=True)
    executable(plan, loop, MACHINE, envs=12)
    whole = replace(loop.fragment("learn"), code=SimpleNamespace(splits=False))
    graph = Graph((*loop.fragments[:2], whole), loop.streams)
    with pytest.raises(PlanError, match=r"several updates in one learn call.*runs now: '\(env\+act\)\*2 \| learn'"):
        executable(plan, graph, MACHINE, envs=12)


@pytest.mark.parametrize("text", ["env+learn | act", "(env+learn)*2 | act", "env+act+apply | grad", "env | learn+act"])
def test_groups_run_in_any_combination_whose_wires_can_be_made(loop, text):
    judge(text, loop)


@pytest.mark.parametrize(
    "text",
    [
        "env*2 | act | relabel+learn",
        "env*2 | act | relabel | learn",
        "env*2 | act+relabel | learn",
        "(env+act)*2 | relabel*2 | learn",
        "env+act+relabel | learn",
        "(env+act+relabel+grad)*2 | apply",
    ],
)
def test_a_fragment_of_your_own_runs_anywhere(loop, text):
    judge(text, loop.insert("relabel", lambda state, unroll: (state, unroll)))


def test_a_fragment_of_your_own_has_a_lane_for_each_replica(loop):
    graph = loop.insert("relabel", lambda state, unroll: (state, unroll))
    with pytest.raises(PlanError) as caught:
        judge("(env+act)*2 | relabel*3 | learn", graph)
    assert "Nearest plan that runs now: '(env+act)*2 | relabel*2 | learn'" in str(caught.value)
    assert "2 replicas of env and act cannot be shared among 3 relabel" in str(caught.value)
    assert "Use 2 relabel at most." in str(caught.value)
    with pytest.raises(PlanError, match="share them among 1 act and 13 relabel"):
        judge("env*2 | act+learn | relabel*13", graph)


def test_more_replicas_than_gpus(loop):
    with pytest.raises(PlanError) as caught:
        judge("env*2 | act | learn*6@gpu", loop, Machine(cores=2, gpus=4))
    message = str(caught.value)
    assert "needs a GPU for each of the 6 replicas of 'learn*6@gpu', and JAX has 4 here" in message
    assert "write @cpu" in message
    assert "Nearest plan that runs now: 'env*2 | act | learn*4@gpu'" in message
    with pytest.raises(PlanError, match=r"JAX has 1 here.*'\(env\+act\+learn\)@gpu:0'"):
        judge("(env+act+learn)*3@gpu:0", loop, Machine(cores=2, gpus=4))
    judge("env*2 | act | learn*6@cpu", loop, Machine(cores=2, gpus=4))
    judge("(env+act)*12 | learn", loop, Machine(cores=2, gpus=4))  # actors may be many


def test_more_replicas_than_devices_are_processes(loop):
    judge("(env+act+learn)*4", loop)
    four = resolve("(env+act+learn)*4", loop, MACHINE, envs=12, pure_env=True)
    assert needs_workers(four, loop, MACHINE)
    assert not needs_workers(four, loop, Machine(cores=8, cpu_devices=4))
    assert not needs_workers(resolve("replicated", loop, MACHINE, envs=12, pure_env=True), loop, MACHINE)
    assert needs_workers(resolve("seed", loop, MACHINE, envs=12, pure_env=True), loop, Machine(cores=8, cpu_devices=4))
    host = loop.insert("mine", lambda state, unroll: (state, unroll), host=True)
    four, one = (resolve(plan, host, MACHINE, envs=12, pure_env=True) for plan in ("(env+act+mine+learn)*4", "inline"))
    assert needs_workers(four, host, Machine(cores=8, cpu_devices=4)), "host code would have all replicas' messages"
    assert not needs_workers(one, host, MACHINE)


def test_the_nearest_number_of_replicas_shares_the_environments(loop):
    with pytest.raises(PlanError, match=r"Nearest plan that runs now: '\(env\+act\+learn\)\*3'"):
        judge("(env+act+learn)*9", loop, Machine(cores=2, gpus=5), envs=9)


def test_workers_are_started_on_linux_only(loop, monkeypatch):
    monkeypatch.setattr("sys.platform", "darwin")
    judge("inline", loop)
    with pytest.raises(PlanError, match=r"on Linux only \(here: darwin\).*runs now: 'inline'"):
        judge("seed", loop)


@pytest.mark.parametrize(
    ("text", "envs", "nearest"),
    [
        ("(env+act)*3 | learn*2", 6, "(env+act)*2 | learn*2"),
        ("(env+act)*3 | learn*2", 12, "(env+act)*2 | learn*2"),
        ("(env+act)*5 | learn*2", 60, "(env+act)*4 | learn*2"),
        ("(env+act)*15 | learn*4", 240, "(env+act)*16 | learn*4"),
        ("env+act | learn*2", 8, "(env+act)*2 | learn*2"),
        ("(env+act)*2 | grad*4 | apply", 8, "(env+act)*4 | grad*4 | apply"),
        ("(env+act)*3@gpu:0-2 | learn*2", 6, "(env+act)*2@gpu:0-1 | learn*2"),
    ],
)
def test_actors_that_learners_cannot_share_are_refused_with_the_nearest_number(loop, text, envs, nearest):
    machine = Machine(cores=8, gpus=4)
    with pytest.raises(PlanError, match="cannot be shared evenly among") as caught:
        judge(text, loop, machine, envs)
    assert f"Nearest plan that runs now: '{nearest}'." in str(caught.value)
    judge(nearest, loop, machine, envs)


@given(
    st.sampled_from(["(env+act)*{} | learn*{}", "(env+act)*{} | grad*{} | apply"]),
    st.integers(1, 12),
    st.integers(1, 12),
    st.builds(Machine, cores=st.just(8), gpus=st.integers(0, 4)),
    st.integers(1, 60),
)
@settings(deadline=None, database=None)
def test_a_plan_that_is_said_to_run_now_does(loop, text, workers, learners, machine, envs):
    text = text.format(workers, learners)
    for _ in range(2):
        try:
            return judge(text, loop, machine, envs)
        except PlanError as error:
            text = str(error).partition(" runs now: '")[2].partition("'")[0] or "inline"
    raise AssertionError(f"refused too: {text}")


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("env*2 | act | learn*2", "env*2 | act.hiders+act.seekers | learn.hiders*2 | learn.seekers*2"),
        ("env*2 | (act+learn)*2", "env*2 | (act.hiders+act.seekers)*2 | learn.hiders*2 | learn.seekers*2"),
        ("(env+act+learn)*2", "(env+act.hiders+act.seekers)*2 | learn.hiders*2 | learn.seekers*2"),
    ],
)
def test_learners_in_several_processes_have_a_group_each(two_policies, text, nearest):
    """Two programs of all processes would begin in another order in each of them, and wait for each other for ever."""
    machine = Machine(cores=8)
    with pytest.raises(PlanError, match="learners that average their gradients over processes need a group each") as e:
        judge(text, two_policies, machine)
    assert f"Nearest plan that runs now: '{nearest}'." in str(e.value)
    judge(nearest, two_policies, machine)
    judge(text.replace("*2", ""), two_policies, machine)


def test_two_policies_beside_devices_of_one_process_are_one_program(two_policies):
    judge("(env+act+learn)*2", two_policies, Machine(cores=2, cpu_devices=2))
    for name in ("srl", "environments", "seed"):
        judge(name, two_policies, Machine(cores=8, gpus=4))
