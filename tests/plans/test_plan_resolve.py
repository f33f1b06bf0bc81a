"""Resolving: fragments each once, devices that exist, environments shared evenly; else why not, and what would do."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.core.errors import PlanError, UnknownName
from weft.graph import Graph
from weft.plans import Device, Group, Machine, Plan, parse, resolve

CPU = Machine(cores=8)
GPUS = Machine(cores=8, gpus=4)


def refused(plan, graph, machine=GPUS, *, envs=12, pure_env=True, **rest) -> tuple[str, str]:
    """The message of a refusal, and the nearest plan in it, which is checked to resolve to itself."""
    with pytest.raises(PlanError) as caught:
        resolve(plan, graph, machine, envs=envs, pure_env=pure_env, **rest)
    message = str(caught.value)
    found = re.search(r"Nearest plan that fits: '([^']+)'", message)
    assert found, message
    assert str(resolve(found[1], graph, machine, envs=envs, pure_env=pure_env, **rest)) == found[1]
    return message, found[1]


def resolved(plan, graph, machine=GPUS, envs=12, pure_env=True) -> str:
    return str(resolve(plan, graph, machine, envs=envs, pure_env=pure_env))


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("learn+act+env", "env+act+learn"),
        ("learn | act | env*2", "env*2 | act | learn"),
        ("env+act+grad+apply", "env+act+learn"),
        ("(env+grad+act)*4 | apply", "(env+act+grad)*4 | apply"),
        ("env | act*auto | learn", "env | act | learn"),
        ("(env+act+learn)*2@gpu:1-2", "(env+act+learn)*2@gpu:1-2"),
        ("env*3@cpu | act*4@gpu:0 | learn", "env*3@cpu | act*4@gpu:0 | learn"),
    ],
)
def test_a_plan_takes_the_graph_s_order_and_names(loop, text, result):
    assert resolved(text, loop) == result
    assert resolved(parse(text), loop) == result


def test_a_role_stands_for_all_fragments_in_it(two_policies):
    assert (
        resolved("env*4 | act | learn", two_policies) == "env*4 | act.hiders+act.seekers | learn.hiders+learn.seekers"
    )
    apart = "env | act.hiders+learn.hiders | act.seekers+learn.seekers"
    assert resolved(apart, two_policies) == apart
    assert resolved("(env+act+grad)*2 | apply", two_policies).endswith("| apply.hiders+apply.seekers")


def test_unknown_names(loop):
    with pytest.raises(UnknownName, match=r"unknown plan 'inlin'\. Did you mean 'inline'"):
        resolved("inlin", loop)
    with pytest.raises(UnknownName, match=r"unknown fragment 'acts'\. Did you mean 'act'\? .*'env\+acts \| learn'"):
        resolved("env+acts | learn", loop)
    with pytest.raises(UnknownName, match="unknown fragment 'replay'"):
        resolved(Plan((Group(("replay",)),)), loop)


def test_a_plan_s_name_takes_no_counts(loop):
    with pytest.raises(PlanError, match=r"'actors' is the name of a whole plan.*'\(env\+act\)\*N \| learn'"):
        resolved("actors*4", loop)


def test_a_fragment_left_out(loop, replay_loop):
    message, nearest = refused("env+act", loop)
    assert "no place for 'learn'" in message
    assert nearest == "env+act+learn"
    assert refused("env*2 | act | learn", replay_loop)[1] == "env*2 | act | replay+learn"
    message, nearest = refused("env+act+grad", loop)
    assert "no place for 'apply'" in message
    assert nearest == "env+act+learn"
    assert refused("env", loop)[1] == "env+act+learn"


def test_a_fragment_twice(loop):
    message, nearest = refused("env+act | act+learn", loop)
    assert "'act' is there twice" in message
    assert nearest == "env+act | learn"
    message, nearest = refused("(env+act+grad)*2 | learn", loop)
    assert "'grad' is a part of 'learn', which is there too" in message
    assert nearest == "(env+act)*2 | learn"


def test_a_gpu_where_there_is_none(loop):
    message, nearest = refused("env*2 | (act+learn)@gpu", loop, CPU)
    assert "'(act+learn)@gpu' asks for a GPU, and JAX sees none here" in message
    assert "weft[gpu]" in message
    assert nearest == "env*2 | act+learn"
    assert "does not execute" not in message


def test_a_gpu_beyond_the_last(loop):
    message, nearest = refused("env | act | learn*2@gpu:3-4", loop)
    assert "asks for gpu:3-4, and JAX sees only gpu:0-3 here" in message
    assert nearest == "env | act | learn*2@gpu:3"
    assert refused("env | act | learn@gpu:9", loop)[1] == "env | act | learn@gpu"


def test_a_host_environment_on_a_gpu(host_loop):
    names = {"environment": "CartPole-v1", "pure_alternative": "weft:CartPole-v1"}
    message, nearest = refused("(env+act+learn)@gpu", host_loop, pure_env=False, **names)
    assert "it puts env on a GPU, and 'CartPole-v1' is host code: only a JAX environment runs there" in message
    assert "'weft:CartPole-v1' is the same in JAX" in message
    assert nearest == "env | (act+learn)@gpu"
    assert "does not execute" not in message
    assert refused("env*2@gpu | act | learn", host_loop, pure_env=False)[1] == "env*2 | act | learn"


def test_a_host_environment_on_a_gpu_that_is_not_there(host_loop):
    message, nearest = refused("(env+act+learn)@gpu", host_loop, CPU, pure_env=False, environment="ALE/Pong-v5")
    assert "'ALE/Pong-v5' is host code" in message
    assert "JAX sees none" in message
    assert "same in JAX" not in message
    assert nearest == "env+act+learn"
    assert "does not execute" not in message


def test_pure_env_is_what_the_caller_says(loop):
    assert resolved("(env+act+learn)@gpu", loop) == "(env+act+learn)@gpu"
    assert "this environment is host code" in refused("(env+act+learn)@gpu", loop, pure_env=False)[0]


@pytest.mark.parametrize(
    ("text", "envs", "says", "nearest"),
    [
        (
            "(env+act)*5 | learn",
            12,
            "5 replicas of '(env+act)*5' cannot share 12 environments evenly",
            "(env+act)*4 | learn",
        ),
        ("(env+act)*5 | learn", 12, "(4 or 6 replicas can, or 15 environments)", "(env+act)*4 | learn"),
        ("env*11 | act+learn", 12, "(6 or 12 replicas can, or 22 environments)", "env*12 | act+learn"),
        ("env*40 | act+learn", 12, "(12 can, or 40 environments)", "env*12 | act+learn"),
        ("env | act | learn*5", 12, "5 replicas of 'learn*5'", "env | act | learn*4"),
        ("(env+act+grad)*8 | apply", 12, "(6 or 12 replicas can, or 16 environments)", "(env+act+grad)*6 | apply"),
        ("(env+act+learn)*2", 1, "2 replicas of it cannot share 1 environment evenly", "env+act+learn"),
        ("env | act*13 | learn", 12, "more replicas than there are environments (12)", "env | act*12 | learn"),
    ],
)
def test_environments_are_shared_evenly(loop, text, envs, says, nearest):
    message, near = refused(text, loop, envs=envs)
    assert says in message
    assert near == nearest


def test_act_may_be_shared_unevenly(loop):
    assert resolved("env | act*5 | learn", loop) == "env | act*5 | learn"


def test_params_have_one_owner(loop):
    message, nearest = refused("(env+act+grad)*2 | apply*2", loop)
    assert "replicates 'apply' apart from 'grad'" in message
    assert nearest == "(env+act+grad)*2 | apply"


def test_devices_named_for_nobody(loop):
    message, nearest = refused("env | (act+learn)@gpu:0-2", loop)
    assert "names 3 devices for 1 replica, and each replica uses one" in message
    assert nearest == "env | (act+learn)*3@gpu:0-2"
    assert refused("env | (act+learn)@gpu:0-3", loop, envs=6)[1] == "env | (act+learn)@gpu:0"
    assert refused("env+act+grad | apply@gpu:0-3", loop)[1] == "env+act+grad | apply@gpu:0"


def test_all_reasons_are_given_at_once(loop):
    message, nearest = refused("env*5 | (act+learn)@gpu:0-7", loop)
    assert "gpu:0-7" in message
    assert "5 replicas" in message
    assert nearest == "env*4 | (act+learn)*4@gpu:0-3"


def test_a_run_needs_environments(loop):
    with pytest.raises(PlanError, match="at least 1 environment, got 0"):
        resolved("inline", loop, envs=0)


def test_a_fragment_of_the_user_s_own_that_is_host_code(loop):
    graph = loop.insert("relabel", lambda state, unroll: (state, unroll))
    assert resolved("env+act | (relabel+learn)@gpu", graph) == "env+act | (relabel+learn)@gpu"
    on_host = Graph(tuple(replace(f, pure=f.name != "relabel") for f in graph.fragments), graph.streams)
    message, nearest = refused("env+act | (relabel+learn)@gpu", on_host)
    assert "puts 'relabel' on a GPU, and it is host code" in message
    assert nearest == "env+act | relabel | learn@gpu"


NAMES = st.sampled_from(["env", "act", "learn", "grad", "apply"])
DEVICES = st.sampled_from(
    [None, Device("cpu"), Device("gpu"), Device("gpu", 1), Device("gpu", 0, 3), Device("gpu", 2, 6)]
)
ANY = st.lists(
    st.builds(
        Group,
        fragments=st.lists(NAMES, min_size=1, max_size=4).map(tuple),
        replicas=st.none() | st.integers(1, 20),
        device=DEVICES,
    ),
    min_size=1,
    max_size=4,
).map(lambda groups: Plan(tuple(groups)))


@given(
    ANY,
    st.builds(Machine, cores=st.integers(1, 64), gpus=st.integers(0, 8), cpu_devices=st.integers(1, 4)),
    st.integers(1, 40),
    st.booleans(),
)
@settings(deadline=None, database=None, max_examples=400)
def test_any_plan_resolves_or_is_refused_with_one_that_does(loop, plan, machine, envs, pure_env):
    try:
        result = resolve(plan, loop, machine, envs=envs, pure_env=pure_env)
    except PlanError:
        refused(plan, loop, machine, envs=envs, pure_env=pure_env)
        return
    assert resolve(result, loop, machine, envs=envs, pure_env=pure_env) == result
    assert all(group.replicas is not None for group in result.groups)
    covered = set(result.fragments)
    assert covered in ({"env", "act", "learn"}, {"env", "act", "grad", "apply"})
