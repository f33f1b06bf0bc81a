"""Fragments of one's own in one process: pure or host code, none, one or several messages, with states and params."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import SMALL, Counter, CounterGym, Probe, last_unroll, prepared, same, started, train_state, with_recorder

import weft
from weft.core.errors import EnvironmentFault, GraphError, WeftError
from weft.envs.jax_on_host import JaxOnHostFactory
from weft.envs.protocol import EnvSource
from weft.graph.loops import on_policy
from weft.runtimes.compiled.engine import FusedEngine
from weft.runtimes.hosted.engine import HostedEngine
from weft.runtimes.loop.counters import Counters
from weft.runtimes.loop.engines import make_engine
from weft.services import checkpoints

ENVS, T = 2, 4
STEPS = ENVS * T  # of one unroll


def on_host(**options):
    env = Counter(**options)
    return EnvSource("toys:Counter", env.spec, host=JaxOnHostFactory(env))


WORLDS = {"jax": Counter, "host": on_host, "gymnasium": lambda: CounterGym}
worlds = pytest.mark.parametrize("world", WORLDS)
hosts = pytest.mark.parametrize("host", [False, True], ids=["pure", "host"])


@dataclass(frozen=True)
class Mapped(Probe):
    """A Probe with maps of the test's own, and then the recorder."""

    maps: tuple[Any, ...] = ()  # (name, step, options of insert)
    recorder: bool = True

    def graph(self):
        graph = on_policy(self)
        for name, step, options in self.maps:
            graph = graph.insert(name, step, **options)
        return with_recorder(graph) if self.recorder else graph


def probe(*maps, **fields):
    return Mapped(maps=tuple((name, step, options[0] if options else {}) for name, step, *options in maps), **fields)


def begun(algorithm, world, **config):
    return started(algorithm, WORLDS[world](), envs=ENVS, **config)


def doubled(state, unroll):
    return state, unroll._replace(reward=unroll.reward * 2)


def unrolls_of(algorithm, world, count=3):
    """The first unrolls that learn gets, and the metric of each learn call."""
    engine = begun(algorithm, world)
    found, means = [], []
    for _ in range(count):
        report = engine.advance(1)()
        found.append(last_unroll(engine))
        means += list(report.metrics["reward"])
    engine.close()
    return found, means


@worlds
def test_host_code_gets_numpy_and_learn_gets_what_it_makes_of_it(world):
    seen = []

    def step(state, unroll):
        leaves = jax.tree.leaves(unroll)
        seen.append([(type(leaf) is np.ndarray and leaf.flags.writeable) for leaf in leaves])
        unroll.reward[...] *= 2  # its own: nobody else's reward changes
        return state, unroll

    plain, means = unrolls_of(probe(), world)
    found, changed = unrolls_of(probe(("mine", step, {"host": True})), world)
    assert len(seen) == 3
    assert all(all(leaves) for leaves in seen)
    for before, after in zip(plain, found, strict=True):
        np.testing.assert_array_equal(before.reward * 2, after.reward)
        assert same(before._replace(reward=0), after._replace(reward=0))
    np.testing.assert_allclose(changed, np.multiply(means, 2))


@worlds
def test_host_code_may_keep_what_it_was_given(world):
    kept = []

    def step(state, unroll):
        kept.append(unroll)
        return state, unroll

    found, _ = unrolls_of(probe(("mine", step, {"host": True})), world)
    assert all(same(a, b) for a, b in zip(kept, found, strict=True))


@worlds
def test_pure_and_host_code_do_the_same(world):
    pure, _ = unrolls_of(probe(("mine", doubled)), world)
    host, _ = unrolls_of(probe(("mine", doubled, {"host": True})), world)
    assert all(same(a, b) for a, b in zip(pure, host, strict=True))


def test_which_engine_runs_a_graph():
    assert isinstance(make_engine(prepared(probe(("mine", doubled)), Counter())), FusedEngine)
    assert isinstance(make_engine(prepared(probe(("mine", doubled, {"host": True})), Counter())), HostedEngine)


