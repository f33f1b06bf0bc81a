"""What every JAX environment promises, whoever wrote it: one suite for all of them."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from weft.core.specs import Box, Discrete, EnvSpec, MultiBinary, MultiDiscrete, SpaceTree
from weft.core.types import Timestep
from weft.envs import builtin, gymnax, jaxmarl
from weft.envs.autoreset import advance, begin
from weft.envs.protocol import JaxEnv, Transition

OTHERS = ("jaxmarl:MPE_simple_spread_v3",)  # Pgx's games say no limit: tests/envs/test_pgx_and_jaxmarl.py
NAMES = [*(f"weft:{name}" for name in builtin.BUILTIN), "gymnax:CartPole-v1", "gymnax:Breakout-MinAtar", *OTHERS]
BATCH = 4
STARTS = 512
ALWAYS_ALIKE = {"weft:TwoStep-v0"}  # nothing is drawn at its reset

each_env = pytest.mark.parametrize("name", NAMES)


class Play(NamedTuple):
    """Random play with auto-reset, compiled and batched: ``[T, BATCH, ...]``."""

    state: Any  # before the step
    action: Any  # as a policy gives it; of several teams, by team
    timestep: Timestep


@cache
def made(name: str) -> JaxEnv:
    scheme, _, rest = name.partition(":")
    loads: Any = {"weft": builtin.load, "gymnax": gymnax.load, "jaxmarl": jaxmarl.load}
    return loads[scheme](rest)


def draw(space: Any, key: jax.Array) -> Any:
    """A random action; of several teams, a dict of theirs."""
    match space:
        case dict():
            keys = jax.random.split(key, len(space))
            return {team: draw(one, k) for (team, one), k in zip(space.items(), keys, strict=True)}
        case Discrete(n=n):
            return jax.random.randint(key, (), 0, n, jnp.int32)
        case MultiDiscrete(nvec=nvec):
            return jax.random.randint(key, (len(nvec),), 0, jnp.array(nvec), jnp.int32)
    assert isinstance(space, Box)
    return jax.random.uniform(key, space.shape, jnp.float32, -1.0, 1.0)


def by_team(spec: EnvSpec, what: Any) -> Any:
    """``what(spec)`` of an environment; of several teams, a dict of theirs."""
    return {team: what(one) for team, one in spec.teams.items()} or what(spec)


def promised(tree: SpaceTree) -> Any:
    """Shapes and dtypes of what belongs to a space tree."""
    if isinstance(tree, dict):
        return {k: promised(v) for k, v in tree.items()}
    return (tree.shape, tree.dtype)


def leaves(tree: Any, space: SpaceTree) -> Any:
    """Pairs of an array and its space."""
    if isinstance(space, dict):
        assert set(tree) == set(space)
        return [pair for k in space for pair in leaves(tree[k], space[k])]
    return [(np.asarray(tree), space)]


@cache
def play(name: str) -> Play:
    env = made(name)
    steps = (env.spec.max_episode_steps or 100) + 20  # at least one end in each column

    def one(state: Any, key: jax.Array) -> Any:
        act_key, env_key = jax.random.split(key)
        action = draw(env.spec.action, act_key)
        stepped, timestep = advance(env, state, action, env_key)
        return stepped, Play(state, action, timestep)

    def run(key: jax.Array) -> Play:
        state, _ = jax.vmap(lambda k: begin(env, k))(jax.random.split(key, BATCH))
        keys = jax.random.split(key, (steps, BATCH))
        played: Play = jax.lax.scan(jax.vmap(one), state, keys)[1]
        return played

    return jax.jit(run)(jax.random.key(1))


@cache
def started(name: str) -> Any:
    """Many resets, compiled and batched, from the splits of key 5: (states, observations)."""
    return jax.jit(jax.vmap(made(name).reset))(jax.random.split(jax.random.key(5), STARTS))


def native(env: JaxEnv, action: Any) -> Any:
    return env.spec.to_native(action, jnp)


def typed(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), tree)


def assert_same(one: Any, other: Any, tolerance: float = 0.0) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


@each_env
def test_the_spec_tells_the_true_shapes_and_dtypes(name: str) -> None:
    env, key = made(name), jax.random.key(0)
    assert env.spec.name == name
    assert env.spec.pure
    assert env.spec.max_episode_steps
    seen = promised(env.spec.observation)
    rewards = by_team(env.spec, lambda spec: (spec.reward_shape, "float32"))
    none = by_team(env.spec, lambda spec: jnp.zeros(spec.native_action.shape, spec.native_action.dtype))
    state, observation = jax.eval_shape(env.reset, key)
    stepped, transition = jax.eval_shape(env.step, state, none, key)
    assert typed(observation) == seen
    assert typed(transition) == Transition(seen, rewards, ((), "bool"), ((), "bool"))
    assert typed(stepped) == typed(state)
    assert jax.tree.structure(stepped) == jax.tree.structure(state)
    # Weak types would compile every loop twice.
    assert not any(leaf.weak_type for leaf in jax.tree.leaves((state, observation, stepped, transition.observation)))


@each_env
def test_observations_are_inside_their_space_and_numbers_are_finite(name: str) -> None:
    env, timestep = made(name), play(name).timestep
    for observation in (timestep.observation, timestep.final_observation):
        for values, space in leaves(observation, env.spec.observation):
            assert np.isfinite(values).all()
            low, high = (0, 1) if isinstance(space, MultiBinary) else (space.low, space.high)
            assert (values >= low).all()
            assert (values <= high).all()
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(timestep.reward))


@each_env
def test_episodes_end_within_their_limit(name: str) -> None:
    env, timestep = made(name), play(name).timestep
    limit = env.spec.max_episode_steps
    assert limit is not None
    ended = np.asarray(timestep.first)
    assert ended.any(axis=0).all()
    for column in ended.T:
        ends = np.concatenate([[-1], np.nonzero(column)[0]])
        assert np.diff(ends).max() <= limit


@each_env
def test_where_an_episode_ends_the_next_begins(name: str) -> None:
    played = play(name)
    ended = np.asarray(played.timestep.first)[:-1]
    fresh = jax.tree.map(lambda leaf: np.asarray(leaf)[1:][ended], played.state)
    if hasattr(fresh, "time"):
        assert not fresh.time.any()
    # A first observation lies in the range of first observations; the last of an episode is kept apart.
    firsts = jax.tree.leaves(started(name)[1])
    for leaf, first in zip(jax.tree.leaves(played.timestep.observation), firsts, strict=True):
        shown = np.asarray(leaf)[:-1][ended].astype(np.float64)
        low, high = np.asarray(first, np.float64).min(0), np.asarray(first, np.float64).max(0)
        slack = 0.1 * (high - low).max() + 1e-6
        assert (shown >= low - slack).all()
        assert (shown <= high + slack).all()


@each_env
def test_it_is_deterministic_and_the_same_compiled_batched_or_neither(name: str) -> None:
    env, played = made(name), play(name)
    states, actions = jax.tree.map(lambda leaf: leaf[3], (played.state, played.action))
    keys = jax.random.split(jax.random.key(5), BATCH)
    batched = jax.jit(jax.vmap(lambda s, a, k: env.step(s, native(env, a), k)))
    together = batched(states, actions, keys)
    assert_same(together, batched(states, actions, keys))
    state, action = jax.tree.map(lambda leaf: leaf[0], (states, actions))
    alone = env.step(state, native(env, action), keys[0])
    assert_same(jax.tree.map(lambda leaf: leaf[0], together), alone, 1e-5)  # fused or not, a rounding apart

    first_key = jax.random.split(jax.random.key(5), STARTS)[0]
    assert_same(jax.tree.map(lambda leaf: leaf[0], started(name)), env.reset(first_key), 1e-6)
    assert_same(env.reset(first_key), env.reset(first_key))


@each_env
def test_a_reset_depends_on_its_key(name: str) -> None:
    states, _ = started(name)
    assert (name not in ALWAYS_ALIKE) == any(
        len(np.unique(np.asarray(leaf), axis=0)) > 1 for leaf in jax.tree.leaves(states)
    )


@each_env
def test_it_renders_to_pixels_if_it_renders(name: str) -> None:
    env, played = made(name), play(name)
    render = getattr(env, "render", None)
    assert (render is not None) == name.startswith("weft:")
    if render is None:
        return
    frames = []
    for time in (0, 3):
        frame = render(jax.tree.map(lambda leaf, time=time: leaf[time, 0], played.state))
        assert isinstance(frame, np.ndarray)
        assert frame.dtype == np.uint8
        assert frame.ndim == 3
        assert frame.shape[2] == 3
        assert 200 <= frame.shape[1] <= 400
        assert 200 <= frame.shape[0] <= 400
        frames.append(frame)
    assert (frames[0] != frames[1]).any()
