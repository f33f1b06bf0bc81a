"""Catch, Memory, Orchard and the two-step game against their rules, played slowly in NumPy or solved by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from weft.core.errors import ConfigError
from weft.core.types import Timestep
from weft.envs.autoreset import advance, begin
from weft.envs.builtin import drawing
from weft.envs.builtin.catch import Catch
from weft.envs.builtin.memory import Memory
from weft.envs.builtin.orchard import CELLS, PAIRS, Orchard, OrchardState
from weft.envs.builtin.two_step import TwoStep
from weft.envs.protocol import JaxEnv

Policy = Callable[[Any, jax.Array], jax.Array]
"""(what it may see: state and timestep, key) -> action."""


class Episodes(NamedTuple):
    """Whole episodes: one row for each policy, ``[policies, count]``."""

    returns: np.ndarray
    lengths: np.ndarray
    terminated: np.ndarray


def episodes(env: JaxEnv, policies: list[Policy], count: int) -> Episodes:
    """Play ``count`` whole episodes with each of ``policies``, from the same starts, in one compiled program."""

    def play(which: jax.Array, key: jax.Array) -> Any:
        def step(carry: Any, key: jax.Array) -> Any:
            state, timestep, live = carry
            act_key, env_key = jax.random.split(key)
            actions = jnp.stack([jnp.int32(policy((state, timestep), act_key)) for policy in policies])
            state, timestep = advance(env, state, actions[which], env_key)
            ended = timestep.terminated | timestep.truncated
            return (state, timestep, live & ~ended), (timestep.reward, timestep.terminated, ended, live)

        keys = jax.random.split(key, (env.spec.max_episode_steps or 0) + 1)
        state, timestep = begin(env, keys[0])
        return jax.lax.scan(step, (state, timestep, jnp.array(True)), keys[1:])[1]

    run = jax.jit(jax.vmap(jax.vmap(play, (None, 0)), (0, None)))
    played = run(jnp.arange(len(policies)), jax.random.split(jax.random.key(0), count))
    reward, terminated, ended, live = (np.asarray(leaf) for leaf in played)  # [policies, count, T]
    assert (live & ended).any(axis=2).all(), "an episode outlived max_episode_steps"
    return Episodes((reward * live).sum(2), live.sum(2), (terminated & live).any(2))


def randomly(actions: int) -> Policy:
    return lambda seen, key: jax.random.randint(key, (), 0, actions)


def test_catch_plays_by_its_rules() -> None:
    env, rng = Catch(), np.random.default_rng(0)
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    for seed in range(12):
        state, observation = reset(jax.random.key(seed))
        ball, paddle = int(np.argmax(np.asarray(observation)[0])), 2
        for row in range(1, 10):
            action = int(rng.integers(3))
            state, transition = step(state, jnp.int32(action), jax.random.key(0))
            paddle = min(max(paddle + action - 1, 0), 4)
            board = np.zeros((10, 5), np.float32)
            board[row, ball] = board[9, paddle] = 1
            np.testing.assert_array_equal(transition.observation, board)
            assert bool(transition.terminated) == (row == 9)
            assert not transition.truncated
            assert float(transition.reward) == (0 if row < 9 else 1 if ball == paddle else -1)


def test_catch_can_always_be_won_and_random_play_gets_what_its_docstring_says() -> None:
    def follow(seen: Any, key: jax.Array) -> jax.Array:
        state, _ = seen
        return 1 + jnp.sign(state.column - state.paddle)

    (won, random), lengths, _ = episodes(Catch(), [follow, randomly(3)], 4_000)
    assert (won == 1).all()
    assert (lengths == 9).all()
    assert abs(random.mean() + 0.6) < 0.06  # five deviations


def test_catch_starts_evenly() -> None:
    drawn = jax.jit(jax.vmap(lambda key: Catch().reset(key)[0].column))
    columns = drawn(jax.random.split(jax.random.key(1), 10_000))
    assert np.abs(np.bincount(np.asarray(columns), minlength=5) - 2_000).max() < 200  # five deviations


@pytest.mark.parametrize("env", [Memory(), Memory(cues=4, length=3)], ids=["two-cues", "four-cues"])
def test_memory_hides_the_cue_after_the_first_step(env: Memory) -> None:
    """The premise of the proof in Memory's docstring: all but the first observation is the same for each cue."""
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    rng, seen, firsts = np.random.default_rng(0), {}, {}
    for seed in range(30):
        state, first = reset(jax.random.key(seed))
        cue = int(state.cue)
        firsts[cue] = tuple(np.asarray(first).tolist())
        later, rewards = [], []
        for time in range(env.length + 2):
            state, transition = step(state, jnp.int32(rng.integers(env.cues)), jax.random.key(int(rng.integers(99))))
            later.append(np.asarray(transition.observation))
            rewards.append(float(transition.reward))
            assert bool(transition.terminated) == (time == env.length + 1)
            assert not transition.truncated
        assert not any(rewards[:-1])
        seen.setdefault(cue, np.stack(later))
        np.testing.assert_array_equal(seen[cue], later)
    assert sorted(seen) == list(range(env.cues))
    assert len(set(firsts.values())) == env.cues
    assert all((later == seen[0]).all() for later in seen.values())
    # blank for `length` steps, then the question alone
    assert not seen[0][: env.length].any()
    assert seen[0][env.length].tolist() == [0.0] * env.cues + [1.0]