def every_second(state, unroll):
    return state + 1, [unroll] if state % 2 == 0 else []


EVERY_SECOND = ("filter", every_second, {"init": lambda key: 0, "host": True})


@worlds
def test_a_map_that_gives_none_for_every_second_unroll(world):
    engine = begun(probe(EVERY_SECOND), world)
    counters = Counters()
    for asked in (3, 2):
        report = engine.advance(asked)()
        assert report.learn_steps == asked
        counters.take(report)
    saved = engine.saved()[0]
    engine.close()
    assert float(saved.fragments["learn"].params["weight"]) == 2 + 5
    assert saved.fragments["filter"] == 9, "five of nine unrolls got through"
    assert counters.env_steps == 9 * STEPS
    assert counters.ledger.to_json() == {
        "produced": 9 * STEPS,
        "trained": 5 * STEPS,
        "dropped": {"filtered": 4 * STEPS},
        "in_flight": 0,
    }


def test_a_map_that_gives_none_for_long_is_told_of(monkeypatch):
    monkeypatch.setattr("weft.runtimes.hosted.engine.MAX_UNLEARNED", 5)

    def step(state, unroll):
        return state + 1, [unroll] if state % 8 == 7 else []

    engine = begun(probe(("miser", step, {"init": lambda key: 0, "host": True})), "jax")
    told = []
    engine.warn = told.append
    assert engine.advance(2)().env_steps == 16 * STEPS
    engine.close()
    assert told == ["nothing of the last 5 unrolls reached learn: miser gave no message for them"] * 2


def test_a_run_with_a_filter_makes_all_its_learn_steps(tmp_path):
    algorithm = probe(EVERY_SECOND, recorder=False)
    run = weft.train(
        algorithm, Counter(), envs=ENVS, steps=6 * STEPS, run="filtered", root=tmp_path, quiet=True, tensorboard=False
    )
    samples = run.summary["samples"]
    assert run.summary["learn_steps"] == 6
    assert samples["trained"] == 6 * STEPS
    assert samples["produced"] == run.summary["env_steps"] == samples["trained"] + samples["dropped"]["filtered"]


def twice(state, unroll):
    return state, [unroll, unroll._replace(reward=-unroll.reward)]


@hosts
def test_several_messages_for_one_unroll(host):
    engine = begun(probe(("twice", twice, {"host": host})), "jax")
    report = engine.advance(4)()
    assert isinstance(engine, HostedEngine if host else FusedEngine)
    assert (report.learn_steps, report.env_steps) == (4, 2 * STEPS), "from the first dispatch on"
    assert float(train_state(engine).params["weight"]) == 2 + 4
    assert (last_unroll(engine).reward < 0).all(), "the second comes last"
    more = engine.advance(3)()
    assert more.learn_steps == 4, "the messages of an unroll are all learned from"
    engine.close()


@hosts
@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_a_run_with_several_messages_stops_where_it_was_asked_to(host, seconds, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "weft.runtimes.loop.execution.DISPATCH_SECONDS", seconds
    )  # 0: one learn call is asked for at a time
    algorithm = probe(("twice", twice, {"host": host}), recorder=False)
    run = weft.train(
        algorithm, Counter(), envs=ENVS, steps=10 * STEPS, run="twice", root=tmp_path, quiet=True, tensorboard=False
    )
    assert run.summary["learn_steps"] == 10
    assert run.summary["env_steps"] == 5 * STEPS
    assert run.summary["samples"]["trained"] == 10 * STEPS


def averaged(state, unroll):
    """Rewards less their running mean, in the precision of the state."""
    count, mean = state
    mean = mean + (unroll.reward.mean() - mean) / (count + 1)
    return (count + 1, mean), unroll._replace(reward=(unroll.reward - mean).astype(np.float32))


