"""Where a store may run: beside its learners, or in a group that has none, in as many shards as there are lanes."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import weft
from weft.core.errors import PlanError
from weft.core.specs import Box, Discrete, EnvSpec, Spec
from weft.plans import Machine, executable, resolve
from weft.plans.rules import one_state

ENVS = 8
DQN = weft.DQN(unroll=4, capacity=256, batch=32, samples_per_insert=4.0, learning_begins=1, prioritised=True)
GRAPH = DQN.bind(Spec(EnvSpec("alone", Box((2,)), Discrete(2)), ENVS, 10, 40)).graph()
MACHINE = Machine(cores=8)


def refused(plan: str, graph: weft.Graph = GRAPH, *, lockstep: bool = False) -> str:
    with pytest.raises(PlanError) as caught:
        runs(plan, graph, lockstep=lockstep)
    return str(caught.value)


def runs(plan: str, graph: weft.Graph = GRAPH, *, lockstep: bool = False) -> str:
    resolved = resolve(plan, graph, MACHINE, envs=ENVS, pure_env=True)
    executable(resolved, graph, MACHINE, envs=ENVS)
    if lockstep:
        one_state(resolved, graph)
    return str(resolved)


@pytest.mark.parametrize(
    "plan",
    [
        "env+act+replay+learn",
        "(env+act)*2 | replay+learn",
        "(env+act)*2 | replay | learn",
        "(env+act)*4 | replay*3 | learn",
        "(env+act+replay)*2 | learn",
        "env*2 | act+replay | learn",
        "env*2 | act*2 | replay*2 | learn",
        "env+act+learn | replay",
        "(env+act+replay+learn)*2",
        "(env+act)*2 | (replay+learn)*2",
        "(env+act)*2 | replay | learn*2",
        "(env+act)*4 | replay*4 | learn*2",
        "(env+act)*4 | replay*2 | learn*4",
        "(env+act+learn)*2 | replay",
    ],
)
def test_beside_its_learners_or_apart_from_them(plan):
    executable(resolve(plan, GRAPH, MACHINE, envs=ENVS, pure_env=True), GRAPH, MACHINE, envs=ENVS)


def test_counts_that_the_machine_fills_are_one():
    assert runs("apex") == "(env+act)*4 | replay | learn"
    assert runs("(env+act)*2 | replay*R | learn") == "(env+act)*2 | replay | learn"
    assert runs("replicated") == "env+act+replay+learn"


def test_each_learner_has_as_many_shards_as_the_others():
    message = refused("(env+act)*4 | replay*3 | learn*2")
    assert "has 3 of 'replay' and 2 of what learns from it" in message
    assert "Nearest plan that runs now: '(env+act)*4 | replay*2 | learn*2'" in message
    assert runs("(env+act)*4 | replay*2 | learn*2")


def test_what_is_drawn_goes_straight_to_its_learner():
    pure = GRAPH.insert("clip", lambda state, batch: (state, batch._replace(reward=jnp.sign(batch.reward))), on="batch")
    assert runs("(env+act)*2 | replay | clip+learn", pure)
    message = refused("(env+act)*2 | replay+clip | learn", pure)
    assert "parts 'clip' from 'learn'" in message
    assert "'(env+act)*2 | replay+clip+learn'" in message
    host = GRAPH.insert("clip", lambda state, batch: (state, batch), on="batch", host=True)
    assert "'clip', which is host code on what it draws" in refused("(env+act)*2 | replay | clip+learn", host)
    message = refused("(env+act)*2 | (replay+clip+learn)*2", host)
    assert "replicates 'replay' beside 'clip', which is host code" in message
    assert "'(env+act)*2 | replay+clip+learn'" in message


def test_a_shard_has_a_lane_at_least():
    assert "'(env+act)*2 | replay*2 | learn'" in refused("(env+act)*2 | replay*4 | learn")


def test_in_lockstep_there_is_one_shard_for_each_learner():
    assert runs("(env+act)*2 | replay | learn", lockstep=True)
    assert runs("(env+act)*2 | replay | learn*2", lockstep=True)
    assert runs("(env+act)*2 | replay*2 | learn*2", lockstep=True)
    assert "in lockstep" in refused("(env+act)*4 | replay*4 | learn*2", lockstep=True)
    message = refused("(env+act)*2 | replay*2 | learn", lockstep=True)
    assert "replicates 'replay', which has a state, and in lockstep" in message
    assert "'(env+act)*2 | replay | learn'" in message
