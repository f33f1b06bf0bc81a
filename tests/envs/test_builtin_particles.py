"""Spread and Tag against mpe2, the maintained successor of PettingZoo's MPE, which computes them in NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mpe2 import simple_spread_v3, simple_tag_v3

from weft.core.errors import ConfigError, UnknownName
from weft.envs.builtin import load, particles
from weft.envs.builtin.spread import Spread, SpreadState
from weft.envs.builtin.tag import Tag, TagState

EPISODES = 2  # one as mpe2 begins it, one with all close together


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    """mpe2 computes in float64, and contacts are so stiff that a rounding of float32 grows to 1e-4 in an episode."""
    with jax.enable_x64(True):
        yield


def state_of(oracle: Any, time: int, dtype: Any = np.float64) -> Any:
    """Where everything is in mpe2's world, as our state."""
    world = oracle.unwrapped.world
    position = jnp.array([a.state.p_pos for a in world.agents], dtype)
    velocity = jnp.array([a.state.p_vel for a in world.agents], dtype)
    marks = jnp.array([m.state.p_pos for m in world.landmarks], dtype).reshape(-1, 2)
    if not hasattr(world.agents[0], "adversary"):
        return SpreadState(position, velocity, marks, jnp.int32(time))
    hunted = sum(not a.adversary for a in world.agents)
    return TagState(position, velocity, marks, jnp.ones(hunted, jnp.bool_), jnp.int32(time))


def in_order(tree: Any, part: str = "") -> np.ndarray:
    """The numbers of all agents, one after another, as mpe2 has them: adversaries first."""
    rows = tree.values() if isinstance(tree, dict) and "adversary" in tree else [tree]
    return np.concatenate([np.ravel(row[part] if part else row) for row in rows])


def same(oracle: Any, env: Any, free: bool = True, dtype: Any = np.float64) -> int:
    """Play both by the same random actions and compare them at every step; the contacts on the way.

    ``free``: each goes its own way from the same start. Otherwise every step begins where the oracle is.
    """
    step, rng, touched = jax.jit(env.step), np.random.default_rng(0), 0
    continuous = bool(getattr(env, "continuous", False))
    for seed in range(EPISODES):
        oracle.reset(seed=seed)
        for agent in oracle.unwrapped.world.agents if seed % 2 else ():
            agent.state.p_pos *= 0.15  # so close that they touch
        seen = {name: oracle.unwrapped.observe(name) for name in oracle.possible_agents}
        state = state_of(oracle, 0, dtype)
        first = env._observe(state)
        np.testing.assert_allclose(in_order(first, "agents"), np.concatenate(list(seen.values())), atol=1e-6)
        for time in range(1, env.horizon + 1):
            names = oracle.possible_agents
            if continuous:
                actions = rng.random((len(names), 5)).astype(np.float32)
            else:
                actions = rng.integers(0, 5, len(names)).astype(np.int32)
            if not free:
                state = state_of(oracle, time - 1, dtype)
            given = actions if isinstance(env, Spread) else by_team(env, actions)
            state, transition = step(state, jax.tree.map(jnp.asarray, given), None)
            seen, rewards, ended, cut, _ = oracle.step(
                {n: a if continuous else int(a) for n, a in zip(names, actions, strict=True)}
            )
            there = state_of(oracle, time)
            for ours, theirs in zip(state[:2], there[:2], strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-5)
            np.testing.assert_allclose(
                in_order(transition.observation, "agents"), np.concatenate(list(seen.values())), atol=1e-5
            )
            np.testing.assert_allclose(in_order(transition.reward), list(rewards.values()), atol=1e-5)
            assert bool(transition.truncated) == all(cut.values())
            assert bool(transition.terminated) == any(ended.values())
            size = np.array([agent.size for agent in oracle.unwrapped.world.agents])
            apart = np.linalg.norm(there.position[:, None] - there.position[None], axis=-1)
            touched += int((apart < size[:, None] + size).sum()) - len(names)
    return touched


def by_team(env: Tag, actions: np.ndarray) -> dict[str, np.ndarray]:
    return {"adversary": actions[: env.adversaries], "agent": actions[env.adversaries :]}


SPREADS = {
    "three": (Spread(), {}),
    "one": (Spread(agents=1), {"N": 1}),
    "many": (Spread(agents=7, horizon=15, local_ratio=0.2), {"N": 7, "max_cycles": 15, "local_ratio": 0.2}),
    "nearest": (
        Spread(agents=5, sees=2),
        {"N": 5, "num_agent_neighbors": 2, "num_landmark_neighbors": 2},
    ),
    "fewer": (Spread(agents=2, sees=4), {"N": 2, "num_agent_neighbors": 4, "num_landmark_neighbors": 4}),
    "continuous": (Spread(agents=4, continuous=True), {"N": 4, "continuous_actions": True}),
}
TAGS = {
    "default": (Tag(), {}),
    "many": (Tag(4, 3, 1), {"num_adversaries": 4, "num_good": 3, "num_obstacles": 1}),
    "open": (Tag(2, 2, 0), {"num_adversaries": 2, "num_good": 2, "num_obstacles": 0}),
    "nearest": (Tag(5, 4, sees=3), {"num_adversaries": 5, "num_good": 4, "num_agent_neighbors": 3}),
    "fewer": (Tag(1, 1, sees=4), {"num_adversaries": 1, "num_good": 1, "num_agent_neighbors": 4}),
    "continuous": (Tag(horizon=10, continuous=True), {"continuous_actions": True, "max_cycles": 10}),
}