AVERAGED = {
    "compiled": ("jax", ("mean", averaged, {"init": lambda key: (jnp.int32(0), jax.random.uniform(key))})),
    "jax, host map": ("jax", ("mean", averaged, {"init": lambda key: (0, np.float64(1 / 3)), "host": True})),
    "host, pure map": ("host", ("mean", averaged, {"init": lambda key: (jnp.int32(0), jax.random.uniform(key))})),
    "host, host map": ("host", ("mean", averaged, {"init": lambda key: (0, np.float64(1 / 3)), "host": True})),
}


@pytest.mark.parametrize(("world", "map_"), AVERAGED.values(), ids=AVERAGED)
def test_the_states_of_maps_are_resumed_exactly(world, map_, tmp_path):
    algorithm = probe(map_)
    engine = begun(algorithm, world)
    engine.advance(2)()
    checkpoints.save(tmp_path, 2, *engine.saved())
    engine.advance(2)()
    whole = jax.device_get(engine.saved()[0])
    engine.close()
    again = make_engine(prepared(algorithm, WORLDS[world](), envs=ENVS))
    restored = checkpoints.load_latest(tmp_path, again.template(), pytest.fail)
    assert restored is not None
    assert again.resume(restored[0], restored[1]) == []
    again.advance(2)()
    other = jax.device_get(again.saved()[0])
    again.close()
    assert same(whole, other)
    count, mean = whole.fragments["mean"]
    assert count == 4
    assert "host map" not in map_ or mean.dtype == np.float64


@worlds
@hosts
def test_a_map_reads_the_newest_params(world, host):
    def step(state, unroll, params):
        assert not host or type(params["weight"]) is np.ndarray
        return state, unroll._replace(reward=unroll.reward * 0 + params["weight"])

    _, means = unrolls_of(probe(("reads", step, {"reads": "learn", "host": host})), world)
    assert means == [2.0, 3.0, 4.0]


def tenfold(state, params):
    return state + 1, {"weight": params["weight"] * 10}


TENFOLD = {"init": lambda key: jnp.int32(0), "on": "params"}


@worlds
@hosts
def test_a_map_on_params_changes_what_act_gets_and_not_what_learn_has(world, host):
    plain, _ = unrolls_of(probe(), world)
    algorithm = probe(("tenfold", tenfold, {**TENFOLD, "host": host}))
    found, _ = unrolls_of(algorithm, world)
    for k, (before, after) in enumerate(zip(plain, found, strict=True)):
        value = before.bootstrap[-1]  # weight * observation + 100 * steps
        seen = np.where(before.truncated[-1], 3, before.last_observation[:, 0])
        np.testing.assert_allclose(after.bootstrap[-1], value + 9 * (2 + k) * seen)
        assert same(before._replace(bootstrap=0), after._replace(bootstrap=0))
    engine = begun(algorithm, world)
    engine.advance(3)()
    tree = engine.saved()[0]
    engine.close()
    assert int(tree.fragments["tenfold"]) == 3, "once for each version that act got"
    assert float(tree.fragments["learn"].params["weight"]) == 5


@worlds
@hosts
def test_a_map_reads_params_that_another_map_changed(world, host):
    def step(state, unroll, params):
        return state, unroll._replace(reward=unroll.reward * 0 + params["weight"])

    maps = ("tenfold", tenfold, TENFOLD), ("reads", step, {"reads": "tenfold", "host": host})
    _, means = unrolls_of(probe(*maps), world)
    assert means == [20.0, 30.0, 40.0]


