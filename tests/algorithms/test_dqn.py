"""DQN: its targets by hand, how it explores, what it refuses, and its loop in one process."""

from __future__ import annotations

import dataclasses
import re
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import Counter, CounterGym, Masked, farthest, same, started, train_state

import weft
from weft.core.errors import ConfigError, PlanError
from weft.core.specs import Box, Discrete, EnvSpec
from weft.core.types import Timestep, Transitions
from weft.envs.jax_on_host import JaxOnHostFactory
from weft.envs.protocol import EnvSource
from weft.ops import losses
from weft.runtimes.loop.engines import make_engine
from weft.runtimes.prepare.config import RunConfig, prepare

SMALL = {"unroll": 4, "hidden": (8,), "batch": 8, "samples_per_insert": 1.0, "capacity": 256, "learning_begins": 64}
SPEC = EnvSpec("toys:Counter", Box((2,)), Discrete(2))


def table(params, observation):
    """A network that is a table: the values of the two actions in the state ``observation[0]``."""
    row = params[observation[0].astype(jnp.int32)]
    return row, row.max()


def tabular(**fields):
    network = (lambda key: jnp.zeros((4, 2)), table)
    return weft.DQN(**{**SMALL, "network": network, **fields}).bind(weft.Spec(SPEC, 8, 100, 1000))


def batch_of(*rows):
    """Rows of (state, action, reward, discount, following state)."""
    state, action, reward, discount, following = (np.array(x, np.float32) for x in zip(*rows, strict=True))
    zero = np.zeros_like(state)
    return Transitions(
        np.stack([state, zero], -1), action.astype(np.int32), reward, discount, np.stack([following, zero], -1),
        np.ones_like(reward), np.zeros((len(reward), 2), np.int32),
    )  # fmt: skip


ONLINE = jnp.array([[0.0, 0.0], [5.0, 4.0], [1.0, 2.0], [0.0, 0.0]])
TARGET = jnp.array([[0.0, 0.0], [10.0, 20.0], [30.0, 40.0], [0.0, 0.0]])


def test_what_the_values_are_moved_towards_by_hand():
    batch = batch_of((0, 0, 1.0, 0.5, 1), (0, 1, 2.0, 0.25, 2), (0, 0, 3.0, 0.0, 2))
    plain = tabular(double=False).aim(ONLINE, TARGET, batch)
    np.testing.assert_allclose(plain[:, 0], [1 + 0.5 * 20, 2 + 0.25 * 40, 3])
    # Double: the online network would choose action 0 in state 1, which the target network gives 10.
    double = tabular(double=True).aim(ONLINE, TARGET, batch)
    np.testing.assert_allclose(double[:, 0], [1 + 0.5 * 10, 2 + 0.25 * 40, 3])


def test_quantiles_by_hand():
    """Two quantiles of each action's return; the value is their mean."""
    algorithm = tabular(quantiles=2, double=False, network=(lambda key: jnp.zeros((4, 4)), table))
    online = jnp.array([[0.0, 0.0, 0.0, 0.0], [1.0, 3.0, 0.0, 0.0], [2.0, 4.0, 5.0, 9.0], [0.0, 0.0, 0.0, 0.0]])
    state = jnp.array([[1.0, 0.0], [2.0, 0.0]])
    np.testing.assert_allclose(algorithm.values(online, state), [[2, 0], [3, 7]])
    batch = batch_of((1, 0, 1.0, 0.5, 2), (1, 0, 2.0, 0.0, 2))
    np.testing.assert_allclose(algorithm.aim(online, online, batch), [[1 + 2.5, 1 + 4.5], [2, 2]])
    # Of the second step: quantile 1/4 is 1 and the target 2 above it, twice: 1/4 of 1. Quantile 3/4 is 3, above: 1/4.
    # Of the first: 1/4 of the mean of 2.5 and 4.5, and 3/4 of the mean of 0.5 and 2.5.
    loss, (metrics, error) = algorithm.loss(online, online, batch)
    assert float(loss) == pytest.approx(((0.25 * 3.5 + 0.75 * 1.5) + 0.5) / 2)
    np.testing.assert_allclose(error, [2 - 4.5, 2 - 2])
    assert float(metrics["value"]) == 2.0
    # Squared where smaller than 1: an error of 1 counts a half, 2.5 counts 2, 4.5 counts 4, 0.5 counts an eighth.
    huber = tabular(quantiles=2, double=False, huber=1.0, network=(lambda key: jnp.zeros((4, 4)), table))
    assert float(huber.loss(online, online, batch)[0]) == pytest.approx(
        ((0.25 * 3 + 0.75 * (0.125 + 2) / 2) + 0.25 * 0.5 + 0.25 * 0.5) / 2
    )


