"""Runs from the first step to the summary, as a user has them: ``weft.train``, and what it returns."""

import json
import re
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import SMALL, Bandit, Counter, CounterGym, Probe, started, train_state

import weft
from weft.core.errors import ConfigError, EnvironmentFault, EnvironmentRaised, LearningDiverged, RunError
from weft.core.types import Acted, TrainState
from weft.envs.fake import ScriptedEnv
from weft.nets.native import library
from weft.runtimes.policies.evaluate import evaluate_policy
from weft.runtimes.prepare.config import Settings
from weft.services.checkpoints import params_sha256

QUIET = {"quiet": True, "tensorboard": False}
FIELDS = {
    *("algorithm", "environment", "plan", "seed", "env_steps", "learn_steps", "wall_seconds", "env_steps_per_second"),
    *("episodes", "return_mean", "params_sha256", "samples", "restarts", "exit"),
}


def summary_of(root, run):
    return json.loads((root / run / "summary.json").read_text())


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def cartpole(root):
    """A finished run of PPO, compiled, with the settings that the tests of engines use."""
    return train_cartpole(root)


def train_cartpole(root, **changes):
    options = {"envs": 8, "steps": 32 * 12, "seed": 3, "run": "cartpole", **QUIET, **changes}
    return weft.train(weft.PPO(**SMALL), "weft:CartPole-v1", root=root, **options)


def test_the_summary_says_all_that_it_should(cartpole, root):
    summary = cartpole.summary
    assert set(summary) >= FIELDS
    assert (summary["algorithm"], summary["environment"], summary["seed"]) == ("ppo", "weft:CartPole-v1", 3)
    assert (summary["env_steps"], summary["learn_steps"], summary["exit"]) == (384, 12, "finished")
    assert summary["plan"] == "env+act+learn"
    assert summary["episodes"] > 5
    assert 5 < summary["return_mean"] < 100
    assert summary["wall_seconds"] > 0
    assert summary["env_steps_per_second"] > 0
    assert summary["params_sha256"] == params_sha256(cartpole.params)
    assert json.loads(json.dumps(summary_of(root, "cartpole"))) == summary_of(root, "cartpole")
    assert summary_of(root, "cartpole")["params_sha256"] == summary["params_sha256"]


def test_every_sample_is_accounted_for(cartpole):
    samples = cartpole.summary["samples"]
    assert samples["produced"] == 384
    assert samples["produced"] == samples["trained"] + sum(samples["dropped"].values()) + samples["in_flight"]


def test_metrics_are_written_in_order(cartpole, root):
    lines = [json.loads(line) for line in (root / "cartpole" / "metrics.jsonl").read_text().splitlines()]
    steps = [line["env_steps"] for line in lines]
    assert steps == sorted(set(steps))
    assert steps[-1] == 384
    assert {"loss/total", "loss/entropy", "return_mean"} <= set(lines[-1])


def test_a_finished_run_comes_back_at_once(cartpole, root):
    before = (root / "cartpole" / "metrics.jsonl").read_bytes()
    again = train_cartpole(root)
    assert again.summary["params_sha256"] == cartpole.summary["params_sha256"]
    assert again.summary["exit"] == "finished"
    assert again.summary["samples"] == cartpole.summary["samples"]
    assert (root / "cartpole" / "metrics.jsonl").read_bytes() == before
    assert params_sha256(again.params) == cartpole.summary["params_sha256"]


@pytest.mark.parametrize("changes", [{"seed": 4}, {"envs": 4}, {"learning_rate": 0.5}, {"discount": 0.5}])
def test_another_config_is_refused_with_the_difference(cartpole, root, changes):
    with pytest.raises(RunError, match=next(iter(changes))):
        train_cartpole(root, **changes)
    assert summary_of(root, "cartpole")["params_sha256"] == cartpole.summary["params_sha256"]


def test_more_steps_go_on_where_it_ended(cartpole, tmp_path):
    at_once = cartpole.summary["params_sha256"]
    part = train_cartpole(tmp_path, steps=32 * 5)
    assert part.summary["params_sha256"] != at_once
    rest = train_cartpole(tmp_path)
    assert rest.summary["params_sha256"] == at_once
    assert (rest.summary["env_steps"], rest.summary["episodes"]) == (384, cartpole.summary["episodes"])
    assert rest.summary["return_mean"] == cartpole.summary["return_mean"]
    assert rest.summary["samples"]["produced"] == 384


