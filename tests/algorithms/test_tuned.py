"""Which settings an environment gets without a flag."""

from __future__ import annotations

import gymnasium as gym
import pytest

import weft
from weft.algorithms.tuned import tuned
from weft.core.specs import Box, Discrete, EnvSpec
from weft.envs.registry import open_environment


def pendulum(gravity: float = 9.0) -> gym.Env:
    """A factory around an environment that Gymnasium knows."""
    return gym.wrappers.TimeLimit(gym.make("Pendulum-v1", g=gravity), 100)


class Reader(gym.Env):
    """Sees a number and a text, which says what to do: 0 or 1."""

    observation_space = gym.spaces.Dict(
        {"hint": gym.spaces.Text(8), "deep": gym.spaces.Dict({"say": gym.spaces.Text(3), "x": gym.spaces.Discrete(2)})}
    )
    action_space = gym.spaces.Discrete(2)

    def _look(self):
        self._x = int(self.np_random.integers(2))
        return {"hint": "go", "deep": {"say": "no", "x": self._x}}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._look(), {}

    def step(self, action):
        reward = float(action == self._x)
        return self._look(), reward, bool(self.np_random.random() < 0.2), False, {}


def test_a_factory_around_a_known_environment_gets_its_familys_settings():
    source = open_environment(pendulum)
    assert source.spec.gymnasium_id == "Pendulum-v1"
    assert tuned("ppo", source.name, source.spec) == tuned("ppo", "Pendulum-v1", source.spec)
    assert tuned("ppo", source.name, source.spec).source == "Pendulum"


@pytest.mark.parametrize(
    ("action", "recurrent", "envs", "minibatches"),
    [(Discrete(4), False, 16, 32), (Box((2,)), False, 8, 32), (Box((2,)), True, 16, None)],
)
def test_others_are_told_apart_by_what_they_do(action, recurrent, envs, minibatches):
    row = tuned("ppo", "Nobody-v0", EnvSpec("Nobody-v0", Box((3,)), action), recurrent=recurrent)
    assert row.source == "defaults"
    assert (row.envs, row.fields.get("minibatches")) == (envs, minibatches)
    assert row.fields["normalise_observations"]
    assert tuned("a2c", "Nobody-v0", EnvSpec("Nobody-v0", Box((3,)), action)).fields == {}


@pytest.mark.parametrize(
    ("asked", "envs", "minibatches"),
    [({}, None, 32), ({"unroll": 10}, None, 32), ({"unroll": 5}, 8, 8), ({"unroll": 5, "minibatches": 4}, 3, 32)],
)
def test_minibatches_that_nobody_asked_for_fit_the_batch(asked, envs, minibatches):
    row = tuned("ppo", "Nobody-v0", EnvSpec("Nobody-v0", Box((3,)), Discrete(2)))
    assert row.fitted(asked, envs).fields["minibatches"] == minibatches


def test_texts_in_an_observation_are_left_out_and_said(tmp_path, capsys):
    source = open_environment(Reader)
    assert source.spec.left_out == ("observation['deep']['say']", "observation['hint']")
    assert source.spec.observation == {"deep": {"x": Discrete(2)}}
    run = weft.train("ppo", Reader, envs=8, steps=8192, seed=1, unroll=32, minibatches=4, root=tmp_path)
    assert "observation['hint'] is text, and left out" in capsys.readouterr().err
    assert run.summary["return_mean"] > 3.5  # of 5 steps; guessing gives half


def test_an_observation_of_text_alone_is_refused():
    class Mute(Reader):
        observation_space = gym.spaces.Dict({"hint": gym.spaces.Text(8)})

    with pytest.raises(weft.ConfigError, match="only text, which Weft leaves out"):
        open_environment(Mute)
