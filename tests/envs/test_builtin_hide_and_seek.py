"""HideAndSeek: sight and overlaps against slow NumPy, its rules by hand, and a fort that holds."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from weft.core.errors import ConfigError
from weft.envs.builtin import load, squares
from weft.envs.builtin.hide_and_seek import AGENT, BOX, FREE, HIDERS, LOCK, SEEKERS, UNLOCK, HideAndSeek
from weft.envs.builtin.hide_and_seek import HideAndSeekState as State

ENV = HideAndSeek(hiders=1, seekers=1, boxes=3, horizon=10)  # the first four steps prepare; it is 2.5 wide
STEP = jax.jit(ENV.step)
NONE, LEFT, RIGHT, DOWN, UP = range(5)


def placed(*position: tuple[float, float], locked: Any = (FREE,) * 3, time: int = 4) -> State:
    """Hider, seeker, three boxes, at rest."""
    return State(jnp.array(position, jnp.float32), jnp.zeros((5, 2)), jnp.array(locked, jnp.int32), jnp.int32(time))


def act(state: State, hider: int = NONE, seeker: int = NONE, steps: int = 1) -> tuple[State, Any]:
    for _ in range(steps):
        state, now = STEP(state, {"hider": jnp.array([hider]), "seeker": jnp.array([seeker])}, jax.random.key(0))
    return state, now


FAR = [(1.0, -1.0), (0.5, -1.0), (0.0, -1.0)]  # boxes out of the way


def test_sight_is_what_walking_along_the_line_finds() -> None:
    rng = np.random.default_rng(0)
    start, end, box = (rng.uniform(-1, 1, (n, 2)) for n in (20, 20, 5))
    found = np.asarray(squares.crossed(jnp.array(start), jnp.array(end), jnp.array(box), BOX))
    ways = np.linspace(0, 1, 2_000)[:, None, None, None]
    walked = start[:, None] + ways * (end[None] - start[:, None])  # [W, S, E, 2]
    deep = (BOX - np.abs(walked[..., None, :] - box)).min(-1).max(0)  # how far inside each box, at most
    clear = np.abs(deep) > 2e-3  # what a walk of 2,000 steps can tell
    assert clear.mean() > 0.98
    np.testing.assert_array_equal(found[clear], (deep > 0)[clear])
    assert 0.05 < found.mean() < 0.9
    np.testing.assert_array_equal(
        found, np.asarray(squares.crossed(jnp.array(end), jnp.array(start), jnp.array(box), BOX)).swapaxes(0, 1)
    )


def test_lines_along_an_axis_are_seen_right() -> None:
    box = jnp.array([[0.0, 0.0]])
    start, end = jnp.array([[-1.0, 0.0], [-1.0, 0.3], [0.0, -1.0]]), jnp.array([[1.0, 0.0], [1.0, 0.3], [0.0, -0.5]])
    assert np.diagonal(squares.crossed(start, end, box, 0.2)[..., 0]).tolist() == [True, False, False]


def test_nothing_overlaps_or_leaves_for_long() -> None:
    env = HideAndSeek(hiders=3, seekers=3, boxes=6, horizon=60)

    def play(key: jax.Array) -> jax.Array:
        def one(state: State, key: jax.Array) -> Any:
            moves = jax.random.randint(key, (6,), 0, 5)
            state, _ = env.step(state, {"hider": moves[:3], "seeker": moves[3:]}, key)
            return state, state.position

        return jax.lax.scan(one, env.reset(key)[0], jax.random.split(key, 60))[1]

    position = np.asarray(jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(1), 32)))  # [E, T, N, 2]
    half = np.repeat([AGENT, BOX], (6, 6))
    assert (np.abs(position) <= env.half_side - half[:, None] + 1e-5).all()
    deep = half[:, None] + half - np.abs(position[..., :, None, :] - position[..., None, :, :]).max(-1)
    deep = np.where(np.eye(12, dtype=bool), 0, deep)
    assert deep.max() < 0.12  # in a pile, and less than a body
    assert (deep > 0.02).mean() < 0.002


def test_a_box_is_pushed_unless_it_is_locked() -> None:
    start = placed((-0.4, 0.0), (1.0, 1.0), (0.0, 0.0), *FAR[1:])
    pushed, _ = act(start, hider=RIGHT, steps=10)
    assert pushed.position[2, 0] > 0.2
    assert abs(pushed.position[2, 1]) < 1e-6
    assert pushed.position[0, 0] <= pushed.position[2, 0] - AGENT - BOX + 1e-4
    held, _ = act(start._replace(locked=jnp.array([SEEKERS, FREE, FREE])), hider=RIGHT, steps=10)
    np.testing.assert_array_equal(held.position[2], start.position[2])
    assert held.position[0, 0] <= -AGENT - BOX + 1e-4


def test_only_the_team_that_locked_a_box_opens_it() -> None:
    near = placed((-0.35, 0.0), (0.35, 0.0), (0.0, 0.0), *FAR[1:])
    mine, now = act(near, hider=LOCK)
    assert mine.locked.tolist() == [HIDERS, FREE, FREE]
    assert now.observation["hider"]["agents"]["boxes"][0, 0, 4:].tolist() == [1.0, 0.0]
    assert now.observation["seeker"]["agents"]["boxes"][0, 0, 4:].tolist() == [0.0, 1.0]
    assert act(mine, seeker=UNLOCK)[0].locked.tolist() == [HIDERS, FREE, FREE]
    assert act(mine, seeker=LOCK)[0].locked.tolist() == [HIDERS, FREE, FREE]
    assert act(mine, hider=UNLOCK)[0].locked.tolist() == [FREE, FREE, FREE]
    assert act(near, seeker=LOCK)[0].locked.tolist() == [SEEKERS, FREE, FREE]
    assert act(near, hider=LOCK, seeker=LOCK)[0].locked.tolist() == [HIDERS, FREE, FREE]
    assert act(placed((-0.6, 0.5), (1.0, 1.0), (0.0, 0.0), *FAR[1:]), hider=LOCK)[0].locked.tolist() == [FREE] * 3


def test_who_is_seen_decides_and_only_after_the_preparation() -> None:
    seen = placed((-0.5, 0.5), (0.5, 0.5), *FAR)
    hidden = placed((-0.5, 0.5), (0.5, 0.5), (0.0, 0.5), *FAR[1:])
    for state, reward in ((seen, -1.0), (hidden, 1.0)):
        _, now = act(state)
        assert now.reward["hider"].tolist() == [reward]
        assert now.reward["seeker"].tolist() == [-reward]
        own = now.observation["hider"]["agents"]
        assert own["others_seen"].tolist() == [[int(reward < 0)]]
        assert own["others"].any() == (reward < 0)
        before, now = act(state._replace(time=jnp.int32(3)), seeker=LEFT, hider=DOWN)
        assert now.reward["hider"].tolist() == [0.0]
        np.testing.assert_array_equal(before.position[1], state.position[1])  # seekers stay
        assert before.position[0, 1] < state.position[0, 1]  # hiders do not
    assert bool(act(seen._replace(time=jnp.int32(9)))[1].truncated)
    assert not act(seen)[1].truncated


def test_a_fort_in_a_corner_hides_from_everywhere() -> None:
    corner, side = ENV.half_side, 2 * BOX
    fort = [(corner - 1.5 * side, corner - BOX), (corner - BOX, corner - 1.5 * side), (corner - 1.5 * side,) * 2]
    outside = np.random.default_rng(0).uniform(-corner + AGENT, corner - AGENT, (400, 2))
    outside = outside[(outside < corner - 2 * side - AGENT).any(1)]
    states = [placed((corner - BOX, corner - BOX), tuple(p), *fort, locked=(HIDERS,) * 3) for p in outside]  # type: ignore[arg-type]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    idle = {"hider": jnp.zeros((len(states), 1), jnp.int32), "seeker": jnp.zeros((len(states), 1), jnp.int32)}
    _, now = jax.jit(jax.vmap(ENV.step, (0, 0, None)))(stacked, idle, jax.random.key(0))
    assert (now.reward["hider"] == 1).all()


def test_any_number_takes_part_and_begins_apart() -> None:
    env = HideAndSeek(hiders=5, seekers=7, boxes=20)
    state, seen = env.reset(jax.random.key(0))
    assert seen["seeker"]["agents"]["others"].shape == (7, 11, 5)
    half = env._halves
    deep = half[:, None] + half - np.abs(np.asarray(state.position)[:, None] - np.asarray(state.position)).max(-1)
    assert (deep[~np.eye(len(half), dtype=bool)] < 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hiders": 0}, "hiders must be a whole number from 1 on, got 0"),
        ({"preparation": 1.0}, "preparation must be from 0 to below 1, got 1.0"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("HideAndSeek-v0", **options)
