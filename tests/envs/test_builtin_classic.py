"""CartPole, Pendulum, Acrobot and MountainCar against Gymnasium's own, step for step.

Gymnasium computes in float64 and rounds the observation; ours is float32 throughout. So the same equations are compared
twice: with JAX in float64, where a step from the same state must agree to 1e-7 (the rounding of Gymnasium's
observation), and in float32 as they are used, where a step agrees to a few roundings and runs left to themselves drift
apart slowly. Each case states the two float32 tolerances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from weft.core.specs import Box, Discrete
from weft.envs.builtin import load
from weft.envs.builtin.acrobot import AcrobotState
from weft.envs.builtin.cartpole import CartPoleState
from weft.envs.builtin.mountain_car import MountainCarState
from weft.envs.builtin.pendulum import PendulumState


@dataclass(frozen=True)
class Case:
    name: str
    state: Callable[[jax.Array, jax.Array], Any]  # (Gymnasium's state vector, steps made) -> ours
    wide: tuple[tuple[float, ...], tuple[float, ...]]  # bounds of states that reach clips, walls and ends
    reset: tuple[tuple[float, ...], tuple[float, ...]]  # bounds of the first state
    dying: tuple[float, ...] | None  # a state whose next step terminates
    one_step: float  # absolute and relative tolerance of a step from the same state
    free_run: float  # absolute tolerance after `run` steps without correction
    run: int


CASES = [
    Case(
        "CartPole-v1",
        CartPoleState,
        ((-2.4, -3, -0.209, -3), (2.4, 3, 0.209, 3)),
        ((-0.05,) * 4, (0.05,) * 4),
        (2.39, 3.0, 0.0, 0.0),
        1e-6,
        1e-5,
        100,
    ),
    Case(
        "Pendulum-v1",
        lambda s, t: PendulumState(s[0], s[1], t),
        ((-30, -8), (30, 8)),
        ((-np.pi, -1), (np.pi, 1)),
        None,
        1e-5,
        2e-3,
        200,
    ),
    Case(
        "Acrobot-v1",
        AcrobotState,
        ((-np.pi, -np.pi, -12, -28), (np.pi, np.pi, 12, 28)),
        ((-0.1,) * 4, (0.1,) * 4),
        (3.0, 0.0, 0.0, 0.0),
        5e-4,  # at 28 radians a second one step amplifies a rounding a hundredfold
        1e-3,
        100,
    ),
    Case(
        "MountainCar-v0",
        MountainCarState,
        ((-1.2, -0.07), (0.5, 0.07)),
        ((-0.6, 0.0), (-0.4, 0.0)),
        (0.49, 0.06),
        1e-6,
        1e-5,
        200,
    ),
]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


class Records(NamedTuple):
    """What Gymnasium did, one row a step (or [episodes, steps])."""

    state: np.ndarray[Any, Any]  # before the step, float64
    time: np.ndarray[Any, Any]  # steps made before it
    action: np.ndarray[Any, Any]
    observation: np.ndarray[Any, Any]
    reward: np.ndarray[Any, Any]
    terminated: np.ndarray[Any, Any]
    truncated: np.ndarray[Any, Any]


def stack(rows: list[Any]) -> Records:
    return Records(*(np.stack([np.asarray(row[i]) for row in rows]) for i in range(len(Records._fields))))


def put(env: Any, state: Any, time: int) -> None:
    """Bring Gymnasium's environment into a state, ``time`` steps into its episode."""
    env.reset()
    env.unwrapped.state = np.asarray(state, np.float32).astype(np.float64)  # a state that float32 can hold
    env._elapsed_steps = time


def play(env: Any, action: Any) -> tuple[Any, ...]:
    state, time = np.array(env.unwrapped.state, np.float64), env._elapsed_steps
    return (state, time, action, *env.step(action)[:4])


@cache
def oracle(name: str) -> Any:
    env = gymnasium.make(name, disable_env_checker=True)
    env.reset(seed=0)
    env.action_space.seed(0)
    return env