def test_a_run_is_loaded_and_evaluated(cartpole, root):
    loaded = weft.load("cartpole", root=root)
    assert params_sha256(loaded.params) == cartpole.summary["params_sha256"]
    assert loaded.summary["exit"] == "finished"
    by_run, by_name = weft.evaluate(cartpole, episodes=3), weft.evaluate("cartpole", root=root, episodes=3)
    assert by_run == by_name
    assert len(by_run.returns) == by_run.episodes == 3
    assert by_run.return_min <= by_run.return_mean <= by_run.return_max
    assert by_run.length_mean == by_run.return_mean  # CartPole gives 1 each step
    with pytest.raises(ConfigError, match="at least 1"):
        weft.evaluate(cartpole, episodes=0)


def test_the_policy_takes_one_observation_or_many(cartpole):
    rows = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    many = cartpole.policy(rows)
    assert many.shape == (5,)
    assert many.dtype == np.int32
    one = cartpole.policy(rows[0])
    assert one.shape == ()
    assert one == many[0]
    assert cartpole.policy(rows[0].tolist()) == one
    assert len(set(cartpole.policy(100 * rows).tolist())) == 2
    drawn = [int(cartpole.policy_for(greedy=False)(rows)[0]) for _ in range(2)]
    assert drawn[0] == drawn[1], "a fresh policy draws the same"


@pytest.mark.parametrize("wrong", [np.zeros(3), np.zeros((2, 5)), np.zeros((2, 3, 4)), {"x": np.zeros(4)}, 1.0])
def test_an_observation_of_another_shape_is_refused(cartpole, wrong):
    with pytest.raises(ConfigError, match=r"expected Box\[4\] float32"):
        cartpole.policy(wrong)


def test_several_seeds_have_their_own_results(root):
    run = train_cartpole(root, run="seeds", seed=0, seeds=2, steps=32 * 5)
    rows = run.summary["seeds"]
    assert [row["seed"] for row in rows] == [0, 1]
    assert rows[0]["params_sha256"] != rows[1]["params_sha256"]
    assert sum(row["episodes"] for row in rows) == run.summary["episodes"]
    assert run.summary["env_steps"] == 2 * 32 * 5
    assert run.policy(np.zeros((2, 4)), seed=1).shape == (2,)


def test_every_seed_can_be_evaluated_and_one_that_is_not_there_is_refused(cartpole, root):
    run = train_cartpole(root, run="both", seed=7, seeds=2, steps=32 * 5)
    played = [weft.evaluate(run, episodes=3, seed=k, greedy=False) for k in range(2)]
    assert played[0] == weft.evaluate("both", root=root, episodes=3, greedy=False)
    assert played[1] == evaluate_policy(run.policy_for(1, greedy=False), run.source, episodes=3, seed=7)
    assert played[0] != played[1]
    for wrong in (2, 7, -1):
        for ask in (lambda k: weft.evaluate(run, seed=k), lambda k: run.policy(np.zeros(4), seed=k), run.policy_for):
            with pytest.raises(ConfigError, match=rf"seed={wrong}: run 'both' was trained with 2 seeds: seed=0 to 1"):
                ask(wrong)
    for ask in (lambda k: weft.evaluate(cartpole, seed=k), lambda k: cartpole.policy(np.zeros(4), seed=k)):
        with pytest.raises(ConfigError, match=r"seed=5: run 'cartpole' was trained with one seed"):
            ask(5)


@dataclass(frozen=True)
class Scaled(Probe):
    """A fragment of its own halves the rewards, and counts the unrolls that it saw."""

    def graph(self):
        return super(Probe, self).graph().insert("scale", halve, lambda key: jnp.zeros((), jnp.int32))


def halve(count, unroll):
    return count + 1, unroll._replace(reward=0.5 * unroll.reward)


