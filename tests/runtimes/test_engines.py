"""Both engines: the result depends on neither dispatches, nor resumes, nor replicas, nor where the environment runs."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import SMALL, Counter, Probe, farthest, last_unroll, prepared, same, started, train_state

import weft
from weft.core.buffers import timestep_buffers
from weft.core.errors import EnvironmentFault, GraphError
from weft.core.specs import Box, Discrete, EnvSpec
from weft.core.types import Acted
from weft.envs.jax_on_host import JaxOnHost, JaxOnHostFactory
from weft.envs.protocol import EnvSource, Transition
from weft.envs.registry import open_environment
from weft.runtimes.compiled.hoist import MAX_BYTES
from weft.runtimes.loop.engines import make_engine
from weft.services import checkpoints

ENVS = 8
# One epoch in one minibatch and no normalisation of advantages: then the mean of the replicas' gradients is the
# gradient of the whole batch, and replicas change nothing but the order of a sum.
PPO = weft.PPO(**SMALL)
PLANS = {1: "env+act+learn", 4: "(env+act+learn)*4"}
WORLDS = {"compiled": ("weft:CartPole-v1", {}), "hosted": ("CartPole-v1", {"vector": "each"})}


def train(world, learn_steps, *, algorithm=PPO, replicas=1, **config):
    """The train state after some learn calls, its report, and the engine's saved tree; in NumPy."""
    name, options = WORLDS[world]
    engine = started(algorithm, name, envs=ENVS, plan=PLANS[replicas], **options, **config)
    reports = [engine.advance(n)() for n in learn_steps]
    tree = engine.saved()[0]
    engine.close()
    return tree, reports


@pytest.fixture(scope="module")
def compiled():
    """Five learn calls at once, compiled whole: (saved tree, reports)."""
    return train("compiled", [5])


@pytest.fixture(scope="module")
def hosted():
    """Likewise in a loop of the host."""
    return train("hosted", [5])


@pytest.fixture(scope="module", params=WORLDS)
def whole(request):
    """Either: (which world, saved tree, reports)."""
    return request.param, *request.getfixturevalue(request.param)


def test_training_changes_the_params(whole):
    world, tree, (report,) = whole
    before, _ = train(world, [])
    assert farthest(before.fragments["learn"].params, tree.fragments["learn"].params) > 1e-3
    assert int(tree.fragments["learn"].step) == 5
    assert report.learn_steps == 5
    assert report.finite
    assert all(values.shape == (5,) for values in report.metrics.values())


def test_the_result_does_not_depend_on_the_dispatch_sizes(whole):
    world, tree, (report,) = whole
    other, reports = train(world, [2, 3])
    assert same(tree, other)
    for name, values in report.metrics.items():
        np.testing.assert_array_equal(values, np.concatenate([r.metrics[name] for r in reports]))
    assert report.episodes[0] == [episode for r in reports for episode in r.episodes[0]]


def test_a_resumed_run_is_the_same_bit_for_bit(whole, tmp_path):
    world, tree, _ = whole
    name, options = WORLDS[world]
    run = prepared(PPO, name, envs=ENVS, **options)
    engine = make_engine(run)
    engine.start()
    engine.advance(2)()
    checkpoints.save(tmp_path, 2, *engine.saved())
    engine.close()
    again = make_engine(run)
    restored = checkpoints.load_latest(tmp_path, again.template(), pytest.fail)
    assert restored is not None
    assert again.resume(restored[0], restored[1]) == []
    again.advance(3)()
    other = again.saved()[0]
    again.close()
    assert same(tree, other)


def test_a_recurrent_run_with_statistics_is_resumed_exactly(tmp_path):
    """What act remembers is part of a checkpoint: the recurrent carry, the running episode, the discounted return."""
    algorithm = weft.PPO(**SMALL, recurrent="gru", normalise_rewards=True, normalise_observations=True)
    run = prepared(algorithm, "CartPole-v1", envs=ENVS, vector="each")
    engine = make_engine(run)
    engine.start()
    engine.advance(2)()
    checkpoints.save(tmp_path, 2, *engine.saved())
    engine.advance(2)()
    tree = jax.device_get(train_state(engine).params)
    engine.close()
    again = make_engine(run)
    restored = checkpoints.load_latest(tmp_path, again.template(), pytest.fail)
    assert restored is not None
    again.resume(restored[0], restored[1])
    again.advance(2)()
    other = train_state(again).params
    again.close()
    assert same(tree, other)


