"""Rally: its rules by hand, its symmetry, and its yardstick against random play."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from weft.envs.builtin.rally import QUICKER, QUICKEST, SLANT, STRIDE, Rally, RallyState, follow

STAY = {"first": jnp.int32(1), "second": jnp.int32(1)}


def state(
    ball: tuple[float, float], speed: tuple[float, float], paddles: tuple[float, float] = (0.5, 0.5)
) -> RallyState:
    return RallyState(jnp.array(paddles), jnp.array(ball), jnp.array(speed), jnp.int32(0))


def step(now: RallyState, action: dict[str, jax.Array] = STAY, env: Rally | None = None):  # type: ignore[no-untyped-def]
    return jax.jit((env or Rally()).step)(now, action, jax.random.key(0))


def test_a_paddle_sends_the_ball_back_quicker_and_slanted_by_where_it_met_it() -> None:
    new, seen = step(state((0.55, 0.02), (0.0, -0.05)))
    np.testing.assert_allclose(new.speed, [SLANT * 0.5, 0.05 * QUICKER], rtol=1e-5)
    assert not seen.terminated
    assert float(seen.reward["first"]) == 0.0
    new, _ = step(state((0.55, 0.95), (0.0, QUICKEST)))
    np.testing.assert_allclose(new.speed, [SLANT * 0.5, -QUICKEST], rtol=1e-5)  # no quicker than that


@pytest.mark.parametrize(("along", "speed", "won"), [(0.02, -0.05, "second"), (0.98, 0.05, "first")])
def test_who_lets_it_pass_loses(along: float, speed: float, won: str) -> None:
    _, seen = step(state((0.8, along), (0.0, speed)))
    assert bool(seen.terminated)
    assert not seen.truncated
    assert {team: float(reward) for team, reward in seen.reward.items()} == {
        "first": 1.0 if won == "first" else -1.0,
        "second": 1.0 if won == "second" else -1.0,
    }


def test_walls_bounce_paddles_stop_and_time_cuts() -> None:
    new, _ = step(
        state((0.02, 0.5), (-0.05, 0.04), paddles=(0.0, 1.0)), {"first": jnp.int32(0), "second": jnp.int32(0)}
    )
    np.testing.assert_allclose(new.ball, [0.03, 0.54], atol=1e-6)
    np.testing.assert_allclose(new.speed, [0.05, 0.04], atol=1e-6)
    np.testing.assert_allclose(new.paddles, [0.0, 1.0])  # each one's own left is its wall
    _, seen = step(state((0.5, 0.5), (0.0, 0.04))._replace(time=jnp.int32(8)), env=Rally(horizon=9))
    assert bool(seen.truncated)
    assert not seen.terminated


def test_each_sees_the_court_from_its_own_end() -> None:
    """The game turned round, with the actions exchanged, is the same game seen by the other."""
    here = state((0.3, 0.4), (0.01, 0.05), paddles=(0.2, 0.6))
    there = state((0.7, 0.6), (-0.01, -0.05), paddles=(0.4, 0.8))
    one, seen = step(here, {"first": jnp.int32(2), "second": jnp.int32(0)})
    _, turned = step(there, {"first": jnp.int32(0), "second": jnp.int32(2)})
    np.testing.assert_allclose(seen.observation["first"], turned.observation["second"], atol=1e-6)
    np.testing.assert_allclose(seen.observation["second"], turned.observation["first"], atol=1e-6)
    assert float(one.paddles[0]) == pytest.approx(0.2 + STRIDE)
    assert float(one.paddles[1]) == pytest.approx(0.6 + STRIDE)  # its left is the other one's right


def test_the_yardstick_beats_random_play() -> None:
    env, games = Rally(), 256

    def one(key: jax.Array) -> jax.Array:
        def turn(carry, key):  # type: ignore[no-untyped-def]
            now, seen, total, over = carry
            moves = {"first": follow(seen["first"], key), "second": jax.random.randint(key, (), 0, 3)}
            now, then = env.step(now, moves, key)
            total = total + jnp.where(over, 0.0, then.reward["first"])
            return (now, then.observation, total, over | then.terminated | then.truncated), None

        start, seen = env.reset(key)
        end, _ = jax.lax.scan(turn, (start, seen, 0.0, False), jax.random.split(key, env.horizon))
        return end[2]

    won = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), games))
    assert float((won > 0).mean()) > 0.9