@pytest.mark.parametrize("loop", ["compiled", "hosted"])
def test_a_fragment_of_ones_own(loop, tmp_path):
    env = Counter(3) if loop == "compiled" else make_counter

    def train(learn_steps):
        return weft.train(Scaled(), env, root=tmp_path, run="mine", envs=2, steps=8 * learn_steps, **QUIET)

    assert train(3).summary["plan"] == "env+act+scale+learn"
    record = json.loads((tmp_path / "mine" / "metrics.jsonl").read_text().splitlines()[0])
    assert record["loss/reward"] == 0.5 * (11 + 12 + 13 + 11) / 4
    run = train(5)  # goes on
    assert run.params["weight"] == 2.0 + 5
    engine = started(Scaled(), env, envs=2)
    from weft.services import checkpoints

    restored = checkpoints.load_latest(tmp_path / "mine" / "checkpoints", engine.template(), pytest.fail)
    engine.close()
    assert restored is not None
    assert int(restored[0].fragments["scale"]) == 5


def make_counter():
    return CounterGym(3)


@dataclass(frozen=True)
class Reinforce(weft.Algorithm):
    """Williams 1992: as a user would write it."""

    unroll: int = 8
    learning_rate: float = 0.2

    @property
    def optimizer(self):
        return optax.sgd(self.learning_rate)

    def init(self, key):
        params = jnp.zeros(self.spec.environment.action.n)
        return TrainState(params, self.optimizer.init(params), jnp.int32(0), key)

    def act(self, params, carry, timestep, key):
        return Acted(jax.random.categorical(key, params).astype(jnp.int32))

    def learn(self, state, batch):
        def loss(params):
            log_prob = jax.nn.log_softmax(params)[batch.action]
            return -(log_prob * (batch.reward - 0.25)).mean()

        value, gradient = jax.value_and_grad(loss)(state.params)
        changes, optimizer = self.optimizer.update(weft.mean_over_replicas(gradient), state.optimizer)
        params = optax.apply_updates(state.params, changes)
        return TrainState(params, optimizer, state.step + 1, state.key), {"loss": value}


def test_an_algorithm_of_ones_own_learns(tmp_path):
    run = weft.train(Reinforce(), Bandit(best=2), envs=16, steps=128 * 100, root=tmp_path, run="bandit", **QUIET)
    assert run.summary["return_mean"] > 0.9
    assert np.bincount(run.policy(np.ones((100, 1)))).argmax() == 2  # without ``greedy`` of its own, it draws
    assert run.summary["algorithm"] == "test_train:Reinforce"
    assert weft.evaluate(run, episodes=40).return_mean > 0.8


def test_a_reward_that_is_not_a_number_never_reaches_the_params():
    engine = started(Probe(), Counter(length=100, bad_reward_at=10), envs=2)
    kept, reports = [], []
    for _ in range(4):
        reports.append(engine.advance(1)())
        kept.append(float(train_state(engine).params["weight"]))
    assert kept == [3.0, 4.0, 4.0, 5.0]
    assert [r.finite for r in reports] == [True, True, False, True]
    assert [r.rewards_finite for r in reports] == [True, True, False, True]


def test_a_reward_that_is_not_a_number_ends_the_run(tmp_path):
    env = Counter(length=100, bad_reward_at=10)
    with pytest.raises(EnvironmentFault, match=r"'toys:Counter' gave a reward that is not a finite number"):
        weft.train(Probe(), env, root=tmp_path, run="bad", envs=2, steps=8 * 5, **QUIET)
    summary = summary_of(tmp_path, "bad")
    assert summary["exit"] == "failed"
    assert "reward" in summary["error"]


def test_a_host_environment_that_raises_ends_the_run_where_that_is_asked_for(tmp_path):
    def act(env, action):
        if env.total == 9:
            raise ZeroDivisionError("mine")

    def make():
        return ScriptedEnv(act=act)

    with pytest.raises(EnvironmentRaised, match="number 0 raised ZeroDivisionError") as caught:
        weft.train(Probe(), make, root=tmp_path, run="bad", envs=2, steps=80, env_errors="fail", **QUIET)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert summary_of(tmp_path, "bad")["exit"] == "failed"


def linear_init(key):
    return {"policy": jnp.ones((2, 2)), "value": jnp.ones(2)}


def linear_apply(params, observation):
    return observation @ params["policy"], observation @ params["value"]


