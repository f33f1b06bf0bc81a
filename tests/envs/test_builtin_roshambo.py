"""Roshambo: its rules by hand, and its equilibrium by linear programming."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from weft.envs.builtin.roshambo import STAKES, Roshambo, RoshamboState, equilibrium, exploitability, payoffs


@pytest.mark.parametrize("worth", STAKES.tolist())
def test_a_round_gives_what_the_winning_move_is_worth(worth: list[float]) -> None:
    step, env = jax.jit(Roshambo().step), Roshambo()
    game = STAKES.tolist().index(worth)
    for one in range(3):
        for other in range(3):
            state = RoshamboState(jnp.int32(game), jnp.full(2, -1, jnp.int32), jnp.int32(env.rounds - 2))
            state, now = step(state, {"first": jnp.int32(one), "second": jnp.int32(other)}, jax.random.key(other))
            won = 0.0 if one == other else worth[one] if (one - other) % 3 == 1 else -worth[other]
            assert float(now.reward["first"]) == won
            assert float(now.reward["second"]) == -won
            assert not now.terminated
            assert not now.truncated
            assert now.observation["first"].tolist() == np.eye(3)[int(state.game)].tolist()
    assert bool(step(state, {"first": jnp.int32(0), "second": jnp.int32(0)}, jax.random.key(0))[1].truncated)


@pytest.mark.parametrize("worth", STAKES.tolist())
def test_the_equilibrium_is_what_linear_programming_finds(worth: list[float]) -> None:
    """Maximise the value v of a strategy x with x·M >= v against every reply."""
    table = np.asarray(payoffs(np.array(worth)))
    found = linprog(
        [0, 0, 0, -1],
        A_ub=np.hstack([-table.T, np.ones((3, 1))]),
        b_ub=np.zeros(3),
        A_eq=[[1, 1, 1, 0]],
        b_eq=[1],
        bounds=[(0, 1)] * 3 + [(None, None)],
    )
    np.testing.assert_allclose(found.x, [*np.asarray(equilibrium(np.array(worth))), 0.0], atol=1e-6)
    assert np.linalg.matrix_rank(table) == 2
    assert float(exploitability(equilibrium(np.array(worth)), np.array(worth))) < 1e-6


def test_exploitability_grows_with_the_distance_from_equilibrium() -> None:
    np.testing.assert_allclose(exploitability(np.full((3, 3), 1 / 3), STAKES), 2 / 3, rtol=1e-5)
    np.testing.assert_allclose(exploitability(np.eye(3), STAKES[0]), [2, 3, 1])  # paper, scissors and rock reply
    best = np.asarray(equilibrium(STAKES))
    steps = [exploitability(best + far * (np.eye(3)[0] - best), STAKES) for far in (0.0, 0.1, 0.5, 1.0)]
    assert (np.diff(np.stack(steps), axis=0) > 0).all()
    assert (np.asarray(equilibrium(STAKES)).sum(-1) == pytest.approx(1.0)) is True