def test_quantiles_of_a_return_that_is_drawn_are_found():
    """Regression towards samples of a distribution gives its quantiles: of 0 … 1, uniform, 1/8, 3/8, 5/8, 7/8."""
    target = jnp.linspace(0, 1, 101)[None]
    slope = jax.jit(jax.grad(lambda q: losses.quantile_regression(q[None], target)[0]))
    found = jnp.zeros(4)
    for _ in range(400):
        found -= 0.01 * slope(found)
    np.testing.assert_allclose(found, [1 / 8, 3 / 8, 5 / 8, 7 / 8], atol=0.02)


def test_atoms_by_hand():
    """Atoms 0, 1 and 2. What followed is 1 for certain; a reward of 0.5 and a discount of 0.5 make it 1."""
    fields = {"atoms": 3, "value_min": 0.0, "value_max": 2.0, "network": (lambda key: jnp.zeros((4, 6)), table)}
    algorithm = tabular(double=False, **fields)
    certain = [-50.0, 50.0, -50.0]
    params = jnp.array([[0.0] * 6, [*certain, 50.0, -50.0, -50.0], [0.0] * 6, [0.0] * 6])
    np.testing.assert_allclose(algorithm.values(params, jnp.array([[1.0, 0.0], [2.0, 0.0]])), [[1, 0], [1, 1]])
    batch = batch_of((2, 0, 0.5, 0.5, 1), (2, 0, 0.25, 1.0, 1), (2, 0, 7.0, 0.5, 1), (2, 0, 0.75, 0.0, 1))
    aim = algorithm.aim(params, params, batch)
    np.testing.assert_allclose(aim, [[0, 1, 0], [0, 0.75, 0.25], [0, 0, 1], [0.25, 0.75, 0]], atol=1e-6)
    loss, (_, error) = algorithm.loss(params, params, batch)
    assert float(loss) == pytest.approx(np.log(3))  # three atoms alike
    np.testing.assert_allclose(error, [1 - 1, 1 - 1.25, 1 - 2, 1 - 0.75], atol=1e-6)
    with pytest.raises(ConfigError, match=r"quantiles=2 and atoms=3 are two ways"):
        tabular(quantiles=2, **fields)
    with pytest.raises(ConfigError, match=r"3 atoms from value_min=0 to value_max=-1 cannot tell returns apart"):
        tabular(**{**fields, "value_max": -1.0})


def test_the_loss_by_hand():
    batch = batch_of((1, 0, 1.0, 0.0, 2), (1, 1, 1.0, 0.0, 2))  # errors 4 and 3
    loss, (metrics, error) = tabular().loss(ONLINE, TARGET, batch)
    assert (float(loss), float(metrics["value"])) == ((16 + 9) / 4, 4.5)
    np.testing.assert_allclose(error, [4, 3])
    assert float(tabular(huber=1.0).loss(ONLINE, TARGET, batch)[0]) == (3.5 + 2.5) / 2
    half = batch._replace(weight=np.array([0.5, 0.0], np.float32))  # the second is not valid
    assert float(tabular().loss(ONLINE, TARGET, half)[0]) == 0.5 * 8
    moved = batch._replace(weight=np.array([1.0, 0.0], np.float32))
    nan = moved._replace(reward=np.array([1.0, np.nan], np.float32))
    assert np.isfinite(tabular().loss(ONLINE, TARGET, nan)[0])


def test_the_target_network_is_renewed_every_so_many_learn_calls():
    algorithm = tabular(target_period=3)
    state, batch = algorithm.init(jax.random.key(0)), batch_of((1, 0, 1.0, 0.0, 2))
    renewed = []
    for _ in range(7):
        state, _ = algorithm.learn(state, batch)
        renewed.append(same(state.params, state.optimizer.target))
    assert renewed == [False, False, True, False, False, True, False]


