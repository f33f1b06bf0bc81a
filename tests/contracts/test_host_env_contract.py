"""What every host environment promises, whatever it is made of: one suite for all adapters."""

import dataclasses
import json

import gymnasium as gym
import numpy as np
import pytest
import zoo
from gymnasium import spaces

from weft.core.buffers import timestep_buffers
from weft.core.specs import num_choices
from weft.core.trees import tree_leaves, tree_map, tree_paths
from weft.envs.agents_batch import AgentsBatch
from weft.envs.fake import ScriptedEnv
from weft.envs.protocol import HostEnv
from weft.envs.registry import open_environment
from weft.envs.vectoriser import Vectoriser

NESTED = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (4, 4, 3), np.uint8),
        "body": spaces.Tuple((spaces.Box(-1, 1, (3,), np.float64), spaces.MultiDiscrete([[2, 3], [4, 5]]))),
        "lamps": spaces.MultiBinary((2, 2)),
        "room": spaces.Discrete(6, start=-2),
        "height": spaces.Box(-1, 1, (), np.float32),
    }
)


def nested():
    return ScriptedEnv(length=6, ends="truncated", observation_space=NESTED, action_space=spaces.Discrete(3, start=4))


def multi_discrete():
    return ScriptedEnv(length=4, action_space=spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[0, 1], [0, 5]]))


def multi_binary():
    return ScriptedEnv(length=4, action_space=spaces.MultiBinary(5), mask=lambda e: np.ones(10, np.int8))


def same_step_batch(num_envs: int):
    return gym.vector.SyncVectorEnv([nested] * num_envs, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)


def disabled_batch(num_envs: int):
    return gym.vector.SyncVectorEnv([nested] * num_envs, autoreset_mode=gym.vector.AutoresetMode.DISABLED)


ADAPTERS = {
    "CartPole each": ("CartPole-v1", "each"),
    "Pendulum each": ("Pendulum-v1", "each"),
    "FrozenLake each": ("FrozenLake-v1", "each"),
    "CartPole native": ("CartPole-v1", "native"),
    "factory by name": ("weft.envs.fake:ScriptedEnv", "auto"),
    "nested": (nested, "auto"),
    "multi-discrete": (multi_discrete, "auto"),
    "multi-binary": (multi_binary, "auto"),
    "same step": (same_step_batch, "auto"),
    "disabled": (disabled_batch, "auto"),
    "agents": (zoo.fixed, "auto"),
    "agents that die": (zoo.dying, "auto"),
    "kinds of agents": (zoo.kinds, "each"),
    "agents with masks": (zoo.masked, "auto"),
    "turns": ("zoo:Nim", "auto"),
    "particle world": ("pettingzoo:mpe/simple_tag_v3", "auto"),
}

NATIVE = ("CartPole native", "same step", "disabled")  # seeded as a whole, as their class says
EACH = {name: how for name, how in ADAPTERS.items() if name not in NATIVE}


@pytest.fixture(params=ADAPTERS.values(), ids=ADAPTERS.keys(), scope="module")
def source(request):
    name, vector = request.param
    return open_environment(name, vector=vector)


def policy(spec, num_envs, rng):
    if spec.teams:
        return {team: policy(one, num_envs, rng) for team, one in spec.teams.items()}
    space = spec.action
    shape = (num_envs, *space.shape)
    if space.dtype.startswith("float"):
        return rng.uniform(-1.5, 1.5, shape).astype(space.dtype)
    high = 2 if space.dtype == "int8" else getattr(space, "nvec", None) or getattr(space, "n", 2)
    return rng.integers(high, size=shape).astype(space.dtype)


def copied(timestep):
    return tree_map(np.copy, timestep)


def assert_same(left, right):
    for (path, a), b in zip(tree_paths(left), tree_leaves(right), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=path)


def visible(timestep):
    """A timestep without the rows of final observations that have no meaning."""
    ended = timestep.terminated | timestep.truncated
    return timestep._replace(final_observation=tree_map(lambda leaf: leaf[ended], timestep.final_observation))


def test_the_spec_is_of_a_host_environment(source):
    assert source.pure is None
    assert not source.spec.pure
    with_env = source.host(3, 0)
    assert dataclasses.astuple(with_env.spec)[0] == source.spec.name
    assert with_env.num_envs == 3
    if source.spec.action_mask and not source.spec.teams:
        assert source.spec.mask_size == num_choices(source.spec.native_action)
    with_env.close()
    with_env.close()


