"""Several learners behind a replay, in one process: each has a shard, and together they learn from one batch."""

from __future__ import annotations

import copy
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import farthest, same, train_state

import weft
from weft.core.errors import ConfigError
from weft.core.replicas import replica_axis
from weft.envs.builtin import load
from weft.graph.store import of_learners
from weft.runtimes.flow import Flow
from weft.runtimes.loop.train import make_engine
from weft.runtimes.prepare.config import RunConfig, prepare

SIZES = {"unroll": 4, "hidden": (8,), "batch": 16, "capacity": 512, "learning_begins": 64, "samples_per_insert": 1.0}
PLAN = "(env+act+replay+learn)*2"


def started(environment="weft:CartPole-v1", plan=PLAN, algorithm=None, **fields):
    algorithm = algorithm or weft.DQN(**{**SIZES, **fields})
    config = RunConfig(algorithm, environment, plan=plan, envs=8, steps=8 * 4 * 60, vector="each")
    engine = make_engine(prepare(config))
    engine.start()
    return engine


def learned(engine, calls):
    made = 0
    while made < calls:
        made += engine.advance(calls - made)().learn_steps
    return train_state(engine)


def held(engine):
    return jax.device_get(engine.saved()[0].fragments["replay"])


@pytest.mark.parametrize(
    ("environment", "fields"),
    [
        pytest.param("weft:CartPole-v1", {}, marks=pytest.mark.slow),
        ("weft:CartPole-v1", {"prioritised": True}),
        pytest.param("CartPole-v1", {"prioritised": True}, marks=pytest.mark.slow),
    ],
)
def test_each_learner_keeps_its_environments_and_all_have_the_same_params(environment, fields):
    engine = started(environment, **fields)
    state = learned(engine, 20)
    for leaf in jax.tree.leaves(state.params):
        first, second = (np.asarray(shard.data) for shard in leaf.addressable_shards)
        np.testing.assert_array_equal(first, second)
    ring = held(engine).ring
    assert ring.reward.shape == (2, 16, 4, 4)  # two shards of 256 steps, for 4 of the 8 environments
    assert ring.inserted[0] == ring.inserted[1] > 10
    count = min(int(ring.inserted[0]), 16)
    assert not np.array_equal(ring.observation[0, :count], ring.observation[1, :count])
    drawn = held(engine).key
    assert not np.array_equal(jax.random.key_data(drawn[0]), jax.random.key_data(drawn[1]))
    engine.close()


@pytest.mark.slow
def test_together_they_learn_from_one_batch():
    """One call of two learners is one call on both halves of the batch, put side by side."""
    env, whole = load("CartPole-v1"), weft.DQN(**{**SIZES, "samples_per_insert": 1.0}, double=False)
    spec = weft.Spec(env.spec, 4, 100, 1000, replicas=2)
    graph = whole.bind(spec).graph()
    store = graph.fragment("replay").code
    assert (store.batch, store.capacity, store.begin) == (8, 256, 32)
    (schema,) = (s.schema for s in graph.streams if s.name == "unroll")
    keys = jax.random.split(jax.random.key(1), 2)
    unrolls = jax.vmap(lambda key: jax.tree.map(lambda s: filled(s, key), schema))(keys)
    flow = Flow(graph, ["replay", "learn"], 2)

    def run(unroll):
        with replica_axis("replica"):
            before = flow.init_pure(jnp.int32(0))
            after = flow.run(before, {("act", "unroll"): [unroll]}, {})
        return before, after.states, after.metrics

    before, after, metrics = jax.vmap(run, axis_name="replica")(unrolls)
    learner = jax.tree.map(lambda x: x[0], before["learn"])
    halves = []
    for k in range(2):
        mine = jax.tree.map(lambda x, k=k: x[k, 0], before["replay"])
        mine = store.insert(mine, jax.tree.map(lambda x, k=k: x[k], unrolls))
        rest = []
        for _ in range(store.draws(schema)):
            mine, batch = store.draw(mine)
            rest.append(batch)
        halves.append(rest)
    bound = whole.bind(dataclasses.replace(spec, envs=8, replicas=1))
    for one, other in zip(*halves, strict=True):
        assert not np.array_equal(one.observation, other.observation)
        learner, _ = bound.learn(learner, jax.tree.map(lambda a, b: jnp.concatenate([a, b]), one, other))
    assert farthest(jax.tree.map(lambda x: x[0], after["learn"].params), learner.params) < 1e-6
    assert farthest(learner.params, jax.tree.map(lambda x: x[0], before["learn"].params)) > 1e-5
    assert float(metrics["replay"][0]["inserted"][0]) == 2 * 4 * 4  # of both


def filled(shape, key):
    if shape.dtype == jnp.float32:
        return jax.random.normal(key, shape.shape)
    return jnp.zeros(shape.shape, shape.dtype)


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["weft:CartPole-v1", "CartPole-v1"])
def test_what_is_saved_goes_on_exactly(environment):
    through = started(environment, prioritised=True)
    learned(through, 12)
    tree, document = through.saved()
    tree, document = jax.device_get(tree), copy.deepcopy(document)
    expected = learned(through, 10)
    again = started(environment, prioritised=True)
    assert jax.tree.structure(again.template()) == jax.tree.structure(tree)
    assert again.resume(tree, document) == []
    assert same(learned(again, 10).params, expected.params)
    through.close()
    again.close()


@pytest.mark.slow  # tests/conformance learns from the same
def test_an_algorithm_for_numbers_acts_at_random_as_long_and_learns():
    engine = started("weft:Pendulum-v1", algorithm=weft.SAC(**{**SIZES, "samples_per_insert": 2.0}))
    state = learned(engine, 10)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(jax.device_get(state.params)))
    engine.close()


def test_what_cannot_be_shared_is_refused():
    with pytest.raises(ConfigError, match=r"2 learners share every batch, and 2 does not divide a batch of 15"):
        started(batch=15)
    with pytest.raises(ConfigError, match=r"2 learners .*what Plain draws, which has no of_learners\(learners\)"):
        of_learners(Plain(), 2)


class Plain:
    """A store of a user's own, which says nothing of learners."""
