"""What the examples of dataflows compute, against values found by hand."""

from __future__ import annotations

import importlib
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weft

NOTHING: Any = None


def load(name: str) -> Any:
    return importlib.import_module(f"examples.{name}")


def bound(algorithm, environment="weft:CartPole-v1", envs=2):
    from toys import bound

    return bound(algorithm, environment, envs=envs)[0]


def unroll_of(observation, reward=1.0, ends=(), last=None, **fields: Any) -> weft.Unroll:
    """An unroll of CartPole's observations [T, B, 4]; ``ends``: (step, environment, "terminated" or "truncated")."""
    observation = np.asarray(observation, np.float32)
    shape = observation.shape[:2]
    flags = {"terminated": np.zeros(shape, bool), "truncated": np.zeros(shape, bool)}
    for step, environment, how in ends:
        flags[how][step, environment] = True
    rewards = np.full(shape, reward, np.float32)
    last = observation[-1] if last is None else np.asarray(last, np.float32)
    made = weft.Unroll(
        observation, NOTHING, NOTHING, {}, rewards, **flags, bootstrap=0 * rewards, carry=(), last_observation=last,
        last_first=NOTHING,
    )  # fmt: skip
    return made._replace(**fields)


# ---- relabel ----------------------------------------------------------------------------------------------------


def at(*positions: float) -> list[list[float]]:
    """CartPole's observations with the cart at these positions and the pole upright."""
    return [[2.4 * position, 0.0, 0.0, 0.0] for position in positions]


def test_shaping_adds_the_change_of_the_potential(here):
    ppo = load("relabel").ShapedPPO(discount=0.5)
    ends = [(1, 1, "terminated"), (1, 2, "truncated")]
    unroll = unroll_of([at(0.2, 0.2, 0.2), at(0.4, 0.4, 0.4)], ends=ends, last=at(0.6, 0.0, 0.0))
    state, shaped = ppo.relabel((), unroll)
    assert state == ()
    expected = [[1 - 0.2 + 0.2] * 3, [1 - 0.3 + 0.4, 1 + 0.4, 1 - 0.2 + 0.4]]
    np.testing.assert_allclose(shaped.reward, expected, atol=1e-6)


# ---- reward model -----------------------------------------------------------------------------------------------


def test_the_reward_model_gives_what_it_declares(here):
    judge = load("reward_model").JudgedPPO(model="numpy", share=0.75)
    unroll = unroll_of([[[1.2, 9.0, 0.0, 9.0], [0.0, 0.0, -0.1, 0.0]]])
    _, judged = judge.judge((), unroll)
    np.testing.assert_allclose(judged.extras["judged"], [[0.75, 0.75]], atol=1e-6)
    np.testing.assert_allclose(judged.reward, [[0.25 + 0.75 * 0.75] * 2], atol=1e-6)
    assert judged.reward.dtype == np.float32
    declared = judge.judged(unroll)
    assert jax.tree.structure(declared) == jax.tree.structure(judged)
    for want, have in zip(jax.tree.leaves(declared), jax.tree.leaves(judged), strict=True):
        assert (want.shape, want.dtype) == (have.shape, have.dtype)


def test_learn_finds_the_models_reward_in_the_extras(here):
    graph = bound(load("reward_model").JudgedPPO(model="numpy")).graph()
    assert set(graph.fragment("learn").input("unroll").schema.extras) == {"log_prob", "value", "judged"}
    assert set(graph.fragment("judge").input("unroll").schema.extras) == {"log_prob", "value"}
    assert not graph.fragment("judge").pure


def test_the_reward_model_is_the_same_in_pytorch(here):
    pytest.importorskip("torch")
    module = load("reward_model")
    assert module.JudgedPPO().model == "torch"
    observation = np.random.default_rng(0).normal(size=(3, 5, 4)).astype(np.float32)
    np.testing.assert_allclose(module.torch_model()(observation), module.numpy_model()(observation), atol=1e-6)


# ---- reanalyse --------------------------------------------------------------------------------------------------