def test_it_writes_all_rows_and_only_the_given_buffers(source):
    """Buffers are rows 1 to 3 of step 1 of a larger array: all around them must stay as it was."""
    marks = {"f": 77.0, "i": 77, "u": 77, "b": True}
    whole = timestep_buffers(source.spec, (3, 5))
    for leaf in tree_leaves(whole):
        leaf[...] = marks[leaf.dtype.kind]
    before = copied(whole)
    view = tree_map(lambda leaf: leaf[1, 1:4], whole)
    env: HostEnv = source.host(3, 0)
    env.reset(view)
    rng = np.random.default_rng(0)

    def untouched():
        for (path, now), then in zip(tree_paths(whole), tree_leaves(before), strict=True):
            outside = np.ones((3, 5), bool)
            outside[1, 1:4] = False
            np.testing.assert_array_equal(now[outside], then[outside], err_msg=path)

    untouched()
    assert not view.terminated.any()
    assert view.truncated.all(), "each observation is the first of its episode"
    assert not any(reward.any() for reward in tree_leaves(view.reward))
    for leaf in tree_leaves(view.observation):
        assert not (leaf == 77).any()
    for _ in range(20):
        view.terminated[...], view.truncated[...] = True, True
        for reward in tree_leaves(view.reward):
            reward[...] = np.nan
        env.step(policy(source.spec, 3, rng), view)
        assert all(np.isfinite(reward).all() for reward in tree_leaves(view.reward))
        assert not (view.terminated & view.truncated).all()
    untouched()
    env.close()


def test_actions_are_only_read(source):
    env, out = source.host(3, 0), timestep_buffers(source.spec, (3,))
    env.reset(out)
    action = policy(source.spec, 3, np.random.default_rng(0))
    kept = copied(action)
    for leaf in tree_leaves(action):
        leaf.flags.writeable = False
    env.step(action, out)
    assert_same(action, kept)
    env.close()


def run(source, num_envs, seed, first_index, actions):
    env, out = source.host(num_envs, seed, first_index), timestep_buffers(source.spec, (num_envs,))
    env.reset(out)
    told = [copied(out)]
    for action in actions:
        env.step(action, out)
        told.append(copied(visible(out)))
    env.close()
    return told


def test_the_same_seed_tells_the_same_story(source):
    rng = np.random.default_rng(0)
    actions = [policy(source.spec, 4, rng) for _ in range(60)]
    first, second = run(source, 4, 9, 0, actions), run(source, 4, 9, 0, actions)
    for left, right in zip(first, second, strict=True):
        assert_same(left, right)
    other = run(source, 4, 10, 0, actions)
    if source.name not in ("FrozenLake-v1", "zoo:Nim"):  # which always begin the same
        leaves = zip(tree_leaves(first[0].observation), tree_leaves(other[0].observation), strict=True)
        assert any(not np.array_equal(a, b) for a, b in leaves)


def rows(trees, start):
    return [tree_map(lambda leaf: leaf[start : start + 2], tree) for tree in trees]


@pytest.mark.parametrize("source", EACH.values(), ids=EACH.keys(), indirect=True)
def test_an_environment_does_not_depend_on_the_batch_it_is_in(source):
    rng = np.random.default_rng(1)
    actions = [policy(source.spec, 4, rng) for _ in range(60)]
    whole = run(source, 4, 3, 0, actions)
    halves = [run(source, 2, 3, start, rows(actions, start)) for start in (0, 2)]
    for step, together in enumerate(whole):
        for half, start in zip(halves, (0, 2), strict=True):
            part = half[step]
            for field in ("reward", "terminated", "truncated", "observation", "action_mask"):
                assert_same(rows([getattr(together, field)], start)[0], getattr(part, field))


def test_episodes_follow_one_another(source):
    """Final observations are written in ended rows alone, and what is not valid comes only after an end."""
    env, out = source.host(4, 2), timestep_buffers(source.spec, (4,))
    env.reset(out)
    rng, ends = np.random.default_rng(2), 0
    ended_before = np.zeros(4, bool)
    for _ in range(250):
        final_before = copied(out).final_observation
        env.step(policy(source.spec, 4, rng), out)
        ended = out.terminated | out.truncated
        ends += int(ended.sum())
        for now, then in zip(tree_leaves(out.final_observation), tree_leaves(final_before), strict=True):
            np.testing.assert_array_equal(now[~ended], then[~ended])
        if out.valid is not None:
            np.testing.assert_array_equal(out.valid, ~ended_before)
            assert (out.truncated[~out.valid] & ~out.terminated[~out.valid]).all()
            ended_before = ended & out.valid
        for mask in tree_leaves(out.action_mask):
            assert mask.any(axis=1).all()
    assert ends >= 4
    env.close()


def test_a_snapshot_is_json_and_every_row_is_brought_back_or_reported(source):
    env, out = source.host(2, 4), timestep_buffers(source.spec, (2,))
    env.reset(out)
    rng = np.random.default_rng(0)
    for _ in range(3):
        env.step(policy(source.spec, 2, rng), out)
    snapshot = json.loads(json.dumps(env.snapshot()))
    there, other = timestep_buffers(source.spec, (2,)), source.host(2, 4)
    inexact = other.restore(snapshot, there)
    exact = [row for row in range(2) if row not in inexact]
    assert inexact == ([] if isinstance(env, Vectoriser | AgentsBatch) else [0, 1])
    for field in ("observation", "reward", "action_mask"):
        for a, b in zip(tree_leaves(getattr(out, field)), tree_leaves(getattr(there, field)), strict=True):
            np.testing.assert_array_equal(a[exact], b[exact])
    assert there.truncated[inexact].all()
    other.step(policy(source.spec, 2, rng), there)
    env.close()
    other.close()
