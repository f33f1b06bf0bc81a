"""Snapshots: a restored batch goes on bit for bit, or says which rows do not."""

import json
import random

import gymnasium as gym
import numpy as np
import pytest

from weft.core.buffers import timestep_buffers
from weft.core.errors import ConfigError
from weft.core.trees import tree_leaves
from weft.envs.episodes import EpisodeLog
from weft.envs.fake import ScriptedEnv
from weft.envs.probe import probe
from weft.envs.registry import open_environment
from weft.envs.vectoriser import Vectoriser


def policy(spec, num_envs, rng):
    if spec.action.dtype == "int32":
        return rng.integers(spec.mask_size, size=num_envs).astype(np.int32)
    return rng.uniform(-1.2, 1.2, (num_envs, *spec.action.shape)).astype(np.float32)


def play(vector, out, rng, steps):
    """The story of ``steps`` steps, as bytes."""
    story = []
    for _ in range(steps):
        vector.step(policy(vector.spec, vector.num_envs, rng), out)
        story.append(b"".join(leaf.tobytes() for leaf in tree_leaves(out._replace(final_observation=None))))
    return story


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1"])
@pytest.mark.parametrize("steps", [0, 3, 500])
def test_a_restored_batch_goes_on_bit_for_bit(name, steps):
    source = open_environment(name, vector="each")
    vector, out = source.host(4, 11), timestep_buffers(source.spec, (4,))
    vector.reset(out)
    play(vector, out, np.random.default_rng(0), steps)
    snapshot = json.loads(json.dumps(vector.snapshot()))

    other, there = source.host(4, 99), timestep_buffers(source.spec, (4,))
    assert other.restore(snapshot, there) == []
    for here, brought in zip(tree_leaves(out)[:4], tree_leaves(there)[:4], strict=True):
        np.testing.assert_array_equal(here, brought)
    assert play(vector, out, np.random.default_rng(1), 300) == play(other, there, np.random.default_rng(1), 300)

    # And once more, from a batch that was itself restored.
    third = source.host(4, 5)
    assert third.restore(json.loads(json.dumps(other.snapshot())), out) == []
    assert play(other, there, np.random.default_rng(2), 100) == play(third, out, np.random.default_rng(2), 100)


class HiddenRandomness(ScriptedEnv):
    """Draws from Python's own generator, which nobody restores."""

    def _look(self):
        observation = super()._look()
        observation[0] = random.random()
        return observation


class SecretState(ScriptedEnv):
    """Shows the same as others, but its generator has moved on."""

    calls = 0

    def step(self, action):
        type(self).calls += 1
        self.np_random.random(type(self).calls)
        observation, *rest = super().step(action)
        observation[0] = 0.0
        return observation, *rest


def restored(make, steps=3, num_envs=2):
    spec = probe("own", make)
    vector, out = Vectoriser(spec, lambda render: make(), num_envs, 0), timestep_buffers(spec, (num_envs,))
    vector.reset(out)
    play(vector, out, np.random.default_rng(0), steps)
    snapshot = vector.snapshot()
    other = Vectoriser(spec, lambda render: make(), num_envs, 0)
    return other, out, other.restore(snapshot, out)


@pytest.mark.parametrize("make", [HiddenRandomness, SecretState])
def test_an_environment_that_cannot_be_replayed_begins_anew_and_is_reported(make):
    other, out, inexact = restored(lambda: make(length=50))
    assert inexact == [0, 1]
    np.testing.assert_array_equal(out.observation[:, 1:], [[0, 0], [0, 0]])
    assert out.truncated.all()
    assert not out.terminated.any()
    assert not out.reward.any()
    play(other, out, np.random.default_rng(0), 3)  # and goes on


def test_rows_begin_anew_from_seeds_that_were_not_used_before():
    made = []

    def make():
        made.append(HiddenRandomness(length=50))
        return made[-1]

    restored(make)
    seeds = [seed for env in made[1:] for seed in env.seeds if seed is not None]
    assert len(set(seeds)) == 4  # two at the reset, again for the replay, and two new ones


def test_flags_of_the_last_step_come_back():
    _, out, inexact = restored(lambda: ScriptedEnv(length=3), steps=3)
    assert (inexact, out.terminated.tolist(), out.reward.tolist()) == ([], [True, True], [3.0, 3.0])
    np.testing.assert_array_equal(out.observation[:, 1:], [[1, 0], [1, 0]])


class OldGenerator(ScriptedEnv):
    """A generator whose state holds an array."""

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self._np_random = np.random.Generator(np.random.MT19937(seed))
        return super().reset()


def test_any_numpy_generator_is_kept():
    def make():
        return OldGenerator(length=4, observe=lambda e: np.array([e.np_random.random(), 0, e.t], np.float32))

    spec = probe("own", make)
    vector, out = Vectoriser(spec, lambda render: make(), 2, 0), timestep_buffers(spec, (2,))
    vector.reset(out)
    play(vector, out, np.random.default_rng(0), 30)
    assert vector.snapshot()["rows"][0]["generator"]["bit_generator"] == "MT19937"
    other, there = Vectoriser(spec, lambda render: make(), 2, 0), timestep_buffers(spec, (2,))
    assert other.restore(json.loads(json.dumps(vector.snapshot())), there) == []
    assert play(vector, out, np.random.default_rng(1), 20) == play(other, there, np.random.default_rng(1), 20)


def test_a_snapshot_of_another_batch_is_refused():
    spec = probe("own", ScriptedEnv)
    vector, out = Vectoriser(spec, lambda render: ScriptedEnv(), 2, 0), timestep_buffers(spec, (2,))
    vector.reset(out)
    other = Vectoriser(spec, lambda render: ScriptedEnv(), 3, 0)
    with pytest.raises(ConfigError, match="with 2 environments cannot be restored into 3"):
        other.restore(vector.snapshot(), timestep_buffers(spec, (3,)))
    with pytest.raises(ConfigError, match="kind 'native'"):
        other.restore({"kind": "native"}, out)


def test_the_log_forgets_what_no_episode_needs():
    log = EpisodeLog(2)
    for step in range(5000):
        log.actions.append([step, -step])
        log.trim()
        if step % 100 == 99:
            log.begin(0, {"at": step})
        if step % 70 == 69:
            log.begin(1, {"at": step})
    assert len(log.actions) < 2000
    assert log.row(0) == ({"at": 4999}, [])
    assert log.row(1) == ({"at": 4969}, [-s for s in range(4970, 5000)])


def test_an_episode_that_is_too_long_is_given_up():
    log = EpisodeLog(2, longest=100)
    for step in range(3000):
        log.actions.append([step, step])
        log.trim()
        if step == 2949:
            log.begin(1, None)
    assert len(log.actions) < 1300
    assert log.row(0) == (None, None)
    assert log.row(1) == (None, list(range(2950, 3000)))
    for step in range(51):
        log.actions.append([step, step])
    assert log.row(1) == (None, None)


def test_a_row_that_was_given_up_begins_anew():
    spec = probe("CartPole-v1", lambda: gym.make("CartPole-v1"))
    vector, out = Vectoriser(spec, lambda render: gym.make("CartPole-v1"), 2, 0), timestep_buffers(spec, (2,))
    vector.reset(out)
    play(vector, out, np.random.default_rng(0), 3)
    snapshot = vector.snapshot()
    snapshot["rows"][1]["actions"] = None
    assert vector.restore(snapshot, out) == [1]
    assert out.truncated.tolist() == [False, True]