def test_a_learning_rate_without_measure_is_called_that(tmp_path):
    algorithm = weft.PPO(**{**SMALL, "learning_rate": 1e30}, network=(linear_init, linear_apply))
    with pytest.raises(LearningDiverged, match="stopped being finite"):
        weft.train(algorithm, Counter(), root=tmp_path, run="far", envs=2, steps=8 * 10, **QUIET)
    assert summary_of(tmp_path, "far")["exit"] == "failed"


def negated_apply(params, observation):
    return -(observation @ params["policy"]), observation @ params["value"]


def train_counter(root, *, apply=linear_apply, env=make_counter, steps=8 * 2):
    algorithm = weft.PPO(**SMALL, network=(linear_init, apply))
    return weft.train(algorithm, env, root=root, run="mine", envs=2, steps=steps, **QUIET)


def test_another_network_of_the_same_shapes_is_refused_and_the_same_one_resumes(tmp_path):
    train_counter(tmp_path)
    with pytest.raises(RunError, match=r"code\.algo\.network\.1\.function: .*linear_apply.* → .*negated_apply"):
        train_counter(tmp_path, apply=negated_apply, steps=8 * 3)
    assert train_counter(tmp_path, steps=8 * 3).summary["env_steps"] == 8 * 3
    written = json.loads((tmp_path / "mine" / "config.json").read_text())
    assert "network" not in written["algo"]
    assert written["code"]["algo"]["network"]["0"]["function"] == "test_train:linear_init"


def test_another_lambda_or_object_as_the_environment_is_refused(tmp_path):
    train_counter(tmp_path / "host", env=lambda: CounterGym(length=3))
    with pytest.raises(RunError, match=r"code\.environment\.source: \"sha256:\w+\" → \"sha256:\w+\""):
        train_counter(tmp_path / "host", env=lambda: CounterGym(length=4), steps=8 * 3)
    train_counter(tmp_path / "pure", env=Counter(length=3))
    with pytest.raises(RunError, match=r"code\.environment\.length: 3 → 4"):
        train_counter(tmp_path / "pure", env=Counter(length=4), steps=8 * 3)
    assert train_counter(tmp_path / "pure", env=Counter(length=3), steps=8 * 3).summary["env_steps"] == 8 * 3


def test_a_run_of_before_there_was_code_in_the_config_goes_on(tmp_path):
    train_counter(tmp_path)
    path = tmp_path / "mine" / "config.json"
    config = json.loads(path.read_text())
    assert config.pop("code")
    path.write_text(json.dumps(config))
    assert train_counter(tmp_path, steps=8 * 3).summary["env_steps"] == 8 * 3
    assert json.loads(path.read_text())["code"]["algo"]["network"]


@dataclass(frozen=True)
class Linear(weft.PPO):
    """A network of its own as the default of a field: a run of it can be loaded by name."""

    network: Any = (linear_init, linear_apply)


def test_code_in_the_config_is_not_taken_for_the_object(tmp_path):
    options = {"root": tmp_path, "run": "mine", "envs": 2, "steps": 8 * 2, **QUIET}
    run = weft.train(Linear(**SMALL), f"{__name__}:make_counter", **options)
    loaded = weft.load("mine", root=tmp_path)
    assert loaded.algorithm.network == (linear_init, linear_apply)
    assert params_sha256(loaded.params) == run.summary["params_sha256"]
    assert weft.evaluate(loaded, episodes=2) == weft.evaluate(run, episodes=2)


