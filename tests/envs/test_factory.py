"""Environments of one's own, and what is said where they are not what they should be."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from weft.core.buffers import timestep_buffers
from weft.core.errors import ConfigError, EnvironmentFault, EnvironmentRaised, UnknownName
from weft.envs.fake import ScriptedEnv
from weft.envs.registry import open_environment

MODULE = """
import gymnasium
import numpy as np
from weft.core.specs import Discrete, EnvSpec
from weft.envs.fake import ScriptedEnv

def make(length=3, render_mode=None):
    return ScriptedEnv(length=length, render_mode=render_mode)

def bare():
    return ScriptedEnv()

class Pure:
    spec = EnvSpec("pure", Discrete(2), Discrete(2), pure=True)
    def reset(self, key): ...
    def step(self, state, action, key): ...

class Nested:
    make = staticmethod(make)

ready = Pure()
number = 3

def batch(num_envs, length=3):
    one = lambda: ScriptedEnv(length=length)
    return gymnasium.vector.SyncVectorEnv([one] * num_envs, autoreset_mode="SameStep")

def batch_of_two():
    return batch(2)

def wrong():
    return {"observation": 1}

def broken():
    raise ZeroDivisionError("in my own code")
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module of the user's, in the working directory and not on the path."""
    name = f"own_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return name


def episode_length(source):
    env, out = source.host(1, 0), timestep_buffers(source.spec, (1,))
    env.reset(out)
    for steps in range(1, 20):
        env.step(np.zeros(1, np.int32), out)
        if out.terminated[0]:
            env.close()
            return steps
    raise AssertionError("no end")


def test_a_factory_by_name_with_options(module):
    assert episode_length(open_environment(f"{module}:make")) == 3
    assert episode_length(open_environment(f"{module}:make", length=7)) == 7
    assert episode_length(open_environment(f"{module}:Nested.make")) == 3
    assert episode_length(open_environment(f"{module}:batch", length=4)) == 4


def test_jax_environments_from_a_module(module):
    assert open_environment(f"{module}:Pure").pure is not None
    assert open_environment(f"{module}:ready").pure is not None


def test_rendering_needs_a_render_mode(module):
    env = open_environment(f"{module}:make").host(1, 0, render=True)
    out = timestep_buffers(env.spec, (1,))
    env.reset(out)
    assert env.render().shape == (8, 8, 3)
    with pytest.raises(ConfigError, match=r"no parameter 'render_mode'"):
        open_environment(f"{module}:bare").host(1, 0, render=True)


@pytest.mark.parametrize(
    ("attribute", "kind", "words"),
    [
        ("mak", UnknownName, "Did you mean .*:make'"),
        ("number", ConfigError, "expected a function or a class, got int"),
        ("wrong", ConfigError, "made dict, expected a gymnasium.Env"),
        ("broken", EnvironmentRaised, "ZeroDivisionError in making it.*in my own code"),
        ("batch_of_two", ConfigError, "needs a parameter 'num_envs'"),
    ],
)
def test_what_is_wrong_is_said(module, attribute, kind, words):
    with pytest.raises(kind, match=words):
        open_environment(f"{module}:{attribute}")


def test_wrong_options_and_modes_are_said(module):
    with pytest.raises(UnknownName, match=r"'lenght'. Did you mean 'length'"):
        open_environment(f"{module}:make", lenght=2)
    with pytest.raises(ConfigError, match=r"use vector='each'"):
        open_environment(f"{module}:make", vector="native")
    with pytest.raises(ConfigError, match=r"whole batches"):
        open_environment(f"{module}:batch", vector="each")


def test_modules_that_are_not_there_or_do_not_load(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownName, match=r"unknown kind of environment 'nowhere_at_all'"):
        open_environment("nowhere_at_all:make")
    with pytest.raises(ConfigError, match=r"no module 'weft.nowhere'"):
        open_environment("weft.nowhere:make")
    (tmp_path / "own_broken_import.py").write_text("import a_package_that_is_not_there\n")
    with pytest.raises(EnvironmentRaised, match=r"importing own_broken_import.*a_package_that_is_not_there"):
        open_environment("own_broken_import:make")
    (tmp_path / "own_script.py").write_text("import sys\ndef make(): ...\nsys.exit(0)\n")
    with pytest.raises(EnvironmentRaised, match=r"importing own_script raised SystemExit: 0"):
        open_environment("own_script:make")


class Lying(ScriptedEnv):
    """Breaks its contract at once, in one way."""

    def __init__(self, how=""):
        super().__init__()
        self.how = how
        if how == "space":
            self.action_space = 2
        if how == "box mask":
            self.action_space = spaces.Box(-1, 1, (1,), np.float32)
        if how == "text":
            self.observation_space = spaces.Text(4)

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        match self.how:
            case "reset alone":
                return observation
            case "shape":
                return observation[:2], info
            case "nan":
                return observation * np.float32("nan"), info
            case "box mask":
                return observation, {"action_mask": np.ones(2)}
        return observation, info

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        match self.how:
            case "four":
                return observation, reward, terminated, info
            case "reward":
                return observation, None, terminated, truncated, info
            case "reward array":
                return observation, np.zeros(1), terminated, truncated, info
            case "reward nan":
                return observation, float("nan"), terminated, truncated, info
            case "flag":
                return observation, reward, "no", truncated, info
            case "dtype":
                return observation.astype(complex), reward, terminated, truncated, info
        return observation, reward, terminated, truncated, info


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("space", EnvironmentFault, "action_space is not a gymnasium.Space"),
        ("text", ConfigError, "observation is Text"),
        ("reset alone", EnvironmentFault, "reset must return .observation, info dict., got ndarray"),
        (
            "shape",
            EnvironmentFault,
            r"reset: observation came as shape \[2\] float32, but the space says Box\[3\] float32",
        ),
        ("nan", EnvironmentFault, r"reset: observation\[0\] is nan"),
        ("box mask", EnvironmentFault, "a Box of actions has no choices to mask"),
        ("four", EnvironmentFault, "step must return .*, got 4 values"),
        ("reward", EnvironmentFault, "the reward is None"),
        ("reward array", EnvironmentFault, "the reward is array"),
        ("reward nan", EnvironmentFault, "the reward is nan"),
        ("flag", EnvironmentFault, "terminated is 'no'"),
        ("dtype", EnvironmentFault, "step: observation came as dtype complex128"),
    ],
)
def test_the_probe_refuses_what_breaks_its_own_contract(how, kind, words):
    with pytest.raises(kind, match=words):
        open_environment(Lying, how=how)


def test_the_probe_closes_what_it_made():
    made = []

    def make():
        made.append(ScriptedEnv())
        return made[-1]

    open_environment(make)
    assert [env.closed for env in made] == [1]


def test_the_probe_obeys_the_mask():
    def act(env, action):
        assert action == 2

    def make():
        return ScriptedEnv(action_space=spaces.Discrete(4), act=act, mask=lambda e: np.array([0, 0, 1, 1], np.int8))

    assert open_environment(make).spec.action_mask
    both = spaces.MultiDiscrete([2, 3])

    def multi():
        masks = (np.array([0, 1]), np.array([0, 0, 1]))
        return ScriptedEnv(
            action_space=both, act=lambda e, a: np.testing.assert_array_equal(a, [1, 2]), mask=lambda e: masks
        )

    assert open_environment(multi).spec.mask_size == 5


def test_frame_skip_is_stated():
    def make():
        env = ScriptedEnv()
        env.frame_skip = 4
        return gym.wrappers.TimeLimit(env, 9)

    assert open_environment(make).spec.frame_skip == 4
