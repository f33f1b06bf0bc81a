"""Several policies: by team, by pattern, learning or not; MAPPO's critic; values that are normalised."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from teams import Names, RedAndBlue

import weft
from weft.core.specs import Spec
from weft.graph.by_agent import for_agents
from weft.runtimes.prepare.config import RunConfig, prepare

SMALL: dict[str, Any] = {"unroll": 16, "learning_rate": 5e-3, "minibatches": 2, "hidden": (16,)}


def returns(run: weft.Run) -> dict[str, float]:
    """The last mean return of each policy."""
    last = json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[-1])
    return {k.partition("/")[2]: v for k, v in last.items() if k.startswith("return_mean/")}


def test_policies_learn_beside_others_that_do_not(tmp_path: Path) -> None:
    """Two learn, one of them for agents of both teams; one plays at random. Then one of them is frozen."""
    settings: dict[str, Any] = {"envs": 8, "steps": 12_000, "seed": 1, "root": tmp_path, "quiet": True}
    policies = weft.Policies({"red_0": weft.PPO(**SMALL), "*_[12]": weft.MAPPO(**SMALL), "blue_0": weft.Random(16)})
    run = weft.train(policies, RedAndBlue(), run="three", **settings)
    reached = returns(run)
    assert reached["red_0"] > 7
    assert reached["12"] > 7
    assert reached["blue_0"] < 4  # 2 of 8, on average
    assert set(run.teams) == {"red_0", "12", "blue_0"}

    opened = weft.load("three", root=tmp_path)
    frozen = weft.Policies({"red*": opened.frozen("red_0"), "blue*": "random"}, unroll=16)
    again = weft.train(frozen, RedAndBlue(), run="frozen", **settings | {"steps": 4_000})
    assert returns(again)["red"] > 7
    kept, was = again.params["red"], run.params["red_0"]
    jax.tree.map(np.testing.assert_array_equal, kept, was)


def test_one_algorithm_in_an_environment_with_teams_is_a_policy_for_each() -> None:
    prepared = prepare(RunConfig("ppo", RedAndBlue(), fields={"learning_rate": 1e-3}, steps=4096, envs=16))
    assert [f.name for f in prepared.graph.fragments] == ["env", "act.red", "act.blue", "learn.red", "learn.blue"]
    assert prepared.graph.fragment("learn.blue").code.of.learning_rate == 1e-3
    assert prepared.name == "policies"


def test_words_are_algorithms_with_fields() -> None:
    policies = weft.Policies({"red*": "ppo:learning_rate=1e-4,hidden=[8, 8]", "blue*": "mappo:epochs=2"})
    resolved, _ = policies.resolved("RedAndBlue", RedAndBlue().spec)
    assert resolved.of is not None
    red, blue = resolved.of["red*"], resolved.of["blue*"]
    assert isinstance(red, weft.PPO)
    assert isinstance(blue, weft.MAPPO)
    assert (red.learning_rate, blue.epochs, red.unroll) == (1e-4, 2, blue.unroll)


@pytest.mark.parametrize(
    ("policies", "words"),
    [
        ({"red*": "pppo", "blue*": "ppo"}, "unknown algorithm 'pppo'. Did you mean 'ppo'"),
        ({"red*": "ppo:learning_rat=1", "blue*": "ppo"}, "Did you mean 'learning_rate'"),
        ({"red*": "ppo:hidden=8,clip", "blue*": "ppo"}, "'clip' is no field and value"),
        ({"red*": "ppo"}, "none of 'red*' matches agent 'blue_0'"),
        ({"red*": "ppo", "*": "ppo"}, "'red*' and '*' match agent 'red_0'. Each agent needs exactly one policy"),
        ({"red*": "ppo", "blue*": "ppo", "green*": "ppo"}, "policy 'green*' matches no agent"),
        ({}, "no policies were given, and its agents are red_0"),
    ],
)
def test_what_is_refused(policies: dict[str, Any], words: str) -> None:
    with pytest.raises(weft.WeftError) as caught:
        prepare(RunConfig(weft.Policies(policies), RedAndBlue(), steps=4096, envs=16))
    assert words in str(caught.value)


def test_agents_that_see_different_things_share_no_policy() -> None:
    words = (
        r"policy 'agents' is for agents that see or do different things: 'adversary_0' sees .*\[16\].*'agent_0' sees"
    )
    with pytest.raises(weft.ConfigError, match=words):
        prepare(RunConfig(weft.Policies({"*": "ppo"}), "weft:Tag-v0", steps=4096, envs=16))


def test_policies_need_unrolls_of_one_length() -> None:
    with pytest.raises(weft.ConfigError, match=r"unrolls of the same length, got \[16, 128\]"):
        weft.Policies({"a": weft.PPO(), "b": weft.PPO(unroll=16)})


def test_a_frozen_policy_of_other_spaces_is_refused(tmp_path: Path) -> None:
    run = weft.train(weft.PPO(**SMALL), Names(), envs=8, steps=256, run="names", root=tmp_path, quiet=True)
    other = weft.Policies({"red*": run.frozen(), "blue*": "random"}, unroll=16)
    prepare(RunConfig(other, RedAndBlue(), steps=4096, envs=16))  # agents that see and do the same
    one = weft.EnvSpec("E", weft.Box((5,)), weft.Discrete(4), pure=True)
    with pytest.raises(weft.ConfigError, match="params do not fit PPO"):
        run.frozen().bind(Spec(one, 8, 1))


def test_mappo_needs_agents() -> None:
    with pytest.raises(weft.ConfigError, match=r"MAPPO has a critic that sees the state of all agents.*Use ppo"):
        prepare(RunConfig("mappo", "weft:CartPole-v1", steps=4096))


@pytest.mark.parametrize("recurrent", ["", "gru", "lstm"])
def test_only_mappos_critic_sees_the_others(recurrent: str) -> None:
    """Another observation of one agent changes the others' values, and none of their actions' probabilities."""
    spec = Names().spec
    algorithm = for_agents(weft.MAPPO(hidden=(8, 8), recurrent=recurrent, recurrent_size=8), spec).bind(
        Spec(spec, 8, 1)
    )
    params = algorithm.init(jax.random.key(0)).params
    carry, nothing = algorithm.initial_carry(), jnp.zeros(3)

    def act(seen: jax.Array) -> weft.Acted:
        timestep = weft.Timestep({"agents": seen}, nothing, jnp.bool_(False), jnp.bool_(True))
        return algorithm.act_at(params, carry, timestep, jax.random.key(1), jnp.int32(0))

    before = act(jnp.eye(4)[jnp.array([0, 1, 2])])
    after = act(jnp.eye(4)[jnp.array([3, 1, 2])])
    np.testing.assert_array_equal(before.extras["log_prob"][1:], after.extras["log_prob"][1:])
    assert (before.extras["value"][1:] != after.extras["value"][1:]).all()


def test_values_are_of_normalised_targets() -> None:
    """By hand: after targets of mean m and deviation d, the network's 0 means m, and its 1 means m + d."""
    spec = weft.EnvSpec("E", weft.Box((1,)), weft.Discrete(2), pure=True)
    algorithm = weft.PPO(unroll=2, minibatches=1, hidden=(4,), discount=0.0, normalise_values=True).bind(
        Spec(spec, 2, 1)
    )
    state = algorithm.init(jax.random.key(0))
    no = jnp.zeros((2, 2), jnp.bool_)
    reward = jnp.array([[10.0, 20.0], [30.0, 40.0]])
    ones = jnp.zeros((2, 2))
    unroll = weft.Unroll(
        observation=jnp.ones((2, 2, 1)),
        first=no,
        action=jnp.zeros((2, 2), jnp.int32),
        extras={"log_prob": ones - 0.7, "value": ones},
        reward=reward,
        terminated=~no,
        truncated=no,
        bootstrap=ones,
        carry=jax.tree.map(lambda x: jnp.stack([x, x]), algorithm.initial_carry()),
        last_observation=jnp.ones((2, 1)),
        last_first=no[0],
    )
    new, _ = algorithm.learn(state, unroll)
    values = new.params.values
    assert float(values.mean) == pytest.approx(25.0)
    assert float(jnp.sqrt(values.var)) == pytest.approx(float(reward.std()))
    raw = algorithm.net.apply(new.params.network, (), jnp.ones(1)).value
    seen = algorithm.bootstrap(new.params, algorithm.initial_carry(), jnp.ones(1))
    assert float(seen) == pytest.approx(25.0 + float(raw) * float(reward.std()), rel=1e-5)