def test_a_network_that_a_folder_cannot_hold_is_given_again(tmp_path):
    algorithm = weft.PPO(**SMALL, network=(linear_init, lambda params, seen: linear_apply(params, seen)))
    options = {"root": tmp_path, "run": "mine", "envs": 2, "steps": 8 * 2, **QUIET}
    run = weft.train(algorithm, f"{__name__}:make_counter", **options)
    with pytest.raises(RunError, match=r"object for network, .* weft\.load\('mine', network=\.\.\.\)"):
        weft.load("mine", root=tmp_path)
    with pytest.raises(ConfigError, match="folder says what clip was"):
        weft.load("mine", root=tmp_path, network=algorithm.network, clip=0.1)
    loaded = weft.load("mine", root=tmp_path, network=algorithm.network)
    assert params_sha256(loaded.params) == run.summary["params_sha256"]
    assert weft.evaluate(loaded, episodes=2) == weft.evaluate(run, episodes=2)
    with pytest.warns(UserWarning, match="network is not what it was trained with"):
        weft.load("mine", root=tmp_path, network=(linear_init, negated_apply))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"steps": 1.5e0}, "steps must be a whole number or None, got 1.5"),
        ({"steps": float("inf")}, "steps must be a whole number or None, got inf"),
        ({"envs": "8"}, "envs must be a whole number or None, got '8'"),
        ({"seed": None}, "seed must be a whole number, got None"),
        ({"seeds": True}, "seeds must be a whole number, got True"),
        ({"lockstep": 1}, "lockstep must be True or False, got 1"),
        ({"checkpoint_seconds": "soon"}, "checkpoint_seconds must be a number, got 'soon'"),
        ({"run": 5}, "run must be text or None, got 5"),
        ({"plan": 5}, "plan must be text or a weft.Plan, got 5"),
        ({"env_options": 5}, "env_options must be a dict, got 5"),
        ({"unroll": 12.5}, "PPO.unroll must be a whole number, got 12.5"),
        ({"activation": 3}, "unknown activation 3"),
    ],
)
def test_what_is_of_another_kind_is_refused_by_name_and_leaves_no_folder(given, words, tmp_path):
    with pytest.raises(ConfigError, match=f"^{re.escape(words)}"):
        weft.train("ppo", "weft:CartPole-v1", root=tmp_path / "runs", **given)
    assert not (tmp_path / "runs").exists()


def test_numpys_numbers_will_do(root):
    changes = {"envs": np.int64(8), "steps": np.int32(32 * 12), "seed": np.int64(3), "run": "numpy"}
    algorithm = weft.PPO(**{**SMALL, "unroll": np.int64(SMALL["unroll"]), "clip": np.float32(0.25)})
    run = weft.train(algorithm, "weft:CartPole-v1", root=root, **changes, **QUIET)
    assert run.summary["env_steps"] == 384
    assert weft.load("numpy", root=root).algorithm.clip == 0.25


def test_what_has_no_effect_is_said(tmp_path, capsys):
    options = {
        "root": tmp_path,
        "envs": 8,
        "steps": 32,
        "tensorboard": False,
        "ring": 4,
        "channel": "tcp",
        "max_lag": 2,
    }
    weft.train(weft.PPO(**SMALL), "weft:CartPole-v1", **options)
    said = " ".join(capsys.readouterr().err.split())
    for name, value in (("ring", 4), ("channel", "tcp"), ("max_lag", 2)):
        assert f"{name}={value} has no effect: the plan 'env+act+learn' runs in one process" in said
    assert "hang_seconds" not in said


@pytest.mark.parametrize("trouble", ["no C++ compiler", ""])
def test_images_that_take_longer_than_they_need_to_are_said_to(trouble, tmp_path, capsys, monkeypatch):
    if trouble:
        monkeypatch.setattr(library, "trouble", lambda: trouble)
    options = {"root": tmp_path, "envs": 8, "steps": 32, "tensorboard": False}
    weft.train(weft.PPO(**SMALL), "weft:Orchard-v0", **options, run="images")
    said = " ".join(capsys.readouterr().err.split())
    assert ("which would be about three times as fast: no C++ compiler" in said) == bool(trouble)
    weft.train(weft.PPO(**SMALL), "weft:CartPole-v1", **options, run="numbers")
    assert "kernels" not in capsys.readouterr().err


@dataclass(frozen=True)
class Unseeing(Counter):
    """Its observations become NaN at ``blind_at``; its rewards stay finite."""

    blind_at: int = 0

    def step(self, state, action, key):
        state, transition = super().step(state, action, key)
        seen = jnp.where(state[0] >= self.blind_at, jnp.nan, transition.observation)
        return state, transition._replace(observation=seen)


