"""What SAC and TD3 share: the loop in one process, ends of episodes, fields, refusals."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import SMALL, SPEC, batch_of
from toys import Anything, farthest, same, started, train_state

import weft
from weft.core.errors import ConfigError
from weft.core.specs import Box, Discrete, EnvSpec
from weft.envs.protocol import Transition
from weft.ops.optimizers import bounded_optimizer
from weft.runtimes.loop.engines import make_engine
from weft.runtimes.prepare.config import RunConfig, prepare

BOTH = [weft.SAC, weft.TD3]
AT_LENGTH = pytest.mark.slow
PENDULUM = {"envs": 8, "steps": 8 * 4 * 40}


def advanced(engine, learn_steps):
    made = 0
    while made < learn_steps:
        made += engine.advance(learn_steps - made)().learn_steps
    return engine


@dataclasses.dataclass(frozen=True)
class Tap:
    """Reward 1 each step, whatever is done; an episode has one step, and ends or is cut."""

    ends: str

    @property
    def spec(self) -> EnvSpec:
        return dataclasses.replace(SPEC, pure=True, max_episode_steps=1)

    def reset(self, key):
        return jnp.int32(0), jnp.ones(1)

    def step(self, state, action, key):
        return state, Transition(jnp.ones(1), jnp.float32(1), self.ends == "terminated", self.ends == "truncated")


@pytest.mark.parametrize(
    ("cls", "ends", "worth"),
    [
        (weft.SAC, "truncated", 2.0),
        (weft.TD3, "terminated", 1.0),
        pytest.param(weft.SAC, "terminated", 1.0, marks=AT_LENGTH),
        pytest.param(weft.TD3, "truncated", 2.0, marks=AT_LENGTH),
    ],
)
def test_a_terminated_episode_is_worth_its_rewards_and_a_cut_one_what_would_have_followed(cls, ends, worth):
    """With a discount of a half, 1 + 1/2 + 1/4 + … = 2; a temperature of nearly nothing leaves it at that."""
    fields = {"discount": 0.5, "learning_rate": 0.01, "target_rate": 0.2, "samples_per_insert": 8.0}
    if cls is weft.SAC:
        fields |= {"temperature": 1e-6, "adapt_temperature": False}
    engine = started(cls(**{**SMALL, **fields}), Tap(ends), envs=8, steps=8 * 4 * 60)
    advanced(engine, 32 * 40)
    algorithm, state = prepare(RunConfig(cls(**SMALL), Tap(ends), envs=8, steps=1000)).algorithm, train_state(engine)
    actions = jnp.linspace(-1, 1, 9)[:, None]
    values = algorithm.critic_net.apply(state.optimizer.critics.weights, jnp.ones((9, 1)), actions)
    np.testing.assert_allclose(values, worth, atol=0.15)


@pytest.mark.parametrize(
    ("cls", "environment"),
    [
        (weft.SAC, "weft:Pendulum-v1"),
        (weft.TD3, "Pendulum-v1"),
        pytest.param(weft.SAC, "Pendulum-v1", marks=AT_LENGTH),
        pytest.param(weft.TD3, "weft:Pendulum-v1", marks=AT_LENGTH),
    ],
)
def test_a_resumed_run_is_the_run_that_was_not_interrupted(cls, environment):
    algorithm = cls(**SMALL, prioritised=True, n_step=3, normalise_observations=True)
    config = RunConfig(algorithm, environment, seed=5, vector="each", **PENDULUM)
    whole = make_engine(prepare(config))
    whole.start()
    advanced(whole, 20)
    tree, document = whole.saved()
    tree = jax.tree.map(jnp.copy, tree)  # the engine's own are given away
    advanced(whole, 20)
    again = make_engine(prepare(config))
    assert again.resume(tree, document) == []
    advanced(again, 20)
    assert same(whole.saved()[0].fragments, again.saved()[0].fragments)
    whole.close()
    again.close()


@pytest.mark.slow
def test_the_fields_of_simba_make_another_network_and_train_it():
    fields = {"blocks": 2, "normalise_observations": True, "weight_decay": 0.1}
    engine = started(weft.SAC(**SMALL, **fields), "weft:Pendulum-v1", **PENDULUM)
    before = jax.device_get(train_state(engine).params)
    after = train_state(advanced(engine, 20)).params
    layers = after.network["Layers_0"]
    assert [name for name in sorted(layers) if "LayerNorm" in name] == ["LayerNorm_0", "LayerNorm_1", "LayerNorm_2"]
    assert layers["MLP_1"]["Dense_0"]["kernel"].shape == (8, 32)
    assert all(farthest(before.network["Layers_0"][name], layers[name]) > 0 for name in layers)
    assert float(after.observations.seen) == 20 * 8
    assert float(after.observations.var[2]) > float(after.observations.var[0])  # the speed has the wider range


def test_weight_decay_pulls_weights_towards_nothing():
    rule = bounded_optimizer("adam", 0.1, None, weight_decay=0.5)
    weights = {"w": jnp.array([2.0, -4.0])}
    changes, _ = rule.update({"w": jnp.zeros(2)}, rule.init(weights), weights)
    np.testing.assert_allclose(changes["w"], [-0.1 * 0.5 * 2, 0.1 * 0.5 * 4])


def test_batches_are_normalised_by_statistics_that_have_seen_them():
    algorithm = weft.SAC(**SMALL, normalise_observations=True).bind(weft.Spec(SPEC, 8, 100))
    batch = batch_of((1.0, 0, 0, 0, 5.0), (3.0, 0, 0, 0, 3.0), (9.0, 0, 0, 0, 1.0), weight=[1, 1, 0])
    policy, seen = algorithm.seen(algorithm.init(jax.random.key(0)).params, batch)
    np.testing.assert_allclose(seen.observation[:, 0], [-1, 1, 7], rtol=1e-5)  # mean 2, deviation 1
    np.testing.assert_allclose(seen.following[:, 0], [3, 1, -1], rtol=1e-5)
    assert float(policy.observations.seen) == 2


@pytest.mark.parametrize("cls", [pytest.param(cls, marks=AT_LENGTH) for cls in BOTH])
def test_images_several_numbers_and_several_seeds_train(cls):
    observation = {"b": Box((2,)), "a": Box((8, 9, 2), "uint8", 0, 255)}
    action = Box((2, 3), "float32", -1.0, 1.0)
    engine = started(cls(**SMALL), Anything(observation, action), envs=8, seeds=2, steps=8 * 4 * 20)
    advanced(engine, 4)
    report = engine.advance(4)()
    assert report.finite
    assert report.metrics["loss"].shape[-1] == 2
    state = train_state(engine)
    assert farthest(*(jax.tree.map(lambda x, k=k: x[k], state.params) for k in (0, 1))) > 1e-6


REFUSED = {
    "numbered": (Discrete(3), r"gives numbers within bounds, and the actions of .* are Discrete\(3\)\. Use an .* DQN"),
    "unbounded": (Box((2,)), r"needs actions with finite bounds, .* Box\[2\] float32 with low -inf and high inf"),
    "half bounded": (
        Box((2,), "float32", 0.0, np.inf),
        r"needs actions .* low 0.0 and high inf\. Wrap the env",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("cls", BOTH)
def test_actions_that_do_not_fit_are_refused_before_anything_starts(cls, case):
    action, words = REFUSED[case]
    with pytest.raises(ConfigError, match=rf"^{cls.__name__} {words}"):
        prepare(RunConfig(cls(**SMALL), Anything(Box((2,)), action), envs=8, steps=10_000))


@pytest.mark.parametrize("cls", BOTH)
def test_sizes_that_do_not_fit_are_refused(cls):
    with pytest.raises(ConfigError, match=rf"{cls.__name__}: a replay of 256 steps is smaller than a batch of 512"):
        prepare(RunConfig(cls(**{**SMALL, "batch": 512}), "weft:Pendulum-v1", envs=8, steps=10_000))


@pytest.mark.parametrize("cls", BOTH)
def test_only_the_policy_goes_to_act(cls):
    """Critics are several times as large, and stay with learn."""
    bound = cls(**SMALL).bind(weft.Spec(SPEC, 8, 10))
    (sent,) = (s.schema for s in bound.graph().streams if s.name == "params")
    sizes = sum(leaf.size for leaf in jax.tree.leaves(sent.network))
    assert sizes == 1 * 8 + 8 + 8 * bound.num_params + bound.num_params