def test_replicas_learn_what_one_learns_from_the_whole_batch(whole):
    world, tree, (report,) = whole
    replicas = 4
    other, (split,) = train(world, [5], replicas=replicas)
    # Sums in another order, five Adam steps of 0.01 each: 1e-5 is a thousandth of one step.
    assert farthest(tree.fragments["learn"].params, other.fragments["learn"].params) < 1e-5
    for leaf in jax.tree.leaves(other.fragments["learn"].params):
        shards = [np.asarray(shard.data) for shard in leaf.addressable_shards]
        assert len(shards) == replicas
        assert all(np.array_equal(shards[0], shard) for shard in shards)
    np.testing.assert_allclose(report.metrics["loss"], split.metrics["loss"], rtol=1e-4, atol=1e-5)
    count, returns, lengths = (sum(e[i] for e in report.episodes[0]) for i in range(3))
    assert (count, returns, lengths) == tuple(sum(e[i] for e in split.episodes[0]) for i in range(3))


def test_an_environment_draws_the_same_on_however_many_replicas():
    probe = Probe()

    def trajectories(replicas):
        engine = started(probe, Counter(), envs=ENVS, plan=PLANS[replicas].replace("learn", "recorder+learn"))
        engine.advance(3)()
        loop = engine.saved()[0].loop
        return jax.device_get((loop.env, loop.timestep, loop.carry, jax.random.key_data(loop.act_keys["act"])))

    one, four = trajectories(1), trajectories(4)
    assert same(one, four)
    assert len(np.unique(one[0][1])) == ENVS, "every environment drew its own"


def test_seeds_side_by_side_are_those_seeds_alone(whole):
    world, alone, _ = whole
    tree, (report,) = train(world, [5], seed=0, seeds=2)
    params = tree.fragments["learn"].params
    zero, one = (jax.tree.map(lambda x, k=k: x[k], params) for k in range(2))
    # vmap batches the matrix products, whose sums are then taken in another order: a thousandth of one step of 0.01.
    assert farthest(zero, alone.fragments["learn"].params) < 1e-5
    assert farthest(zero, one) > 1e-2
    assert all(values.shape == (5, 2) for values in report.metrics.values())
    assert len(report.episodes) == 2


def test_the_second_of_two_seeds_is_that_seed_alone():
    both, _ = train("compiled", [3], seed=3, seeds=2)
    alone, _ = train("compiled", [3], seed=4)  # the same programs as above
    second = jax.tree.map(lambda x: x[1], both.fragments["learn"].params)
    assert farthest(second, alone.fragments["learn"].params) < 1e-5


def test_the_plan_changes_the_speed_and_not_the_result(compiled):
    """The same JAX environment, compiled into the program or stepped by the host's loop."""
    tree, _ = compiled
    source = open_environment("weft:CartPole-v1")
    hosted = EnvSource(source.name, source.spec, host=JaxOnHostFactory(source.pure))
    engine = started(PPO, hosted, envs=ENVS)
    engine.advance(5)()
    saved, document = engine.saved()
    engine.close()
    np.testing.assert_allclose(saved.roll.acts["act"].timestep.observation, tree.loop.timestep.observation, atol=1e-4)
    assert farthest(saved.fragments["learn"].params, tree.fragments["learn"].params) < 1e-4
    np.testing.assert_array_equal(saved.roll.acts["act"].episode_length, tree.loop.running["act"].lengths)
    assert document["environments"][0]["count"] == 20


def test_an_engine_runs_on_the_device_of_its_layout():
    from weft.runtimes.compiled.engine import FusedEngine
    from weft.runtimes.compiled.replicas import Layout
    from weft.runtimes.hosted.engine import HostedEngine

    third = jax.devices()[2]
    run = prepared(Probe(), Counter(), envs=2)
    pure, layout = Counter(), Layout((third,))
    on_host = EnvSource("toys:Counter", pure.spec, host=JaxOnHostFactory(pure))
    engines = [
        FusedEngine(run.graph, pure, layout, 2, 0),
        HostedEngine(run.graph, on_host, layout, 2, 0),
        HostedEngine(run.graph, EnvSource("toys:Counter", pure.spec, pure=pure), layout, 2, 0),
    ]
    for engine in engines:
        engine.start()
        engine.advance(1)()
        assert train_state(engine).params["weight"].devices() == {third}
        engine.close()


