"""PQN: its returns and its loss by hand, what it refuses, and its loop in one process."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from batches import SPEC, acted_batch
from toys import farthest, started, train_state

import weft
from weft.algorithms.pqn import Steps
from weft.core.errors import ConfigError
from weft.core.specs import Box, Discrete, EnvSpec
from weft.core.types import Unroll
from weft.runtimes.prepare.config import RunConfig, prepare

SMALL = {"unroll": 6, "hidden": (8,), "epochs": 2, "minibatches": 2}
VALUES = jnp.array([[1.0, 2.0], [5.0, 4.0], [0.0, 7.0], [8.0, 3.0]])  # of two actions in four states


def tabular(**fields):
    network = (
        lambda key: VALUES,
        lambda params, observation: (params[observation[0].astype(jnp.int32)], jnp.zeros(())),
    )
    spec = EnvSpec("toys:Table", Box((1,)), Discrete(2))
    algorithm = weft.PQN(**{**SMALL, "unroll": 4, "minibatches": 1, "network": network, **fields})
    return algorithm.bind(weft.Spec(spec, 1, 10, 100))


def unroll_of(states, rewards, last, terminated=(), truncated=(), bootstrap=0.0):
    """One environment; ``bootstrap`` is act's value where it was truncated, and of what follows the last step."""
    count = len(states)
    flag = np.zeros((count, 1), bool)
    ends, cuts = flag.copy(), flag.copy()
    ends[list(terminated)], cuts[list(truncated)] = True, True
    values = np.where(cuts, bootstrap, 0.0).astype(np.float32)
    values[-1] = bootstrap
    return Unroll(
        np.array(states, np.float32)[:, None, None], flag, np.zeros((count, 1), np.int32), {},
        np.array(rewards, np.float32)[:, None], ends, cuts, values, (), np.array([[last]], np.float32), flag[0],
    )  # fmt: skip


@pytest.mark.parametrize("decay", [0.0, 0.65, 1.0])
def test_what_the_values_are_moved_towards_by_hand(decay):
    highest = [2.0, 5.0, 7.0, 8.0]
    algorithm = tabular(discount=0.9, trace_decay=decay)
    plain = algorithm.aim(VALUES, unroll_of([0, 1, 2], [1.0, 2.0, 3.0], last=3, bootstrap=-99.0))[:, 0]
    third = 3 + 0.9 * highest[3]  # the learner's own value of what followed the last step, not act's
    second = 2 + 0.9 * ((1 - decay) * highest[2] + decay * third)
    first = 1 + 0.9 * ((1 - decay) * highest[1] + decay * second)
    np.testing.assert_allclose(plain, [first, second, third], rtol=1e-6)


def test_a_terminated_episode_has_nothing_after_it_and_a_cut_one_its_final_observations_value():
    algorithm = tabular(discount=0.9, trace_decay=0.5)
    for how, rest in (("terminated", 0.0), ("truncated", 0.9 * 40.0)):
        found = algorithm.aim(VALUES, unroll_of([0, 1, 2], [1.0, 2.0, 3.0], last=3, bootstrap=40.0, **{how: [1]}))
        second = 2 + rest
        expected = [1 + 0.9 * (0.5 * 5.0 + 0.5 * second), second, 3 + 0.9 * 8.0]
        np.testing.assert_allclose(found[:, 0], expected, rtol=1e-6)


def test_the_loss_by_hand():
    steps = Steps(np.array([[0.0], [3.0]]), np.array([1, 0]), np.array([5.0, 4.0]), None)  # values 2 and 8
    loss, metrics = tabular().loss(VALUES, steps)
    assert (float(loss), float(metrics["value"])) == ((9 + 16) / 4, 5.0)
    valid = steps._replace(valid=np.array([True, False]), target=np.array([5.0, np.nan]))
    assert float(tabular().loss(VALUES, valid)[0]) == 4.5


def test_a_learn_call_makes_updates_in_every_epoch():
    algorithm = weft.PQN(**SMALL).bind(weft.Spec(SPEC, 4, 10, 100))
    state = algorithm.init(jax.random.key(0))
    batch = acted_batch(algorithm, state.params)
    new, metrics = jax.jit(algorithm.learn)(state, batch)
    assert int(new.step) == 1
    assert [int(x) for x in jax.tree.leaves(new.optimizer) if x.dtype == jnp.int32] == [4, 4]  # of each of Adam's parts
    assert np.isfinite(float(metrics["loss"]))
    names = str(jax.tree_util.tree_structure(state.params))
    assert "LayerNorm" in names
    assert "LayerNorm" not in str(jax.tree_util.tree_structure(weft.PQN(**SMALL, layer_norm=False).bind(
        weft.Spec(SPEC, 4, 10)).init(jax.random.key(0)).params))  # fmt: skip


@pytest.mark.parametrize("environment", ["weft:CartPole-v1", "CartPole-v1"])
def test_it_trains_in_one_process(environment):
    engine = started(weft.PQN(**{**SMALL, "unroll": 4}), environment, envs=8, steps=8 * 4 * 20)
    before = jax.device_get(train_state(engine).params)
    report = engine.advance(5)()
    assert report.finite
    assert report.learn_steps == 5
    assert farthest(before, train_state(engine).params) > 1e-4
    engine.close()


def test_what_does_not_fit_is_refused_before_anything_starts():
    def asked(environment="weft:CartPole-v1", **fields):
        return prepare(RunConfig(weft.PQN(**{**SMALL, **fields}), environment, envs=8, steps=10_000))

    with pytest.raises(ConfigError, match=r"^PQN chooses among numbered actions, .*Pendulum.* Box\[1\] float32. Use"):
        asked("weft:Pendulum-v1")
    with pytest.raises(ConfigError, match=r"PQN cuts a batch of 48 steps .* into 5 minibatches.*divide 48"):
        asked(minibatches=5)