@pytest.mark.parametrize("world", ["jax", "host"])
def test_seeds_side_by_side_have_maps_of_their_own(world):
    def doubled_weight(state, params):  # were both seeds' weights given together, it would add up the two
        return state, {"weight": params["weight"] + params["weight"].sum()}

    def step(state, unroll, params):
        return state + 1, [unroll, unroll._replace(reward=unroll.reward.cumsum(0) + params["weight"])]

    maps = (
        ("sum", doubled_weight, {"on": "params"}),
        ("mine", step, {"init": lambda key: jnp.int32(0), "reads": "sum"}),
    )
    reports, trees = [], []
    for seeds in (0, 2):
        engine = begun(probe(*maps), world, seeds=seeds)
        reports.append(engine.advance(4)())
        trees.append(jax.device_get(engine.saved()[0].fragments))
        engine.close()
    alone, both = trees
    assert [r.learn_steps for r in reports] == [4, 4]
    assert same(alone["recorder"], jax.tree.map(lambda x: x[0], both["recorder"]))
    assert not same(alone["recorder"], jax.tree.map(lambda x: x[1], both["recorder"]))
    np.testing.assert_array_equal(both["mine"], [2, 2])
    np.testing.assert_array_equal(both["learn"].params["weight"], [6, 6])
    np.testing.assert_array_equal(reports[0].metrics["reward"], reports[1].metrics["reward"][:, 0])


def test_params_that_pass_unchanged_are_not_given_away_twice():
    """A program's inputs that come out as they are share their memory, and learn's states are given away to it."""
    maps = (
        ("same", lambda state, params: (state, params), {"on": "params"}),
        ("reads", lambda state, unroll, params: (state, unroll), {"reads": "same"}),
    )
    _, means = unrolls_of(probe(*maps), "host")
    assert len(means) == 3


def test_host_code_on_params_must_give_some():
    algorithm = probe(("none", lambda state, params: (state, []), {"on": "params", "host": True}))
    engine = begun(algorithm, "jax")
    with pytest.raises(GraphError, match="'none' gave no params"):
        engine.advance(1)
    engine.close()


WRONG = {
    "dtype": (lambda u: u._replace(reward=u.reward.astype(np.int32)), r"at \.reward expected float32.*got int32"),
    "axes": (lambda u: u._replace(reward=u.reward[..., None]), r"at \.reward expected float32\[4, 2\]"),
    "structure": (lambda u: u._replace(extras={}), "expected the structure"),
    "one leaf shorter": (lambda u: u._replace(reward=u.reward[1:]), r"at \.reward expected .*got float32\[3, 2\]"),
    "one of fewer environments": (lambda u: u._replace(carry=u.carry[:1]), r"at \.carry"),
}


@worlds
@pytest.mark.parametrize(("change", "says"), WRONG.values(), ids=WRONG)
def test_host_code_that_gives_something_else_is_refused_when_it_does(world, change, says):
    algorithm = probe(("wrong", lambda state, unroll: (state, change(unroll)), {"host": True}))
    engine = begun(algorithm, world)
    with pytest.raises(GraphError, match=f"'wrong' gave a message that is not what it declares.*{says}"):
        engine.advance(1)
    engine.close()


def test_host_code_that_gives_no_pair_is_refused():
    engine = begun(probe(("wrong", lambda state, unroll: unroll, {"host": True})), "jax")
    with pytest.raises(GraphError, match=r"step must return \(state, message\), got Unroll"):
        engine.advance(1)
    engine.close()


@dataclass(frozen=True)
class Bonus(Probe):
    """Host code adds a field to the extras, and learn uses it."""

    host: bool = True

    def learn(self, state, batch):
        state, _ = super().learn(state, batch)
        return state, {"bonus": batch.extras["bonus"].mean()}

    def graph(self):
        def step(state, unroll):
            return state, unroll._replace(extras={**unroll.extras, "bonus": unroll.reward * 3})

        def gives(schema):
            return schema._replace(extras={**schema.extras, "bonus": schema.reward})

        return on_policy(self).insert("bonus", step, host=self.host, gives=gives if self.host else None)


@worlds
@hosts
def test_a_map_may_add_what_learn_wants(world, host):
    engine = begun(Bonus(host=host), world)
    report = engine.advance(1)()
    engine.close()
    assert report.metrics["bonus"] == pytest.approx(3 * np.mean([11, 12, 13, 11]))