@dataclass(frozen=True)
class Noisy(Probe):
    """Draws more for a step than a step is handed, so that the keys themselves are."""

    def act(self, params, carry, timestep, key):
        noise = jax.random.normal(key, (MAX_BYTES,)) + timestep.reward
        return Acted(jnp.argmax(noise) % 2, carry, {"noise": noise[:2]})


def test_noise_too_large_to_hand_over_is_drawn_in_the_loop():
    pure = Counter()
    sources = [pure, EnvSource("toys:Counter", pure.spec, host=JaxOnHostFactory(pure))]
    unrolls = []
    for source in sources:
        engine = started(Noisy(), source, envs=2)
        engine.advance(2)()
        unrolls.append(last_unroll(engine))
        engine.close()
    fused, looped = unrolls
    np.testing.assert_array_equal(fused.action, looped.action)
    np.testing.assert_array_equal(fused.extras["noise"], looped.extras["noise"])
    assert len(np.unique(fused.extras["noise"])) == 16


@dataclass(frozen=True)
class Still(Probe):
    """Draws nothing at all."""

    def act(self, params, carry, timestep, key):
        return Acted(jnp.int32(1), carry, {})


def test_nothing_need_be_random():
    class Certain(Counter):
        def reset(self, key):
            return (jnp.int32(0), jnp.float32(0.5)), jnp.array([0.0, 0.5])

    engine = started(Still(), Certain(), envs=2)
    engine.advance(2)()
    np.testing.assert_array_equal(last_unroll(engine).reward[:, 0], [12, 13, 11, 12])


def test_a_fragment_on_another_stream_is_refused():
    @dataclass(frozen=True)
    class Elsewhere(Probe):
        def graph(self):
            return super().graph().insert("mine", lambda state, message: (state, message), on="timestep")

    with pytest.raises(GraphError, match=r"'mine' cannot be on the stream 'timestep'.*params, unroll"):
        make_engine(prepared(Elsewhere(), Counter()))


WRONG = {
    "shape": ({"spec": EnvSpec("toys:Wrong", Box((3,)), Discrete(2), pure=True)}, r"reset's observation.*float32\[3\]"),
    "dtype": ({"reset": lambda self, key: (START, jnp.zeros(2, jnp.int32))}, r"reset's observation.*int32"),
    "step": ({"step": lambda self, s, a, k: (s, Transition(jnp.zeros(1), 0.0, False, False))}, "step's observation"),
    "reward": ({"step": lambda self, s, a, k: (s, Transition(jnp.zeros(2), jnp.zeros(2), False, False))}, "reward"),
    "flag": ({"step": lambda self, s, a, k: (s, Transition(jnp.zeros(2), 0.0, 0.0, False))}, "flags must be booleans"),
    "state": ({"step": lambda self, s, a, k: ((s[0], s[0]), Transition(jnp.zeros(2), 0.0, False, False))}, "the state"),
}
START = (0, 0.0)


@pytest.mark.parametrize(("wrong", "says"), WRONG.values(), ids=WRONG)
def test_an_environment_that_disagrees_with_its_spec_is_refused(wrong, says):
    env = type("Wrong", (Counter,), wrong)()
    with pytest.raises(EnvironmentFault, match=says):
        make_engine(prepared(Probe(), env))


@dataclass(frozen=True)
class Keyed(Counter):
    """Keeps a PRNG key in its state."""

    def reset(self, key):
        state, observation = super().reset(key)
        return (*state, key), observation

    def step(self, state, action, key):
        inner, transition = super().step(state[:2], action, key)
        ours, used = jax.random.split(state[2])
        return (*inner, ours), transition._replace(reward=jax.random.uniform(used))


def test_a_jax_environment_on_the_host_comes_back_with_its_keys():
    env = JaxOnHost(Keyed(), 3, 0)
    out = timestep_buffers(env.spec, (3,))
    env.reset(out)
    action = np.zeros(3, np.int32)
    for _ in range(4):
        env.step(action, out)
    snapshot = env.snapshot()
    ahead = []
    for _ in range(3):
        env.step(action, out)
        ahead.append(out.reward.copy())
    other = JaxOnHost(Keyed(), 3, 0)
    assert other.restore(snapshot, out) == []
    for expected in ahead:
        other.step(action, out)
        np.testing.assert_array_equal(out.reward, expected)