def test_observations_of_a_jax_environment_are_named_as_a_cause(tmp_path):
    env, options = Unseeing(length=1000, blind_at=10), {"root": tmp_path, "run": "blind", "envs": 2, **QUIET}
    algorithm = weft.PPO(**SMALL)
    with pytest.raises(LearningDiverged, match=r"Nothing of it was saved\. There is no checkpoint yet") as caught:
        weft.train(algorithm, env, steps=8 * 10, **options)
    assert "smaller learning_rate" in str(caught.value)
    assert "check the observations of environment 'toys:Counter'" in str(caught.value)
    options["run"] = "later"
    weft.train(algorithm, env, steps=8 * 2, **options)
    with pytest.raises(LearningDiverged, match=r"Nothing of it was saved: the last checkpoint is good"):
        weft.train(algorithm, env, steps=8 * 10, **options)


def test_observations_of_a_host_environment_are_checked_and_not_named_as_a_cause(tmp_path):
    with pytest.raises(LearningDiverged, match="There is no checkpoint yet") as caught:
        weft.train(Overflowing(), make_counter, root=tmp_path, run="far", envs=2, steps=8 * 4, **QUIET)
    assert "observations of environment" not in str(caught.value)


@pytest.mark.parametrize(
    ("algorithm", "plan", "lockstep"),
    [
        ("PPO", "env*2 | act | learn", True),
        pytest.param("PPO", "(env+act)*2 | learn", False, marks=pytest.mark.slow),
        pytest.param("A2C", "(env+act+grad) | apply", False, marks=pytest.mark.slow),
    ],
)
def test_in_workers_too(algorithm, plan, lockstep, tmp_path):
    """Nothing is published any more, and whoever waits for new params waits in vain: the run must end all the same."""
    fields = {name: SMALL[name] for name in ("unroll", "hidden")}
    made = getattr(weft, algorithm)(**fields, learning_rate=1e38)
    options = {"plan": plan, "lockstep": lockstep, "envs": 8, "steps": 32 * 2000, **QUIET}
    with pytest.raises(LearningDiverged, match="stopped being finite"):
        weft.train(made, "weft:CartPole-v1", root=tmp_path, run="far", **options)
    assert summary_of(tmp_path, "far")["exit"] == "failed"


@dataclass(frozen=True)
class Overflowing(Probe):
    """Its params grow until they overflow, while its metrics stay finite."""

    def learn(self, state, batch):
        return state._replace(params={"weight": state.params["weight"] * 1e30}), {"zero": jnp.float32(0.0)}


@pytest.mark.parametrize("loop", ["compiled", "hosted"])
def test_params_that_overflow_are_never_saved(loop, tmp_path):
    env = Counter() if loop == "compiled" else make_counter
    with pytest.raises(LearningDiverged, match="the params stopped being finite"):
        weft.train(Overflowing(), env, root=tmp_path, run="far", envs=2, steps=8 * 4, **QUIET)
    assert list((tmp_path / "far" / "checkpoints").iterdir()) == []


@dataclass(frozen=True)
class Broken(Probe):
    def learn(self, state, batch):
        raise TypeError("my mistake")


def test_a_mistake_in_the_users_algorithm_is_theirs_and_leaves_a_summary(tmp_path):
    with pytest.raises(TypeError, match="my mistake"):
        weft.train(Broken(), Counter(), root=tmp_path, run="broken", envs=2, steps=80, **QUIET)
    assert summary_of(tmp_path, "broken")["exit"] == "failed"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"envs": 0}, "envs must be at least 1"),
        ({"seed": -1}, "seed must be"),
        ({"seed": 2**31}, "seed must be"),
        ({"seeds": 2, "plan": "(env+act+learn)*2"}, "seeds=2"),
        ({"on": "moon"}, "no runtime"),
        ({"on": "processes:0"}, "between 1 and 64"),
    ],
    ids=lambda x: "-".join(x) if isinstance(x, dict) else "",
)
def test_what_cannot_be_run_is_refused_before_anything_is_made(changes, says, tmp_path):
    with pytest.raises(ConfigError, match=says):
        weft.train(weft.PPO(**SMALL), Counter(), **{"root": tmp_path, "envs": 2, "steps": 8, **QUIET, **changes})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_checkpoints_cannot_be_less_than_no_time_apart(seconds):
    with pytest.raises(ConfigError, match="checkpoint_seconds must be at least 0, got "):
        Settings(checkpoint_seconds=seconds)
    assert Settings(checkpoint_seconds=0.0).checkpoint_seconds == 0.0
