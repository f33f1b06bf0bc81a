"""Atari games: one environment however it is batched, scores as the game gives them."""

from __future__ import annotations

import json

import gymnasium as gym
import numpy as np
import pytest

import weft
from weft.cli.main import main
from weft.core.buffers import timestep_buffers
from weft.core.errors import ConfigError, UnknownName
from weft.envs.native import NativeFactory
from weft.envs.registry import open_environment
from weft.envs.vectoriser import VectoriserFactory
from weft.runtimes.prepare.config import RunConfig, prepare

pytest.importorskip("ale_py")

BREAKOUT, ALIEN = "ALE/Breakout-v5", "ALE/Alien-v5"
SHORT = {"max_num_frames_per_episode": 200, "noop_max": 5}  # of 50 actions or so
TINY = {**SHORT, "img_height": 20, "img_width": 20}


def play(source, num_envs, actions, first_index=0):
    """What each step gives: observations, rewards, ends, final observations of rows that ended."""
    env, out = source.host(num_envs, 7, first_index), timestep_buffers(source.spec, (num_envs,))
    seen = []
    try:
        env.reset(out)
        for action in actions:
            ended = np.asarray(out.truncated | out.terminated)
            final = np.where(ended[:, None, None, None], out.final_observation, 0) if seen else None
            seen.append((np.array(out.observation), np.array(out.reward), np.array(out.terminated), ended, final))
            env.step(action, out)
    finally:
        env.close()
    return seen


def same(left, right):
    pairs = zip(left, right, strict=True)
    return all(a is b or np.array_equal(a, b) for step in pairs for a, b in zip(*step, strict=True))


@pytest.fixture(scope="module")
def actions():
    return np.random.default_rng(0).integers(0, 4, (150, 3)).astype(np.int32)


def test_both_forms_and_any_batch_give_the_same_game(actions):
    """Sticky actions and no-ops are drawn, games end, and new ones begin."""
    each, native = (open_environment(BREAKOUT, vector=vector, **SHORT) for vector in ("each", "native"))
    assert isinstance(each.host, VectoriserFactory)
    assert isinstance(native.host, NativeFactory)
    assert vars(each.spec) == vars(native.spec)
    assert each.spec.observation.shape == (4, 84, 84)
    assert each.spec.frame_skip == 4
    one_by_one, together = play(each, 3, actions), play(native, 3, actions)
    assert same(one_by_one, together)
    assert sum(int(ended.sum()) for *_, ended, _ in together[1:]) > 3
    part = play(native, 1, actions[:, 2:], first_index=2)
    assert all(np.array_equal(a[0][0], b[0][2]) for a, b in zip(part, together, strict=True))
    assert not same(together, play(open_environment(BREAKOUT, noop_max=0, max_num_frames_per_episode=200), 3, actions))


def test_what_is_done_to_the_game_is_what_the_preset_says():
    """The pictures of the preset, made from the screens of the game as it is registered."""
    plain = gym.make("ALE/Breakout-v5", frameskip=1, repeat_action_probability=0.0)
    preset = open_environment(BREAKOUT, noop_max=0, repeat_action_probability=0.0)
    env, out = preset.host(1, 0), timestep_buffers(preset.spec, (1,))
    env.reset(out)
    plain.reset(seed=0)
    for action in (1, 2, 3, 0, 2):
        screens = [plain.step(action)[0] for _ in range(4)]
        env.step(np.array([action], np.int32), out)
        grey = np.maximum(screens[2], screens[3]).astype(np.float64) @ (0.299, 0.587, 0.114)
        newest = np.asarray(out.observation)[0, -1].astype(np.float64)
        # A picture is shrunk by area, so the means of blocks that both sizes have stay what they are.
        np.testing.assert_allclose(
            newest.reshape(42, 2, 4, 21).mean((1, 3)), grey.reshape(42, 5, 4, 40).mean((1, 3)), atol=1
        )
    env.close()
    plain.close()


def test_presets_and_options_are_refused_by_name():
    with pytest.raises(ConfigError, match="reward_clipping is not taken: returns would not be the game's scores"):
        open_environment(ALIEN, reward_clipping=True)
    with pytest.raises(ConfigError, match="episodic_life is not taken: returns would be of single lives"):
        open_environment(ALIEN, episodic_life=True)
    with pytest.raises(UnknownName, match=r"'difficulty'.*preset 'atari' does not take it.*--env.preset none"):
        open_environment(ALIEN, difficulty=1)
    with pytest.raises(UnknownName, match=r"'atary'.*Did you mean 'atari'"):
        open_environment(ALIEN, preset="atary")
    with pytest.raises(ConfigError, match="always preprocesses, and preset 'none' is the game as it is registered"):
        open_environment(ALIEN, vector="native", preset="none")