@pytest.mark.parametrize("env", [Memory(), Memory(cues=4, length=3)], ids=["two-cues", "four-cues"])
def test_memory_gives_one_to_those_who_remember_and_nothing_to_others(env: Memory) -> None:
    def remembers(seen: Any, key: jax.Array) -> jax.Array:
        return seen[0].cue

    # What sight alone can do: copy what is shown now, whatever it is.
    def copies(seen: Any, key: jax.Array) -> jax.Array:
        timestep: Timestep = seen[1]
        return jnp.argmax(timestep.observation[: env.cues])

    (remembered, copied, random), lengths, _ = episodes(env, [remembers, copies, randomly(env.cues)], 4_000)
    np.testing.assert_array_equal(remembered, 1)
    assert (lengths == env.length + 2).all()
    assert abs(copied.mean()) < 0.08  # five deviations
    assert abs(random.mean()) < 0.08


def test_memory_refuses_a_size_that_means_nothing() -> None:
    with pytest.raises(ConfigError, match="cues >= 2"):
        Memory(cues=1)


def test_orchard_plays_by_its_rules() -> None:
    env, rng = Orchard(rounds=3), np.random.default_rng(0)
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    outcomes = set()
    for seed in range(40):
        state, _ = reset(jax.random.key(seed))
        basket = 3
        for time in range(1, 3 * CELLS + 1):
            before, action = state, int(rng.integers(3))
            state, transition = step(state, jnp.int32(action), jax.random.key(1_000 * seed + time))
            basket = min(max(basket + action - 1, 0), 6)
            apple, stone, row = int(state.apple), int(state.stone), time % 8
            assert int(state.basket) == basket
            assert [apple, stone] in PAIRS.tolist()
            assert row == 0 or (apple, stone) == (int(before.apple), int(before.stone))
            in_basket = range(basket, basket + 2)
            reward = (apple in in_basket) - (stone in in_basket) if row == 7 else 0
            assert float(transition.reward) == reward
            assert bool(transition.terminated) == (reward == -1)
            assert bool(transition.truncated) == (time == 24)
            np.testing.assert_array_equal(transition.observation, picture(basket, apple, stone, row))
            outcomes.add(reward)
            if transition.terminated:
                break
    assert outcomes == {-1, 0, 1}


def picture(basket: int, apple: int, stone: int, row: int) -> np.ndarray:
    field = np.empty((8, 8, 3), np.uint8)
    field[:] = drawing.NIGHT
    field[7, basket : basket + 2] = drawing.YELLOW
    field[row, stone] = drawing.GREY
    field[row, apple] = drawing.RED
    return drawing.enlarge(field, 2)


