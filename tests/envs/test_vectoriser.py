"""The lean vectoriser: episodes, faults, masks, rendering. What all host environments share: the contract suite."""

import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from weft.core.buffers import timestep_buffers
from weft.core.errors import ConfigError, EnvironmentFault, EnvironmentRaised
from weft.core.keys import host_seed
from weft.envs.fake import ScriptedEnv
from weft.envs.probe import probe
from weft.envs.registry import open_environment
from weft.envs.vectoriser import Vectoriser


def vectorise(make, num_envs=2, seed=0, first_index=0, render=False):
    """A vectoriser, its output buffers, and the environments that it made."""
    made = []

    def one(render=False):
        made.append(make(render_mode="rgb_array") if render else make())
        return made[-1]

    spec = probe("scripted", one)
    made.clear()
    vector = Vectoriser(spec, one, num_envs, seed, first_index, render)
    return vector, timestep_buffers(spec, (num_envs,)), made


def actions(vector):
    return np.zeros((vector.num_envs, *vector.spec.action.shape), vector.spec.action.dtype)


@pytest.mark.parametrize("ends", ["terminated", "truncated"])
def test_the_next_episode_begins_in_the_step_that_ends_one(ends):
    vector, out, _ = vectorise(lambda **k: ScriptedEnv(length=3, ends=ends))
    vector.reset(out)
    np.testing.assert_array_equal(out.observation[:, 1:], [[0, 0], [0, 0]])
    seen = []
    for _ in range(4):
        vector.step(actions(vector), out)
        seen.append((*out.observation[0, 1:].tolist(), float(out.reward[0]), bool(getattr(out, ends)[0])))
    # (episode, step, reward, ended)
    assert seen == [(0, 1, 1.0, False), (0, 2, 2.0, False), (1, 0, 3.0, True), (1, 1, 1.0, False)]
    np.testing.assert_array_equal(out.final_observation[:, 1:], [[0, 3], [0, 3]])
    assert not (out.terminated if ends == "truncated" else out.truncated).any()


def test_only_the_first_reset_is_seeded_and_by_the_index():
    vector, out, made = vectorise(lambda **k: ScriptedEnv(length=2), num_envs=2, seed=7, first_index=3)
    vector.reset(out)
    for _ in range(4):
        vector.step(actions(vector), out)
    assert [env.seeds for env in made] == [[host_seed(7, 3), None, None], [host_seed(7, 4), None, None]]


def test_actions_reach_the_environment_in_its_own_units():
    got = []
    box = spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 10.0]), dtype=np.float32)
    vector, out, _ = vectorise(lambda **k: ScriptedEnv(action_space=box, act=lambda e, a: got.append(a)))
    got.clear()
    vector.reset(out)
    vector.step(np.array([[-1, -1], [0.5, 3.0]], np.float32), out)
    np.testing.assert_array_equal(got, [[-2.0, 0.0], [1.0, 10.0]])
    assert all(box.contains(a) for a in got)


def test_an_environment_may_write_into_its_action_without_spoiling_the_log():
    def spoil(env, action):
        action += 1

    box = spaces.Box(-1.0, 1.0, (1,), np.float32)
    vector, out, _ = vectorise(lambda **k: ScriptedEnv(action_space=box, act=spoil))
    vector.reset(out)
    vector.step(np.array([[0.5], [0.25]], np.float32), out)
    assert [row["actions"] for row in vector.snapshot()["rows"]] == [[[0.5]], [[0.25]]]


@pytest.mark.parametrize(
    "bad", [np.nan, np.inf, -np.inf, 1e39, np.float32("nan"), None, "x", 1j, np.zeros(2), np.ones(1)]
)
def test_a_reward_that_is_no_finite_number_is_a_fault_with_index_and_step(bad):
    vector, out, made = vectorise(
        lambda **k: ScriptedEnv(reward=lambda e: bad if e.total == 3 else 1.0), first_index=10
    )
    vector.reset(out)
    made[0].total = -10  # so that only the second one comes to its third step
    vector.step(actions(vector), out)
    vector.step(actions(vector), out)
    with pytest.raises(EnvironmentFault, match="'scripted': number 11, step 2: the reward is"):
        vector.step(actions(vector), out)