@pytest.mark.parametrize("vector", ["auto", "each"])
def test_the_game_as_it_is_registered(vector):
    source = open_environment(ALIEN, vector=vector, preset="none", difficulty=1)
    assert source.spec.observation.shape == (210, 160, 3)
    assert source.about == ""
    old = open_environment("AlienNoFrameskip-v4", vector=vector)
    assert old.spec.observation.shape == (210, 160, 3)
    assert open_environment("AlienNoFrameskip-v4", vector=vector, preset="atari").spec.observation.shape == (4, 84, 84)


def test_seeded_episodes_are_brought_back_exactly(actions):
    source = open_environment(BREAKOUT, vector="each", seeded_episodes=True, **SHORT)
    env, out = source.host(2, 3), timestep_buffers(source.spec, (2,))
    env.reset(out)
    for action in actions[:80, :2]:
        env.step(action, out)
    snapshot = json.loads(json.dumps(env.snapshot()))
    again, back = source.host(2, 3), timestep_buffers(source.spec, (2,))
    assert again.restore(snapshot, back) == []
    np.testing.assert_array_equal(back.observation, out.observation)
    for action in actions[80:150, :2]:
        env.step(action, out)
        again.step(action, back)
        np.testing.assert_array_equal(back.observation, out.observation)
    env.close()
    again.close()


def test_a_game_that_cannot_be_brought_back_is_never_taken_for_one_that_was(actions):
    """At its first pictures a game looks as any other: the emulator's own randomness is what differs."""
    source = open_environment(BREAKOUT, vector="each", **SHORT)
    env, out = source.host(2, 3), timestep_buffers(source.spec, (2,))
    env.reset(out)
    for count, action in enumerate(actions[:, :2]):
        env.step(action, out)
        if count == 3:
            first = env.snapshot()
        if out.truncated[0] or out.terminated[0]:
            break
    again, back = source.host(2, 3), timestep_buffers(source.spec, (2,))
    assert again.restore(first, back) == [], "from its seed"
    assert 0 in again.restore(env.snapshot(), back)
    env.close()
    again.close()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return weft.train(
        "ppo",
        ALIEN,
        env_options=TINY,
        envs=4,
        steps=512,
        unroll=32,
        epochs=1,
        run="alien",
        root=tmp_path_factory.mktemp("runs"),
        quiet=True,
        tensorboard=False,
    )


def test_returns_are_the_games_own_though_learning_clips(trained):
    assert trained.algorithm.reward_clip == 1.0
    assert trained.summary["return_mean"] > 10
    assert trained.summary["return_mean"] * trained.summary["episodes"] % 10 == 0, "Alien's scores are in tens"
    assert "20×20 grey, 4 stacked" in trained.summary["preprocessing"]
    assert "sticky actions 0.25" in trained.summary["preprocessing"]
    assert "the game's scores, not clipped" in trained.summary["preprocessing"]


def test_the_policy_takes_what_make_gives(trained):
    env = weft.make(trained, render=True)
    observation, _ = env.reset(seed=1)
    assert env.observation_space.contains(observation)
    for _ in range(20):
        observation, *_ = env.step(trained.policy(observation))
    assert env.render().shape == (210, 160, 3)
    assert len(np.unique(env.render())) > 3
    env.close()
    played = weft.evaluate(trained, episodes=2)
    assert all(score % 10 == 0 for score in played.returns)


@pytest.mark.slow
def test_a_video_is_of_the_screen(trained, capsys):
    pytest.importorskip("PIL")
    assert main(["eval", str(trained.folder), "--episodes", "1", "--video", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["return_mean"] % 10 == 0
    from PIL import Image

    if told["video"].endswith(".gif"):
        with Image.open(told["video"]) as video:
            assert video.size == (160, 210)
            assert video.n_frames > 20


def test_in_lockstep_a_batch_of_games_is_not_refused():
    """Each row has its own seed. Unless asked for, games are taken one by one: those can be resumed."""
    asked = {"lockstep": True, "envs": 4, "steps": 1000, "env_options": TINY}
    assert prepare(RunConfig("ppo", ALIEN, **asked)).vector == "each"
    assert isinstance(prepare(RunConfig("ppo", ALIEN, vector="native", **asked)).source.host, NativeFactory)