def test_orchard_is_won_by_looking_and_gives_nothing_to_those_who_do_not() -> None:
    def look(seen: Any, key: jax.Array) -> jax.Array:
        """From the pixels alone: find the apple and the stone, go under the one and not the other."""
        image = seen[1].observation[::2, ::2].astype(jnp.int32)  # [8, 8, 3]

        def column(colour: tuple[int, int, int]) -> jax.Array:
            return jnp.argmax((image == jnp.array(colour)).all(-1).any(0))

        apple, stone, basket = column(drawing.RED), column(drawing.GREY), column(drawing.YELLOW)
        target = jnp.clip(jnp.where(stone < apple, apple, apple - 1), 0, 6)
        return 1 + jnp.sign(target - basket)

    def left(seen: Any, key: jax.Array) -> jax.Array:
        return jnp.int32(0)

    returns, lengths, terminated = episodes(Orchard(), [look, left, randomly(3)], 2_000)
    assert (returns[0] == 12).all()
    assert (lengths[0] == 96).all()
    assert not terminated[0].any()
    assert np.abs(returns[1:].mean(1)).max() < 0.22  # five deviations


def test_orchard_draws_every_pair_evenly_and_symmetrically() -> None:
    """Why it gives nothing to those who do not look."""
    assert sorted(map(tuple, PAIRS[:, ::-1].tolist())) == sorted(map(tuple, PAIRS.tolist()))
    drawn = jax.jit(jax.vmap(lambda key: jnp.stack(Orchard().reset(key)[0][1:3])))
    pairs = drawn(jax.random.split(jax.random.key(2), 21_000))
    _, counts = np.unique(np.asarray(pairs), axis=0, return_counts=True)
    assert len(counts) == len(PAIRS)
    assert np.abs(counts - 500).max() < 120  # five deviations


def test_orchard_can_reach_every_apple_from_everywhere() -> None:
    """Why 12 is exact: from any place the basket gets under any apple, clear of its stone, before they land."""
    for start in range(7):
        for apple, stone in PAIRS.tolist():
            targets = [b for b in range(7) if apple in (b, b + 1) and stone not in (b, b + 1)]
            assert min(abs(b - start) for b in targets) <= CELLS - 1


def test_orchard_render_shows_the_state() -> None:
    state = OrchardState(*(jnp.int32(v) for v in (0, 5, 2, 3)))
    image = Orchard().render(state)
    assert image.shape == (256, 256, 3)
    assert tuple(image[3 * 32 + 16, 5 * 32 + 16]) == drawing.RED
    assert tuple(image[3 * 32 + 16, 2 * 32 + 16]) == drawing.GREY
    assert tuple(image[7 * 32 + 22, 32]) == drawing.YELLOW


@pytest.mark.parametrize(
    ("actions", "game", "second", "paid"),
    [(2, 0, (0, 0), 7), (2, 0, (1, 0), 7), (2, 1, (0, 0), 0), (2, 1, (0, 1), 1), (2, 1, (1, 0), 1), (2, 1, (1, 1), 8),
     (4, 2, (3, 3), 7), (4, 3, (3, 3), 8), (4, 3, (2, 3), 1), (4, 3, (2, 1), 0)],
)  # fmt: skip
def test_two_step_pays_what_it_says(actions, game, second, paid):
    """The first agent's last action leads to game 2B; the second agent's first action is idle."""
    env, key = TwoStep(actions), jax.random.key(0)
    for idle in range(actions):
        state, seen = env.reset(key)
        assert seen["state"].tolist() == [1, 0, 0]
        state, first = env.step(state, jnp.array([game, idle]), key)
        assert first.reward.tolist() == [0, 0]
        assert not first.terminated
        room = [0, 0, 1] if game == actions - 1 else [0, 1, 0]
        assert first.observation["agents"].tolist() == [room, room]
        state, last = env.step(state, jnp.array(second), key)
        assert last.reward.tolist() == [paid, paid]
        assert last.terminated
        assert not last.truncated


def test_two_step_needs_a_choice():
    with pytest.raises(ConfigError, match="needs actions >= 2, got 1"):
        TwoStep(actions=1)