@pytest.mark.parametrize("good", [True, 1, np.bool_(True), np.int8(1), np.float32(1), np.float64(1), np.array(1.0)])
def test_a_reward_of_any_kind_of_number_will_do(good):
    vector, out, _ = vectorise(lambda **k: ScriptedEnv(reward=lambda e: good))
    vector.reset(out)
    vector.step(actions(vector), out)
    assert out.reward.tolist() == [1.0, 1.0]


def observe(fault):
    return lambda env: fault(env) if env.total == 3 else np.zeros(3, np.float32)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda e: np.array([0, np.nan, 0], np.float32), r"observation\[1\] is nan"),
        (lambda e: np.zeros(1, np.float32), r"shape \[1\] float32, but the space says Box\[3\]"),
        (lambda e: np.zeros((), np.float32), r"shape \[\]"),
        (lambda e: np.zeros(3, np.complex64), "dtype complex64"),
        (lambda e: {"x": 1}, "observation came as"),
        (lambda e: None, "observation came as"),
    ],
)
def test_an_observation_that_goes_wrong_mid_run_is_a_fault_with_index_and_step(fault, words):
    vector, out, _ = vectorise(lambda **k: ScriptedEnv(observe=observe(fault)))
    vector.reset(out)
    vector.step(actions(vector), out)
    vector.step(actions(vector), out)
    with pytest.raises(EnvironmentFault, match=f"number 0, step 2: .*{words}"):
        vector.step(actions(vector), out)


def test_a_final_observation_that_is_not_finite_is_a_fault():
    nan = np.full(3, np.nan, np.float32)
    vector, out, _ = vectorise(
        lambda **k: ScriptedEnv(length=2, observe=lambda e: nan if e.t == 2 else np.zeros(3, np.float32))
    )
    vector.reset(out)
    vector.step(actions(vector), out)
    with pytest.raises(EnvironmentFault, match=r"number 0, step 1: final observation\[0\] is nan"):
        vector.step(actions(vector), out)


def test_other_dtypes_of_the_same_kind_are_written_correctly():
    vector, out, _ = vectorise(
        lambda **k: ScriptedEnv(observe=lambda e: np.array([0.5, e.t, 0]) if e.t else np.zeros(3, np.float32))
    )
    vector.reset(out)
    vector.step(actions(vector), out)
    np.testing.assert_array_equal(out.observation, [[0.5, 1, 0], [0.5, 1, 0]])


class Boom(RuntimeError):
    pass


def test_what_the_users_step_raises_comes_with_index_step_and_its_traceback():
    def act(env, action):
        if env.total == 2:
            raise Boom("the arm fell off")

    vector, out, made = vectorise(lambda **k: ScriptedEnv(act=act), first_index=4)
    vector.reset(out)
    made[0].total = -10
    vector.step(actions(vector), out)
    vector.step(actions(vector), out)
    with pytest.raises(
        EnvironmentRaised, match="number 5 raised Boom in step at its step 2: the arm fell off"
    ) as caught:
        vector.step(actions(vector), out)
    assert isinstance(caught.value.__cause__, Boom)
    assert (caught.value.index, caught.value.step) == (5, 2)


def test_what_the_users_reset_and_maker_raise_is_theirs_too():
    def raises_later(env):
        if env.episode == 1:
            raise Boom("no second episode")
        return np.zeros(3, np.float32)

    vector, out, _ = vectorise(lambda **k: ScriptedEnv(length=1, observe=raises_later))
    vector.reset(out)
    with pytest.raises(EnvironmentRaised, match="number 0 raised Boom in reset"):
        vector.step(actions(vector), out)

    made = []

    def third_fails(render):
        if len(made) == 2:
            raise Boom("no more")
        made.append(ScriptedEnv())
        return made[-1]

    with pytest.raises(EnvironmentRaised, match="number 2 raised Boom in making it"):
        Vectoriser(vector.spec, third_fails, 4, seed=0)
    assert [env.closed for env in made] == [1, 1]


def leaves(*_):
    sys.exit()