def test_values_are_those_of_the_params_that_it_reads(here):
    ppo = bound(load("reanalyse").FreshPPO(hidden=(8,)))
    observation = np.random.default_rng(0).normal(size=(3, 2, 4)).astype(np.float32)
    last, bootstrap = observation[0] + 1, np.full((3, 2), 7, np.float32)
    carry = ppo.initial_carry()
    unroll = unroll_of(observation, last=last, ends=[(2, 1, "truncated")], bootstrap=bootstrap, carry=carry)
    for seed in (0, 1):
        params = ppo.init(jax.random.key(seed)).params

        def value(seen, params=params):
            return float(ppo.bootstrap(params, ppo.initial_carry(), seen))

        _, fresh = ppo.reanalyse((), unroll, params)
        expected = [[value(observation[t, b]) for b in range(2)] for t in range(3)]
        np.testing.assert_allclose(fresh.extras["value"], expected, atol=1e-5)
        after = [[7, 7], [7, 7], [value(last[0]), 7]]  # of an episode that was cut the last observation is gone
        np.testing.assert_allclose(fresh.bootstrap, after, atol=1e-5)


def test_what_a_recurrent_network_remembers_is_not_guessed(here):
    with pytest.raises(weft.ConfigError, match="recurrent"):
        bound(load("reanalyse").FreshPPO(recurrent="gru", minibatches=1))


# ---- two teams --------------------------------------------------------------------------------------------------


def test_what_red_wins_blue_loses(here):
    chase = load("two_teams").Chase(stumbles=0.0)
    ring, seen = chase.reset(jax.random.key(0))
    assert set(seen) == {"red", "blue"}
    ring = ring._replace(blue=jnp.int32(2))
    ring, moved = chase.step(ring, {"red": jnp.int32(2), "blue": jnp.int32(1)}, jax.random.key(0))
    assert (float(moved.reward["red"]), float(moved.reward["blue"])) == pytest.approx((-0.05, 0.05))
    assert not moved.terminated
    ring, moved = chase.step(ring, {"red": jnp.int32(2), "blue": jnp.int32(0)}, jax.random.key(0))
    assert (float(moved.reward["red"]), float(moved.reward["blue"])) == (1.0, -1.0)
    assert moved.terminated, "they crossed"


@pytest.mark.parametrize("learns", ["red", "blue"])
def test_the_team_that_learns_wins_and_is_called_by_its_name(learns, here):
    """By chance red gets about 0 from an episode; it reached 0.86 against a blue that does not learn, and blue 1.9."""
    module = load("two_teams")
    still = weft.PPO(learning_rate=1e-9, hidden=(8,))
    able = weft.PPO(learning_rate=2e-3, discount=0.97, hidden=(32,))
    teams = module.TwoTeams(**{team: able if team == learns else still for team in ("red", "blue")})
    run = weft.train(teams, module.Chase(), envs=32, steps=60_000, quiet=True, tensorboard=False)
    last = json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert last[f"return_mean/{learns}"] > 0.6
    assert last["return_mean/red"] == pytest.approx(-last["return_mean/blue"], abs=1e-3)
    assert set(run.params) == {"red", "blue"}


# ---- sift -------------------------------------------------------------------------------------------------------


def test_half_of_the_rows_are_those_of_so_many_unrolls_ago(here):
    ppo = bound(load("sift_role").SiftedPPO(unroll=2, hidden=(8,), keep=2), envs=4)
    graph = ppo.graph()
    fragment = graph.fragment("sift")
    assert fragment.role_name == "sift"
    stage = load("sift_role").SIFT.stage(fragment, graph)
    state = stage.init(jax.random.key(0))
    schema = graph.stream("unroll").schema
    seen = []
    for number in range(4):
        unroll = jax.tree.map(lambda s, n=number: jnp.full(s.shape, n).astype(s.dtype), schema)
        state, messages, *_ = stage.run(state, {"unroll": unroll}, {}, jnp.zeros(()))
        ((mixed,),) = messages.values()
        seen.append(np.asarray(mixed.reward[0]).tolist())
        np.testing.assert_array_equal(mixed.last_observation[:, 0], seen[-1])
        np.testing.assert_array_equal(mixed.observation[1, :, 0], seen[-1])
    assert seen == [[0, 0, 0, 0], [1, 1, 1, 1], [2, 0, 2, 0], [1, 3, 1, 3]]


def test_a_role_says_what_a_plan_may_do_with_it(here):
    with pytest.raises(weft.WeftError, match="replicates 'sift'"):
        weft.show(load("sift_role").SiftedPPO(), "weft:CartPole-v1", plan="(env+act)*2 | sift*2 | learn")
