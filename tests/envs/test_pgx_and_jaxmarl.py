"""Adapters of Pgx and JaxMARL: whose turn it is, what is seen, how episodes end; and that they train."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weft
from weft.core.errors import MissingExtra, UnknownName
from weft.envs import jaxmarl, pgx
from weft.envs.registry import open_environment

FIRST = [True] + [False] * 8


def test_players_take_turns_and_see_the_board_from_their_own_place() -> None:
    """Tic-tac-toe by hand: the mover fills the top row, the other the middle one."""
    env = pgx.load("tic_tac_toe")
    assert env.spec.agents == ("player_0", "player_1")
    state, seen = env.reset(jax.random.key(0))
    assert seen["agents"].shape == (2, 3, 3, 2)
    step, order = jax.jit(env.step), []
    for move in (0, 3, 1, 4, 2):
        mover = int(state.current_player)
        order.append(mover)
        mask = np.asarray(env.action_mask(state)).reshape(2, 9)
        assert mask[1 - mover].tolist() == FIRST
        assert mask[mover][move]
        action = jnp.zeros(2, jnp.int32).at[mover].set(move).at[1 - mover].set(8)  # what waits is ignored
        state, now = step(state, action, jax.random.key(1))
    winner = order[0]
    assert order == [winner, 1 - winner] * 2 + [winner]
    assert bool(now.terminated)
    assert not now.truncated
    assert now.reward.tolist() == ([1.0, -1.0] if winner == 0 else [-1.0, 1.0])
    own = np.asarray(now.observation["agents"])  # [player, 3, 3, (mine, theirs)]
    assert own[winner, ..., 0].sum() == 3
    np.testing.assert_array_equal(own[winner, ..., 0], own[1 - winner, ..., 1])


def test_games_for_one_are_plain() -> None:
    spec = pgx.load("minatar-breakout").spec
    assert (spec.agents, spec.action_mask, spec.observation.shape) == ((), True, (10, 10, 4))  # type: ignore[union-attr]


def test_episodes_of_jaxmarls_particle_world_are_cut() -> None:
    """It ends with the step after ``max_steps``, and that is a truncation."""
    env = jaxmarl.load("MPE_simple_spread_v3")
    assert env.spec.agents == ("agent_0", "agent_1", "agent_2")
    assert env.spec.max_episode_steps == 26
    state, seen = env.reset(jax.random.key(0))
    assert seen["agents"].shape == (3, 18)
    step = jax.jit(env.step)
    for turn in range(26):
        state, now = step(state, jnp.full(3, turn % 5, jnp.int32), jax.random.key(turn))
        assert bool(now.truncated) == (turn == 25)
        assert not now.terminated
        assert now.reward.shape == (3,)


def test_kinds_of_agents_are_teams() -> None:
    spec = jaxmarl.load("MPE_simple_tag_v3").spec
    assert {team: len(group.agents) for team, group in spec.teams.items()} == {"adversary": 3, "agent": 1}
    fewer = open_environment("jaxmarl:MPE_simple_tag_v3", num_adversaries=2).spec
    assert len(fewer.teams["adversary"].agents) == 2


PPO = weft.PPO(unroll=8, hidden=(8,), epochs=1, minibatches=1)


@pytest.mark.parametrize(
    ("algorithm", "environment"),
    [
        (weft.SelfPlay(of=PPO), "pgx:tic_tac_toe"),
        pytest.param(PPO, "jaxmarl:MPE_simple_spread_v3", marks=pytest.mark.slow),
        pytest.param(PPO, "jaxmarl:MPE_simple_tag_v3", marks=pytest.mark.slow),
    ],
)
def test_they_train(algorithm: weft.Algorithm, environment: str, tmp_path: Path) -> None:
    run = weft.train(algorithm, environment, envs=4, steps=128, root=tmp_path, run="r", quiet=True, tensorboard=False)
    assert run.summary["exit"] == "finished"
    assert run.summary["env_steps"] == 128


def test_what_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'pgx:tic_tac_toe'"):
        pgx.load("tic_tac_to")
    with pytest.raises(UnknownName, match="jaxmarl:MPE_simple_spread_v3"):
        jaxmarl.load("MPE_simple_spread_v4")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"weft\[pgx\]"):
        pgx.load("tic_tac_toe")
    with pytest.raises(MissingExtra, match=r"weft\[jaxmarl\]"):
        jaxmarl.load("storm")