@pytest.mark.parametrize("doing", ["step", "reset", "render", "close"])
def test_an_environment_that_leaves_the_process_raised(doing):
    vector, out, made = vectorise(ScriptedEnv, first_index=4, render=True)
    vector.reset(out)
    for _ in range(4):
        vector.step(actions(vector), out)
    broken = made[0] if doing == "render" else made[1]
    setattr(broken, doing, lambda **_: leaves())
    vector._rows.steppers = [made[0].step, leaves if doing == "step" else made[1].step]
    ask = {"render": vector.render, "close": vector.close}.get(doing, lambda: vector.step(actions(vector), out))
    with pytest.raises(
        EnvironmentRaised, match=f"number {made.index(broken) + 4} raised SystemExit in {doing} at"
    ) as caught:
        ask()
    assert isinstance(caught.value.__cause__, SystemExit)
    assert caught.value.step == 4


def test_an_interrupt_is_not_the_environments():
    def interrupted(env, action):
        if env.total == 1:
            raise KeyboardInterrupt

    vector, out, _ = vectorise(lambda **k: ScriptedEnv(act=interrupted))
    vector.reset(out)
    vector.step(actions(vector), out)
    with pytest.raises(KeyboardInterrupt):
        vector.step(actions(vector), out)


def test_all_environments_are_closed_even_if_one_cannot_be():
    vector, _, made = vectorise(ScriptedEnv, num_envs=3)

    def close():
        raise Boom("stuck")

    made[1].close = close
    with pytest.raises(EnvironmentRaised, match="number 1 raised Boom in close"):
        vector.close()
    assert (made[0].closed, made[2].closed) == (1, 1)
    vector.close()
    assert made[0].closed == 1


def test_environments_of_a_batch_must_agree():
    vector, _, _ = vectorise(ScriptedEnv)
    other = spaces.Box(-1, 1, (7,), np.float32)
    made = []

    def make(render):
        made.append(ScriptedEnv(observation_space=other if made else None))
        return made[-1]

    with pytest.raises(EnvironmentFault, match=r"number 1 has observations Box\[7\].*Box\[3\]"):
        Vectoriser(vector.spec, make, 2, seed=0)
    assert [env.closed for env in made] == [1, 1]


def test_masks_follow_every_reset_and_step():
    def mask(env):
        return np.eye(3, dtype=np.int8)[env.t % 3]

    vector, out, _ = vectorise(lambda **k: ScriptedEnv(length=3, action_space=spaces.Discrete(3), mask=mask))
    assert vector.spec.action_mask
    assert out.action_mask.dtype == np.bool_
    vector.reset(out)
    seen = [np.argmax(out.action_mask, axis=1).tolist()]
    for _ in range(3):
        vector.step(actions(vector), out)
        assert (out.action_mask.sum(axis=1) == 1).all()
        seen.append(np.argmax(out.action_mask, axis=1).tolist())
    assert seen == [[0, 0], [1, 1], [2, 2], [0, 0]]  # the last is the next episode's first


def test_masks_of_several_dimensions_are_joined():
    space = spaces.MultiDiscrete([2, 3])
    parts = (np.array([1, 0], np.int8), np.array([0, 1, 1], np.int8))
    vector, out, _ = vectorise(lambda **k: ScriptedEnv(action_space=space, mask=lambda e: parts))
    vector.reset(out)
    np.testing.assert_array_equal(out.action_mask[0], [True, False, False, True, True])


@pytest.mark.parametrize(
    ("bad", "words"), [(None, "no 'action_mask'"), ([0, 0, 0], "no action at all"), ([1, 1], "2 ent")]
)
def test_a_mask_that_goes_wrong_is_a_fault(bad, words):
    def mask(env):
        return (np.array(bad) if bad else None) if env.total == 2 else np.ones(3, np.int8)

    vector, out, _ = vectorise(lambda **k: ScriptedEnv(action_space=spaces.Discrete(3), mask=mask))
    vector.reset(out)
    vector.step(actions(vector), out)
    with pytest.raises(EnvironmentFault, match=f"number 0, step 1:.*{words}"):
        vector.step(actions(vector), out)