def test_exploration_falls_with_the_step_of_the_environment():
    algorithm = tabular(epsilon=1.0, epsilon_end=0.1, exploration=0.5)  # over 500 of 1000 steps
    no = jnp.zeros((), bool)
    timestep = Timestep(jnp.array([1.0, 0.0]), jnp.float32(0), no, no)  # the best action there is 0
    keys = jax.random.split(jax.random.key(1), 20_000)
    for step, epsilon in ((0, 1.0), (250, 0.55), (500, 0.1), (900, 0.1)):
        act = jax.vmap(lambda key, step=step: algorithm.act_at(ONLINE, (), timestep, key, jnp.int32(step)).action)
        assert float((act(keys) == 1).mean()) == pytest.approx(epsilon / 2, abs=0.01)
    assert int(algorithm.greedy(ONLINE, (), timestep).action) == 0


@pytest.mark.parametrize("loop", ["compiled", "hosted"])
def test_act_sees_the_step_in_every_loop(loop):
    """Epsilon falls from 1 to 0 within the first unroll: from then on all actions are the best ones."""
    pure = Counter(length=100)
    where = {"pure": pure} if loop == "compiled" else {"host": JaxOnHostFactory(pure)}
    source = EnvSource("toys:Counter", pure.spec, **where)
    fields = {**SMALL, "unroll": 8, "epsilon": 1.0, "epsilon_end": 0.0, "learning_rate": 1e-9}
    steps = 8 * 8 * 10
    algorithm = weft.DQN(**fields, exploration=8 / 80, n_step=1)
    engine = started(algorithm, source, envs=8, steps=steps)
    params = jax.device_get(train_state(engine).params)
    advanced(engine, 1)
    ring = held(engine).ring
    bound = prepare(RunConfig(algorithm, source, envs=8, steps=steps)).algorithm
    values = bound.values(params, np.asarray(ring.observation)[:2, :8].reshape(-1, 2))
    best = np.asarray(values.argmax(-1)).reshape(2, 8, 8)
    action = np.asarray(ring.action)[:2]
    engine.close()
    assert (action[0, :4] != best[0, :4]).mean() > 0.2  # about half of the random ones
    assert (action[1] == best[1]).all()


def advanced(engine, learn_steps):
    """Advance by so many learn steps, filling the store first."""
    made = 0
    while made < learn_steps:
        made += engine.advance(learn_steps - made)().learn_steps
    return made


def held(engine):
    states = engine._state.fragments if hasattr(engine, "_state") else engine._fragments
    return jax.device_get(states["replay"])


