"""Values that an environment may give by mistake, and bounds of its actions: nothing odd passes without a word."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from weft.core.buffers import timestep_buffers
from weft.core.errors import ConfigError, EnvironmentFault
from weft.envs.fake import ScriptedEnv
from weft.envs.probe import probe
from weft.envs.vectoriser import Vectoriser


def begun(make, num_envs=2):
    """A vectoriser whose environments were reset, and its buffers."""
    spec = probe("odd", make)
    vector = Vectoriser(spec, lambda render: make(), num_envs, seed=0)
    out = timestep_buffers(spec, (num_envs,))
    vector.reset(out)
    return vector, out


def stepped(make, steps=3):
    vector, out = begun(make)
    for _ in range(steps):
        vector.step(np.zeros((2, *vector.spec.action.shape), vector.spec.action.dtype), out)
    return out


class Flags(ScriptedEnv):
    """Its flags at step 2 are ``odd``."""

    odd: object = False

    def step(self, action):
        observation, reward, *flags, info = super().step(action)
        if self.t == 2:
            flags = [self.odd, False]
        return observation, reward, *flags, info


@pytest.mark.parametrize("odd", ["False", "", None, 0.0, [], np.array([False])])
def test_a_flag_that_is_neither_true_nor_false_is_a_fault(odd):
    with pytest.raises(EnvironmentFault, match=r"number 0, step 1: terminated is .*, expected True or False"):
        stepped(type("Odd", (Flags,), {"odd": odd}))


@pytest.mark.parametrize("fair", [np.bool_(False), 0, np.int64(0), np.array(False)])
def test_any_kind_of_false_will_do(fair):
    assert not stepped(type("Fair", (Flags,), {"odd": fair})).first.any()


def test_a_reward_beyond_every_float_is_a_fault_and_named_briefly():
    for make in (lambda: ScriptedEnv(reward=lambda e: 10**400), lambda: ScriptedEnv(reward=lambda e: 10**5000)):
        with pytest.raises(EnvironmentFault, match=r"the reward is .*expected a finite number") as caught:
            probe("odd", make)
        assert len(str(caught.value)) < 200
    with pytest.raises(EnvironmentFault, match=r"step 2: the reward is 1000.*\(401 characters\)"):
        stepped(lambda: ScriptedEnv(reward=lambda e: 10**400 if e.t == 3 else 0.0))


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.bool_])
def test_an_observation_whose_dtype_changes_is_a_fault(dtype):
    def observe(env):
        return np.zeros(3, dtype if env.t == 2 else np.float32)

    with pytest.raises(EnvironmentFault, match=rf"step 1: observation came as dtype {np.dtype(dtype)}, but the space"):
        stepped(lambda: ScriptedEnv(observe=observe))


def test_floats_of_another_width_and_plain_numbers_will_do():
    stepped(lambda: ScriptedEnv(observe=lambda env: np.zeros(3, np.float64)))
    stepped(lambda: ScriptedEnv(observe=lambda env: [0, 1, 2.5]))


@pytest.mark.parametrize(("dtype", "kept", "wide"), [(np.int64, "int32", 2**31), (np.uint64, "uint32", 2**32)])
def test_integers_of_64_bits_are_kept_in_32_and_what_does_not_fit_is_a_fault(dtype, kept, wide):
    limits = np.iinfo(dtype)
    space = spaces.Box(limits.min, limits.max, (2,), dtype)

    def showing(value):
        return lambda: ScriptedEnv(
            observation_space=space, observe=lambda env: np.array([1, value if env.t == 2 else 7], dtype)
        )

    out = stepped(showing(wide - 1), steps=2)
    assert out.observation.dtype == kept
    assert out.observation[0].tolist() == [1, wide - 1]
    with pytest.raises(EnvironmentFault, match=rf"step 1: observation came as .* the value {wide}, and JAX holds"):
        stepped(showing(wide))


def test_more_choices_than_an_integer_on_the_device_can_tell_apart_are_refused():
    with pytest.raises(ConfigError, match="has 4294967296 choices"):
        probe("odd", lambda: ScriptedEnv(observation_space=spaces.Discrete(2**32)))


def test_an_action_with_a_single_bound_is_clipped_there():
    seen = []
    bounds = np.array([0, -np.inf, -np.inf], np.float32), np.array([np.inf, 1.0, np.inf], np.float32)

    def make():
        return ScriptedEnv(action_space=spaces.Box(*bounds), act=lambda env, action: seen.append(action))

    vector, out = begun(make)
    seen.clear()
    vector.step(np.array([[-5.0, 5.0, 9.0], [5.0, -5.0, -9.0]], np.float32), out)
    assert [action.tolist() for action in seen] == [[0.0, 1.0, 9.0], [5.0, -5.0, -9.0]]


@pytest.mark.parametrize("vector", ["each", "native"])
def test_the_very_first_observation_counts_as_a_first(vector):
    from weft.envs.registry import open_environment

    source = open_environment("CartPole-v1", vector=vector)
    env, out = source.host(3, 0), timestep_buffers(source.spec, (3,))
    env.reset(out)
    assert out.first.all()
    env.step(np.zeros(3, np.int32), out)
    assert not out.first.any()
    env.close()


def test_native_flags_must_be_flags():
    from weft.envs.registry import open_environment

    class Batch(gym.vector.VectorEnv):
        num_envs = 2
        single_observation_space = spaces.Box(-1, 1, (1,), np.float32)
        single_action_space = spaces.Discrete(2)
        metadata = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012  as Gymnasium has it

        def reset(self, *, seed=None, options=None):
            return np.zeros((2, 1), np.float32), {}

        def step(self, actions):
            return np.zeros((2, 1), np.float32), np.zeros(2), np.zeros(2), np.zeros(2, bool), {}

    with pytest.raises(EnvironmentFault, match=r"terminated came as float64 \[2\], expected \[2\] flags"):
        open_environment(lambda num_envs: Batch())