@pytest.mark.parametrize(
    ("space", "fine", "bad", "words"),
    [
        (
            spaces.MultiDiscrete([2, 3, 2]),
            "01 001 10",
            "01 000 10",
            r"nothing in dimension 1 \(entries 2 to 4 of .* 7\)",
        ),
        (
            spaces.MultiDiscrete([2, 3, 2]),
            "01 001 10",
            "01 111 00",
            r"nothing in dimension 2 \(entries 5 to 6 of .* 7\)",
        ),
        (spaces.MultiDiscrete([2, 3, 2]), "01 001 10", "00 000 00", "no action at all"),
        (spaces.MultiDiscrete([[1, 2], [1, 2]]), "1 01 1 10", "1 01 0 10", r"nothing in dimension 2 \(entries 3 to 3"),
        (spaces.MultiBinary(3), "01 10 11", "00 10 11", "nothing in dimension 0"),
    ],
)
@pytest.mark.parametrize("joined", [True, False])
def test_a_mask_that_allows_nothing_in_one_dimension_is_a_fault(space, fine, bad, words, joined):
    def mask(env):
        parts = tuple(np.array(list(part), np.int8) for part in (bad if env.total == 2 else fine).split())
        return np.concatenate(parts) if joined else parts

    vector, out, _ = vectorise(lambda **k: ScriptedEnv(action_space=space, mask=mask))
    vector.reset(out)
    assert "".join(map(str, out.action_mask[0].astype(int))) == fine.replace(" ", "")
    still = np.zeros((2, *vector.spec.action.shape), vector.spec.action.dtype)
    vector.step(still, out)
    with pytest.raises(EnvironmentFault, match=f"number 0, step 1: .* allows {words}"):
        vector.step(still, out)


def test_a_first_mask_that_allows_nothing_in_one_dimension_is_found_as_it_is_opened():
    with pytest.raises(EnvironmentFault, match="allows nothing in dimension 1"):
        open_environment(
            lambda: ScriptedEnv(action_space=spaces.MultiDiscrete([2, 2]), mask=lambda e: np.array([1, 1, 0, 0]))
        )


def test_wrong_shapes_of_actions_are_refused():
    vector, out, _ = vectorise(ScriptedEnv)
    vector.reset(out)
    with pytest.raises(ConfigError, match=r"shape \[3\], expected \[2\]"):
        vector.step(np.zeros(3, np.int32), out)
    with pytest.raises(ConfigError, match="at least 1"):
        vectorise(ScriptedEnv, num_envs=0)


def test_only_the_first_is_rendered_and_only_if_asked():
    vector, out, made = vectorise(ScriptedEnv, render=True)
    assert [env.render_mode for env in made] == ["rgb_array", None]
    vector.reset(out)
    vector.step(actions(vector), out)
    frame = vector.render()
    assert (frame.shape, frame.dtype, frame.max()) == ((8, 8, 3), np.uint8, 10)
    with pytest.raises(ConfigError, match="render=True"):
        vectorise(ScriptedEnv)[0].render()


def test_final_observations_are_left_out_where_nobody_wants_them():
    vector, out, _ = vectorise(lambda **k: ScriptedEnv(length=1))
    out = out._replace(final_observation=None)
    vector.reset(out)
    vector.step(actions(vector), out)
    assert out.terminated.all()


def test_plain_gymnasium_and_the_vectoriser_tell_the_same_story():
    rng = np.random.default_rng(0)
    spec = probe("CartPole-v1", lambda: gym.make("CartPole-v1"))
    vector = Vectoriser(spec, lambda render: gym.make("CartPole-v1"), 3, seed=5)
    out = timestep_buffers(spec, (3,))
    vector.reset(out)
    alone = [gym.make("CartPole-v1") for _ in range(3)]
    observations = [env.reset(seed=host_seed(5, i))[0] for i, env in enumerate(alone)]
    ends = 0
    for _ in range(150):
        np.testing.assert_array_equal(out.observation, observations)
        action = rng.integers(2, size=3).astype(np.int32)
        vector.step(action, out)
        for i, env in enumerate(alone):
            observations[i], reward, terminated, truncated, _ = env.step(int(action[i]))
            assert (out.reward[i], out.terminated[i], out.truncated[i]) == (reward, terminated, truncated)
            if terminated or truncated:
                ends += 1
                np.testing.assert_array_equal(out.final_observation[i], observations[i])
                observations[i], _ = env.reset()
    assert ends > 5
    assert (spec.max_episode_steps, spec.frame_skip) == (500, 1)


def test_a_factory_that_gives_the_same_environment_twice_is_refused():
    once = ScriptedEnv(length=3)
    with pytest.raises(EnvironmentFault, match="number 1 is the same object as an earlier one"):
        vectorise(lambda **k: once)
    with pytest.raises(EnvironmentFault, match="number 1 is the same object"):
        vectorise(lambda **k: gym.wrappers.TimeLimit(once, 5))  # new wrappers do not make it another