@hosts
def test_bad_rewards_are_the_environment_s_only_where_it_gave_them(host, tmp_path):
    def train(name, environment, step):
        algorithm = probe(("mine", step, {"host": host}), recorder=False)
        weft.train(  # three learn steps: as many bad ones in a row end a run
            algorithm, environment, envs=ENVS, steps=3 * STEPS, run=name, root=tmp_path, quiet=True, tensorboard=False
        )

    def spoil(state, unroll):
        return state, unroll._replace(reward=unroll.reward * np.float32(np.nan))

    def repair(state, unroll):
        return state, unroll._replace(reward=jnp.nan_to_num(unroll.reward))

    with pytest.raises(WeftError, match="stopped being finite") as caught:
        train("spoiled", Counter(), spoil)
    assert not isinstance(caught.value, EnvironmentFault)
    with pytest.raises(EnvironmentFault, match="gave a reward that is not a finite number"):
        train("repaired", Counter(bad_reward_at=2), repair)


def gradients(name, step, **options):
    """An A2C with a map between its halves."""

    @dataclass(frozen=True)
    class OnGradients(weft.A2C):
        def graph(self):
            return super().graph().insert(name, step, on="gradients", **options)

    return OnGradients(unroll=T, hidden=(8,))


def params_after(algorithm, world, learn_steps=3):
    engine = begun(algorithm, world)
    engine.advance(learn_steps)()
    params = jax.device_get(train_state(engine).params)
    engine.close()
    return params


@pytest.mark.parametrize("world", ["jax", "host"])
def test_a_map_on_gradients_parts_learn_and_changes_nothing_else(world):
    plain = params_after(weft.A2C(unroll=T, hidden=(8,)), world)
    for host in (False, True):
        parted = params_after(gradients("look", lambda state, message: (state, message), host=host), world)
        for left, right in zip(jax.tree.leaves(plain), jax.tree.leaves(parted), strict=True):
            np.testing.assert_allclose(left, right, atol=1e-5)  # other programs: sums in another order


@hosts
def test_a_map_on_gradients_decides_what_is_applied(host, tmp_path):
    def stop(state, message):
        return state + 1, message._replace(tree=jax.tree.map(lambda g: g * 0, message.tree))

    algorithm = gradients("stop", stop, init=lambda key: jnp.int32(0), host=host)
    engine = begun(algorithm, "jax")
    before = jax.device_get(train_state(engine).params)
    engine.advance(3)()
    tree = engine.saved()[0]
    engine.close()
    assert same(before, tree.fragments["apply"].params)
    assert int(tree.fragments["stop"]) == int(tree.fragments["apply"].step) == 3


def test_a_run_whose_learn_is_parted_by_a_map_has_a_policy(tmp_path):
    algorithm = gradients("look", lambda state, message: (state, message))
    run = weft.train(
        algorithm,
        "weft:CartPole-v1",
        envs=ENVS,
        steps=4 * STEPS,
        run="parted",
        root=tmp_path,
        quiet=True,
        tensorboard=False,
    )
    assert run.summary["learn_steps"] == 4
    assert run.policy(np.zeros(4, np.float32)) in (0, 1)


@pytest.mark.parametrize("environment", ["weft:CartPole-v1", "CartPole-v1"])
def test_replicas_share_the_state_of_a_pure_map(environment):
    @dataclass(frozen=True)
    class Relabelled(weft.PPO):
        def graph(self):
            return super().graph().insert("twice", lambda s, u: (s + 1, [u, u]), init=lambda key: jnp.int32(0))

    engine = started(Relabelled(**SMALL), environment, envs=8, plan="(env+act+twice+learn)*4")
    report = engine.advance(4)()
    tree = engine.saved()[0]
    engine.close()
    assert report.learn_steps == 4
    assert int(tree.fragments["twice"]) == 2