@cache
def our_step(case: Case) -> Any:
    env = load(case.name)
    key = jax.random.key(0)

    def step(state: jax.Array, time: jax.Array, action: jax.Array) -> Any:
        return env.step(case.state(state, time), action, key)[1]

    return jax.jit(jax.vmap(step))


def ours(case: Case, records: Records) -> Any:
    return our_step(case)(
        jnp.asarray(records.state, jnp.float32), jnp.asarray(records.time, jnp.int32), jnp.asarray(records.action)
    )


@contextmanager
def float64() -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", False)


def assert_agree(case: Case, records: Records) -> None:
    with float64():
        exact = our_step(case)(records.state, jnp.asarray(records.time, jnp.int32), records.action)
    assert exact.observation.dtype == jnp.float64
    np.testing.assert_allclose(exact.observation, records.observation, 1e-7, 1e-7)
    np.testing.assert_allclose(exact.reward, records.reward, 1e-9, 1e-9)
    np.testing.assert_array_equal(exact.terminated, records.terminated)
    np.testing.assert_array_equal(exact.truncated, records.truncated)

    transition = ours(case, records)
    np.testing.assert_allclose(transition.observation, records.observation, case.one_step, case.one_step)
    np.testing.assert_allclose(transition.reward, records.reward, case.one_step, case.one_step)
    np.testing.assert_array_equal(transition.terminated, records.terminated)
    np.testing.assert_array_equal(transition.truncated, records.truncated)


@each_case
def test_the_spec_is_gymnasiums(case: Case) -> None:
    env, spec = oracle(case.name), load(case.name).spec
    assert isinstance(spec.observation, Box)
    assert spec.observation.shape == env.observation_space.shape
    assert spec.observation.dtype == env.observation_space.dtype
    np.testing.assert_array_equal(spec.observation.low, env.observation_space.low)
    np.testing.assert_array_equal(spec.observation.high, env.observation_space.high)
    assert spec.max_episode_steps == env.spec.max_episode_steps
    if isinstance(spec.native_action, Discrete):
        assert spec.native_action.n == env.action_space.n
    else:
        np.testing.assert_array_equal(np.broadcast_to(spec.native_action.low, (1,)), env.action_space.low)
        np.testing.assert_array_equal(np.broadcast_to(spec.native_action.high, (1,)), env.action_space.high)


@each_case
def test_each_step_of_many_episodes_agrees(case: Case) -> None:
    env, rows = oracle(case.name), []
    env.reset(seed=1)
    for _ in range(3_000):
        rows.append(play(env, env.action_space.sample()))
        if rows[-1][-1] or rows[-1][-2]:
            env.reset()
    assert_agree(case, stack(rows))


@each_case
def test_steps_from_all_over_the_state_space_agree(case: Case) -> None:
    env, rng, rows = oracle(case.name), np.random.default_rng(2), []
    limit = env.spec.max_episode_steps
    for _ in range(2_000):
        put(env, rng.uniform(*case.wide), int(rng.integers(limit)))
        rows.append(play(env, env.action_space.sample()))
    records = stack(rows)
    assert_agree(case, records)
    # Not a comparison of quiet states only: both ends, and their absence, are among them.
    assert 0 < records.truncated.sum() < len(rows)
    assert case.dying is None or 0 < records.terminated.sum() < len(rows)


