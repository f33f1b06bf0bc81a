"""Environments whose observations are stacks of frames say so, and the stacks are what they say."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import FlattenObservation, FrameStackObservation

import weft
from weft.core.specs import FrameStack
from weft.envs.atari import AtariGame, atari_settings
from weft.envs.frames import frames_of
from weft.envs.probe import probe
from weft.replay.frames import split

gym.register_envs(pytest.importorskip("ale_py"))


def breakout(**options):
    return AtariGame("breakout", atari_settings(gym.spec("ALE/Breakout-v5"), options))


def stacked(**options):
    return FrameStackObservation(gym.make("CartPole-v1"), 3, **options)


MADE = {
    "atari": (breakout, FrameStack(4, 0, "zeros")),
    "atari in colour": (lambda: breakout(grayscale=False), FrameStack(4, -1, "zeros")),
    "gymnasium": (stacked, FrameStack(3, 0, "first")),
    "gymnasium with zeros": (lambda: stacked(padding_type="zero"), FrameStack(3, 0, "zeros")),
}


@pytest.mark.parametrize("name", MADE)
def test_each_observation_is_the_one_before_and_a_frame_more_and_an_episode_begins_with_its_padding(name):
    make, expected = MADE[name]
    assert probe(name, make).frames == expected
    env = make()
    env.action_space.seed(0)
    episodes, before = 0, None
    try:
        for _ in range(350):
            if before is None:
                frames = split(env.reset(seed=episodes)[0], expected, 0)
                padding = frames[-1] if expected.padding == "first" else np.zeros_like(frames[-1])
                assert all(np.array_equal(frame, padding) for frame in frames[:-1])
                assert frames[-1].any()
                episodes += 1
            else:
                observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
                frames = split(observation, expected, 0)
                np.testing.assert_array_equal(frames[:-1], before[1:])  # a final observation too
            before = None if before is not None and (terminated or truncated) else frames.copy()
    finally:
        env.close()
    assert episodes > 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: gym.make("CartPole-v1"),
        lambda: FlattenObservation(stacked()),  # what it makes of a stack it does not say
        lambda: breakout(use_fire_reset=True),
        lambda: breakout(stack_num=1),
    ],
)
def test_what_is_no_stack_or_another_one_is_not_taken_for_one(make):
    env = make()
    try:
        assert frames_of(env) is None
    finally:
        env.close()


def test_a_replay_shares_the_frames_of_an_environment_that_stacks_them():
    spec = probe("stacked", stacked)
    code = {}
    for name, one in (("plain", replace(spec, frames=None)), ("shared", spec), ("fails", replace(spec, may_fail=True))):
        graph = weft.DQN(hidden=(8,)).bind(weft.Spec(one, 8, 10, 100)).graph()
        code[name] = graph.fragment("replay").code.frames
    assert code == {"plain": None, "shared": FrameStack(3, 0, "first"), "fails": None}