@pytest.mark.parametrize("loop", ["compiled", "hosted", "gymnasium"])
@pytest.mark.parametrize("ends", ["truncated", pytest.param("terminated", marks=pytest.mark.slow)])
def test_final_observations_of_truncated_episodes_are_drawn(loop, ends):
    """Episodes of 3 steps: whatever is drawn leads to the step after it, also from an episode's last one."""
    pure = Counter(length=3, ends=ends, limit=3)
    where = {"pure": pure} if loop == "compiled" else {"host": JaxOnHostFactory(pure)}
    source = EnvSource("toys:Counter", pure.spec, **where)
    environment = (lambda: CounterGym(3, ends)) if loop == "gymnasium" else source
    engine = started(weft.DQN(**SMALL, n_step=2, discount=0.5), environment, envs=8, steps=8 * 4 * 20)
    advanced(engine, 12)
    store, algorithm = held(engine), weft.DQN(**SMALL, n_step=2, discount=0.5)
    engine.close()
    bound = algorithm.bind(weft.Spec(SPEC, 8, 10))
    _, batch = bound.replay.draw(store)
    batch = jax.device_get(batch)
    newest = (batch.ids[:, 1] == store.ring.inserted - 1) & (batch.ids[:, 0] // 8 % 4 == 3)  # nothing follows it yet
    usable = (batch.weight > 0) & ~newest
    assert usable.mean() > 0.6
    time, after = batch.observation[usable, 0], batch.following[usable, 0]
    ended = time >= 2 - 1  # of two steps the second is the episode's last
    if ends == "truncated":
        np.testing.assert_allclose(after, np.minimum(time + 2, 3))  # 3: seen by nobody but as a final observation
        np.testing.assert_allclose(batch.discount[usable], np.where(time == 2, 0.5, 0.25))
    else:
        np.testing.assert_allclose(batch.discount[usable], np.where(ended, 0.0, 0.25))
    np.testing.assert_allclose(batch.reward[usable], np.where(time == 2, 13, (11 + time) + (12 + time) / 2))


@pytest.mark.parametrize(
    ("environment", "prioritised"),
    [
        ("weft:CartPole-v1", True),
        ("CartPole-v1", False),
        pytest.param("weft:CartPole-v1", False, marks=pytest.mark.slow),
        pytest.param("CartPole-v1", True, marks=pytest.mark.slow),
    ],
)
def test_a_resumed_run_is_the_run_that_was_not_interrupted(environment, prioritised):
    algorithm = weft.DQN(**SMALL, prioritised=prioritised, dueling=True, n_step=3)
    config = RunConfig(algorithm, environment, envs=8, steps=8 * 4 * 30, seed=5, vector="each")
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


def test_a_run_that_is_saved_while_the_store_fills_goes_on_filling():
    config = RunConfig(weft.DQN(**{**SMALL, "learning_begins": 200}), "weft:CartPole-v1", envs=8, steps=8 * 4 * 30)
    engine = make_engine(prepare(config))
    engine.start()
    assert engine._filling == 6  # 7 unrolls of 32 steps are 200 and more
    engine._filling = 2
    assert engine.advance(1)().learn_steps == 0
    tree, document = engine.saved()
    engine.resume(tree, document)
    assert engine._filling == 4
    engine.close()


def test_what_follows_the_store_runs_as_often_as_its_ratio_says(tmp_path):
    fields = {**SMALL, "samples_per_insert": 2.0}  # 32 steps in, 64 out: 8 batches of 8
    run = weft.train(
        weft.DQN(**fields), "weft:CartPole-v1", envs=8, steps=8 * 4 * 20, root=tmp_path, quiet=True, tensorboard=False
    )
    # Two unrolls make 64 steps; the first only fills.
    assert run.summary["learn_steps"] == 19 * 8
    assert run.summary["env_steps"] == 8 * 4 * 20
    assert run.summary["samples"]["produced"] == run.summary["samples"]["trained"] == 640
    metrics = (run.folder / "metrics.jsonl").read_text()
    assert '"replay/evicted":384.0,"replay/held":256.0,"replay/inserted":640.0' in metrics


@cache
def learned(**fields):
    engine = started(weft.DQN(**SMALL, **fields), "weft:CartPole-v1", envs=8, steps=8 * 4 * 40)
    advanced(engine, 60)
    return train_state(engine)


OTHERS = ({"n_step": 3}, {"dueling": True}, {"quantiles": 5}, {"atoms": 5})
AT_LENGTH = [pytest.param(fields, marks=pytest.mark.slow) for fields in OTHERS]


@pytest.mark.parametrize("fields", [{"double": False}, {"prioritised": True}, *AT_LENGTH])
def test_every_field_changes_what_is_learned(fields):
    plain, other = learned(), learned(**fields)
    assert int(plain.step) == int(other.step)
    if not fields.keys() & {"dueling", "quantiles", "atoms"}:  # another network is another structure
        assert farthest(plain.params, other.params) > 1e-6


def test_a_masked_action_is_never_taken():
    engine = started(weft.DQN(**{**SMALL, "epsilon_end": 0.5}), Masked(), envs=8, steps=8 * 4 * 20)
    advanced(engine, 8)
    ring = held(engine).ring
    count = int(ring.held)
    np.testing.assert_array_equal(ring.action[:count], ring.action_mask[:count].argmax(-1))


REFUSED = {
    "smaller than a batch": ({"batch": 512}, r"DQN: a replay of 256 steps is smaller than a batch of 512. Choose"),
    "smaller than an unroll": ({"unroll": 64}, r"does not hold one unroll of 64 steps x 8 environments, 512 in all"),
    "never begins": ({"learning_begins": 300}, r"would begin with 300 steps, and a replay of 256 holds 256"),
    "too little": (
        {"samples_per_insert": 0.1},
        r"32 steps, and 0.1 samples for each are less than half a batch",
    ),
    "not a ratio": ({"samples_per_insert": 0.0}, r"DQN.samples_per_insert must be above 0, got 0.0"),
    "no more than all": ({"exploration": 1.5}, r"DQN.exploration must be between 0 and 1, got 1.5"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_sizes_that_do_not_fit_are_refused(case):
    fields, words = REFUSED[case]
    with pytest.raises(ConfigError, match=words):
        prepare(RunConfig(weft.DQN(**{**SMALL, **fields}), "weft:CartPole-v1", envs=8, steps=10_000))


def test_what_cannot_run_is_refused_before_anything_starts():
    def asked(environment="weft:CartPole-v1", steps=10_000, plan="inline", envs=8, **fields):
        return prepare(RunConfig(weft.DQN(**{**SMALL, **fields}), environment, envs=envs, steps=steps, plan=plan))

    with pytest.raises(ConfigError, match=r"numbered actions, and .*Pendulum.* are Box\[1\] float32. Use"):
        asked("weft:Pendulum-v1")
    with pytest.raises(ConfigError, match=r"takes \d+ .iB of memory \(replay .*\), and .* has .* smaller"):
        asked(capacity=2_000_000_000)
    with pytest.raises(ConfigError, match=r"begins to learn only with unroll 2. Choose more steps"):
        asked(steps=20)
    with pytest.raises(PlanError, match=re.escape("has 3 of 'replay' and 2 of what learns from it")):
        asked(plan="(env+act)*4 | replay*3 | learn*2")
    with pytest.raises(ConfigError, match=r"3 learners share every batch, and 3 does not divide a batch of 32"):
        asked(plan="(env+act+replay+learn)*3", batch=32, envs=9)
    with pytest.raises(PlanError, match=r"has no 'grad'"):
        asked(plan="central")


def test_the_graph_is_what_it_says():
    graph = weft.DQN(**SMALL, prioritised=True).bind(weft.Spec(SPEC, 8, 10)).graph()
    assert graph.names == ("env", "act", "replay", "learn")
    ways = {(s.source, s.name, s.target) for s in graph.streams}
    assert ("act", "unroll", "replay") in ways
    assert ("replay", "batch", "learn") in ways
    assert ("learn", "feedback", "replay") in ways
    graph.check()
    plain = weft.DQN(**SMALL).bind(weft.Spec(SPEC, 8, 10)).graph()
    assert "feedback" not in {s.name for s in plain.streams}  # nothing to tell a uniform replay


def test_images_and_nested_observations_and_several_seeds_train():
    from toys import Anything

    observation = {"b": Box((2,)), "a": Box((8, 9, 2), "uint8", 0, 255)}
    engine = started(weft.DQN(**SMALL), Anything(observation, Discrete(3)), envs=8, seeds=2, steps=8 * 4 * 20)
    assert engine.advance(4)().learn_steps == 0
    report = engine.advance(4)()
    assert report.finite
    assert report.metrics["loss"].shape == (1, 2)
    assert held(engine).ring.observation["a"].dtype == np.uint8


def test_fields_are_plain_values():
    assert {f.name for f in dataclasses.fields(weft.DQN)} - set(weft.DQN().config()) == set()


@pytest.mark.slow
def test_exploration_goes_on_where_it_was_when_a_run_without_lockstep_is_resumed(tmp_path):
    """Environments begin new episodes there, and the steps that act is told are those of the whole run."""
    config = RunConfig(
        weft.DQN(**SMALL), "weft:CartPole-v1", plan="(env+act)*2 | replay+learn", envs=8, steps=8 * 4 * 60, seed=2
    )
    engine = make_engine(prepare(config), logs=tmp_path)
    try:
        engine.start()
        report = engine.advance(20)()
        tree, document = engine.saved()
    finally:
        engine.close()
    assert report.samples.balanced
    steps = document["steps"]["act"]
    assert sum(steps) >= 8 * 4 * 6  # 20 learn calls are those of 5 unrolls, after one that only fills
    again = make_engine(prepare(config), logs=tmp_path)
    try:
        again.resume(tree, document)
        begun = again._ledger.steps()["act"]
        report = again.advance(20)()
    finally:
        again.close()
    # Half an unroll is gone; and the workers have begun by the time that one looks.
    assert all(now >= step // 4 * 4 for now, step in zip(begun, steps, strict=True))
    assert report.samples.balanced
    assert report.learn_steps == 20