@each_case
def test_left_to_itself_it_drifts_only_by_rounding(case: Case) -> None:
    env, episodes, steps = oracle(case.name), 16, case.run
    env.action_space.seed(0)  # whichever tests have drawn from it before
    starts = [np.array((env.reset(seed=seed), env.unwrapped.state)[1], np.float64) for seed in range(episodes)]
    rows = []
    for start in starts:
        put(env, start, 0)
        row = [play(env, env.action_space.sample())]
        while len(row) < steps:  # past its end an episode only repeats its last record
            row.append(row[-1] if row[-1][-1] or row[-1][-2] else play(env, env.action_space.sample()))
        rows.append(stack(row))
    records = stack(rows)
    jax_env = load(case.name)

    def run(start: jax.Array, actions: jax.Array) -> Any:
        def advance(state: Any, action: jax.Array) -> Any:
            return jax_env.step(state, action, jax.random.key(0))

        return jax.lax.scan(advance, case.state(start, jnp.zeros((), jnp.int32)), actions)[1]

    transition = jax.jit(jax.vmap(run))(jnp.asarray(np.stack(starts), jnp.float32), jnp.asarray(records.action))
    ended = records.terminated | records.truncated
    live = np.cumsum(ended, axis=1) - ended == 0  # up to and with the step that ended it
    np.testing.assert_allclose(
        np.asarray(transition.observation)[live], records.observation[live], rtol=0, atol=case.free_run
    )
    np.testing.assert_array_equal(np.asarray(transition.terminated)[live], records.terminated[live])
    np.testing.assert_array_equal(np.asarray(transition.truncated)[live], records.truncated[live])
    # the return of what was lived: errors add up, hence the longer tolerance
    np.testing.assert_allclose((transition.reward * live).sum(1), (records.reward * live).sum(1), rtol=1e-3)


@each_case
def test_the_time_limit_truncates_even_what_terminates(case: Case) -> None:
    env, rows = oracle(case.name), []
    limit = env.spec.max_episode_steps
    calm = tuple((low + high) / 2 for low, high in zip(*case.reset, strict=True))
    action = env.action_space.sample() * 0 + (2 if case.name == "MountainCar-v0" else 1)
    for time in (limit - 2, limit - 1):
        for state in (calm, case.dying):
            if state is not None:
                put(env, state, time)
                rows.append(play(env, action))
    records = stack(rows)
    assert_agree(case, records)
    expected = [(False, False), (True, False), (False, True), (True, True)]
    expected = expected if case.dying is not None else expected[::2]
    got = ours(case, records)
    assert list(zip(got.terminated.tolist(), got.truncated.tolist(), strict=True)) == expected


@each_case
def test_resets_are_uniform_within_gymnasiums_bounds(case: Case) -> None:
    env, count = load(case.name), 20_000
    states, observations = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(3), count))
    assert not np.asarray(states.time).any()
    columns = np.concatenate([np.asarray(leaf).reshape(count, -1) for leaf in states[:-1]], axis=1)
    for values, low, high in zip(columns.T, *case.reset, strict=True):
        assert low - 1e-6 <= values.min()
        assert values.max() <= high + 1e-6
        if low < high:  # Kolmogorov-Smirnov: 2.2 / sqrt(20,000) is passed by chance once in 10,000
            distance = np.abs(np.sort((values - low) / (high - low)) - (np.arange(count) + 0.5) / count).max()
            assert distance < 0.0156
    varying = columns[:, np.ptp(columns, axis=0) > 0]
    correlation = np.atleast_2d(np.corrcoef(varying.T))
    assert np.abs(correlation - np.eye(varying.shape[1])).max() < 0.03  # four deviations
    # the observation is that of the state, as Gymnasium would show it
    oracle_env = oracle(case.name)
    for i in range(5):
        put(oracle_env, columns[i], 0)
        shown = oracle_env.unwrapped.state
        if case.name == "Pendulum-v1":
            shown = oracle_env.unwrapped._get_obs()
        elif case.name == "Acrobot-v1":
            shown = oracle_env.unwrapped._get_ob()
        np.testing.assert_allclose(observations[i], shown, rtol=1e-6, atol=1e-6)


def test_pendulum_clips_torque_beyond_its_bounds() -> None:
    env = load("Pendulum-v1")
    state, _ = env.reset(jax.random.key(0))
    strong, full = (env.step(state, jnp.array([torque]), jax.random.key(0)) for torque in (9.0, 2.0))
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), strong, full))