@pytest.mark.parametrize("name", SPREADS)
def test_spread_is_mpe2s_step_for_step(name: str) -> None:
    env, options = SPREADS[name]
    touched = same(simple_spread_v3.parallel_env(**options), env)
    assert touched or env.agents < 3  # or the contacts were not tried


@pytest.mark.parametrize("name", TAGS)
def test_tag_is_mpe2s_step_for_step(name: str) -> None:
    env, options = TAGS[name]
    touched = same(simple_tag_v3.parallel_env(**options), env)
    assert touched or env.adversaries < 3


@pytest.mark.parametrize(
    ("env", "oracle"), [(Spread(agents=5), simple_spread_v3.parallel_env(N=5)), (Tag(), simple_tag_v3.parallel_env())]
)
def test_in_single_precision_each_step_is_within_a_rounding_of_mpe2s(env: Any, oracle: Any) -> None:
    assert same(oracle, env, free=False, dtype=np.float32)


def test_the_nearest_are_found_in_order_and_only_once() -> None:
    rng = np.random.default_rng(1)
    points = rng.random((40, 2)).round(1)  # many ties, and some in the same place
    there = rng.random(40) < 0.8
    index, exists = particles.nearest(jnp.array(points), jnp.array(points), 9, among=True, there=jnp.array(there))
    apart = np.linalg.norm(points[:, None] - points[None], axis=-1)
    for i, row in enumerate(np.asarray(index)):
        assert exists[i].all()
        assert len(set(row)) == 9
        assert i not in row
        assert there[row].all()
        others = there & (np.arange(40) != i)
        np.testing.assert_allclose(apart[i, row], np.sort(apart[i, others])[:9])
    _, exists = particles.nearest(jnp.zeros((2, 2)), jnp.zeros((3, 2)), 4)
    assert exists.tolist() == [[True, True, True, False]] * 2


def test_who_is_caught_leaves_until_the_episode_ends() -> None:
    env = Tag(adversaries=1, agents=2, obstacles=0, leave=True)
    step = jax.jit(env.step)
    place = jnp.array([[0.0, 0.0], [0.1, 0.0], [-0.5, 0.0]])
    state = TagState(place, jnp.zeros((3, 2)), jnp.zeros((0, 2)), jnp.ones(2, jnp.bool_), jnp.int32(0))
    still = {"adversary": jnp.zeros(1, jnp.int32), "agent": jnp.zeros(2, jnp.int32)}
    state, now = step(state, still, None)
    assert now.reward["agent"].tolist() == [-10.0, 0.0]
    assert now.reward["adversary"].tolist() == [10.0]
    assert now.observation["agent"]["present"].tolist() == [0, 1]
    assert not now.observation["agent"]["agents"][0].any()  # it sees nothing,
    assert not now.observation["adversary"]["agents"][0, 4:6].any()  # and is not seen,
    assert now.observation["adversary"]["agents"][0, 6] < 0  # as the other is
    assert not now.terminated
    before, stays = state.velocity[0], state.position[1]
    state, now = step(state, still, None)
    assert now.reward["agent"].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(state.velocity[0], 0.75 * before)  # it is not pushed by who is gone
    np.testing.assert_array_equal(state.position[1], stays)
    state = state._replace(position=state.position.at[2].set(state.position[0] + 0.05))
    state, now = step(state, still, None)
    assert now.terminated
    assert now.observation["agent"]["present"].tolist() == [0, 0]


def test_hundreds_of_agents_see_as_much_as_a_few() -> None:
    env = Tag(adversaries=600, agents=200, sees=4, half_side=14.0)
    state, seen = jax.jit(env.reset)(jax.random.key(0))
    assert seen["adversary"]["agents"].shape == (600, 24)
    assert seen["agent"]["agents"].shape == (200, 24)
    up = {"adversary": jnp.full(600, 4, jnp.int32), "agent": jnp.full(200, 4, jnp.int32)}
    state, now = jax.jit(env.step)(state, up, jax.random.key(0))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(now))
    lone = np.linalg.norm(now.observation["agent"]["agents"][:, 8:10], axis=1) > 0.3  # from the nearest
    near_rock = particles.distances(state.position[600:], state.obstacles).min(1) < 0.4
    assert lone.sum() > 20
    np.testing.assert_allclose(
        state.velocity[600:][lone & ~near_rock], [[0.0, 0.4]] * int((lone & ~near_rock).sum()), atol=1e-9
    )


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Spread-v0", {"agents": 0}, "agents must be a whole number from 1 on, got 0"),
        ("Spread-v0", {"sees": 0}, "sees must be a whole number from 1 on, got 0"),
        ("Spread-v0", {"local_ratio": 1.5}, "local_ratio must be between 0 and 1, got 1.5"),
        ("Spread-v0", {"local_ratio": "much"}, "local_ratio must be a number, got 'much'"),
        ("Spread-v0", {"continuous": 1}, "continuous must be true or false, got 1"),
        ("Tag-v0", {"adversaries": -1}, "adversaries must be a whole number from 1 on, got -1"),
        ("Tag-v0", {"obstacles": -1}, "obstacles must be a whole number from 0 on, got -1"),
        ("Tag-v0", {"half_side": 0.0}, "half_side must be more than 0, got 0.0"),
    ],
)
def test_bad_options_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(name, **options)
    with pytest.raises(UnknownName, match="Did you mean 'adversaries'"):
        load("Tag-v0", adversary=2)


def test_the_least_of_an_option_may_be_none() -> None:
    assert load("Tag-v0", obstacles=0, half_side=2) == Tag(obstacles=0, half_side=2)
