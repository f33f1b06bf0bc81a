"""Environments that raise and go on, and observations outside their Box: what is written, counted, and given up."""

import json

import numpy as np
import pytest
from gymnasium import spaces

from weft.core.buffers import timestep_buffers
from weft.core.errors import EnvironmentFault, EnvironmentRaised
from weft.envs.factory import open_factory
from weft.envs.fake import ScriptedEnv
from weft.envs.guards import Guards, guarded

GOES_ON = Guards("reset", "warn")


class Batch:
    """A guarded batch of ScriptedEnvs; ``act(env, row)`` is called before each step, ``begin(env, row)`` at resets."""

    def __init__(self, num_envs=3, act=None, begin=None, guards=GOES_ON, **options):
        self.made, outer = [], self

        class Env(ScriptedEnv):
            def __init__(self):
                super().__init__(**options)
                self.row = len(outer.made) - 1  # the first is the probe's
                self.calls = 0
                outer.made.append(self)

            def reset(self, **how):
                if begin is not None and self.row >= 0:
                    begin(self, self.row)
                return super().reset(**how)

            def step(self, action):
                self.calls += 1
                if act is not None and self.row >= 0:
                    act(self, self.row)
                return super().step(action)

        self.source = guarded(open_factory("scripted", Env, {}), guards)
        self.made.clear()
        self.made.append(None)
        self.env = self.source.host(num_envs, 7)
        self.out = timestep_buffers(self.source.spec, (num_envs,))
        self.troubles = []

    def step(self, times=1):
        for _ in range(times):
            self.env.step(np.zeros(self.env.num_envs, np.int32), self.out)
            self.troubles += self.env.troubles.take()
        return self.out

    @property
    def errors(self):
        return sum(trouble.errors for trouble in self.troubles)


def fails(*when):
    """Raise in these (row, step of that environment, counted from 0)."""

    def act(env, row):
        if (row, env.calls - 1) in when:
            raise ZeroDivisionError("a wheel came off")

    return act


def test_one_that_raises_begins_again_and_its_record_is_left_out():
    batch = Batch(act=fails((1, 2)), length=50)
    batch.env.reset(batch.out)
    batch.step(2)
    assert batch.out.valid.all()
    out = batch.step()
    assert out.valid.tolist() == [True, False, True]
    assert out.truncated.tolist() == out.first.tolist() == [False, True, False]
    assert not out.terminated.any()
    assert out.reward.tolist() == [3.0, 0.0, 3.0]
    assert out.observation[:, 2].tolist() == [3, 0, 3], "the first of a new episode"
    out = batch.step()
    assert out.valid.all()
    assert not out.first.any()
    assert out.observation[:, 2].tolist() == [4, 1, 4]
    assert batch.errors == 1
    (trouble,) = batch.troubles
    assert "number 1 raised ZeroDivisionError in step at its step 2: a wheel came off (its seed was" in trouble.text
    assert "a wheel came off" in trouble.traceback
    assert trouble.kind.startswith("ZeroDivisionError (test_guards.py:")


def test_a_fault_like_one_before_is_counted_and_not_told_again():
    batch = Batch(act=fails((1, 2), (0, 4), (2, 4)), length=50)
    batch.env.reset(batch.out)
    batch.step(8)
    assert batch.errors == 3
    assert [bool(trouble.text) for trouble in batch.troubles] == [True, False]


def test_what_fails_alike_gives_alike():
    def played():
        batch = Batch(act=fails((1, 2), (2, 5)), length=4)
        batch.env.reset(batch.out)
        return np.stack([batch.step().observation.copy() for _ in range(12)])

    np.testing.assert_array_equal(played(), played())


def test_with_errors_that_fail_the_exception_ends_it_and_records_have_no_flag():
    batch = Batch(act=fails((1, 2)), guards=Guards("fail", "warn"))
    assert batch.out.valid is None
    batch.env.reset(batch.out)
    with pytest.raises(EnvironmentRaised, match="number 1 raised ZeroDivisionError in step at its step 2"):
        batch.step(3)


def test_where_all_raise_in_the_first_step_ever_it_is_a_mistake():
    batch = Batch(act=fails((0, 0), (1, 0), (2, 0)))
    batch.env.reset(batch.out)
    with pytest.raises(EnvironmentRaised, match="number 0 raised ZeroDivisionError in step at its step 0") as caught:
        batch.step()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert Batch(act=fails((0, 0), (1, 0))).env.reset(batch.out) is None, "but not where some do"


def test_where_all_raise_in_the_first_reset_it_is_a_mistake():
    def begin(env, row):
        raise OSError("no simulator")

    batch = Batch(begin=begin)
    with pytest.raises(EnvironmentRaised, match="number 0 raised OSError in reset at its step 0"):
        batch.env.reset(batch.out)


def test_a_reset_that_raises_after_a_good_step_leaves_its_record():
    failing = [True]

    def begin(env, row):
        if row == 1 and env.total == 3 and failing and failing.pop():
            raise OSError("no simulator")

    batch = Batch(begin=begin, length=3)
    batch.env.reset(batch.out)
    out = batch.step(3)
    assert out.valid.all()
    assert out.terminated.all()
    assert out.observation[:, 2].tolist() == [0, 0, 0]
    assert batch.errors == 1


def test_one_that_fails_three_times_is_made_anew_and_then_given_up():
    def act(env, row):
        if env is not batch.made[1] and env is not batch.made[3] and env.row != 0 and env.row != 2:
            raise ZeroDivisionError  # every environment for row 1: the second, and what replaces it

    batch = Batch(act=act, length=50)
    batch.env.reset(batch.out)
    batch.step(2)
    assert len(batch.made) == 4, "three environments, none made anew yet"
    batch.step()
    assert len(batch.made) == 5, "made anew after the third failure in a row"
    assert not batch.env._rows.failures.given_up
    batch.step(3)
    assert batch.env._rows.failures.given_up == {1}
    assert batch.errors == 6
    out = batch.step(4)
    assert batch.errors == 6, "it is not stepped any more"
    assert out.valid.tolist() == [True, False, True]
    assert out.first.tolist() == [False, True, False]
    assert not out.observation[1].any()
    assert out.observation[0, 2] == 10
    assert any("number 1 failed 6 times" in trouble.text for trouble in batch.troubles)


def test_failures_with_good_steps_in_between_do_not_add_up():
    batch = Batch(act=fails(*[(1, k) for k in range(1, 40, 2)]), length=50)
    batch.env.reset(batch.out)
    batch.step(60)
    assert batch.errors == 20
    assert not batch.env._rows.failures.given_up


def test_where_none_is_left_it_ends_with_the_reason():
    calm = [2]  # the first steps are good

    def act(env, row):
        if calm[0] <= 0:
            raise ZeroDivisionError("a wheel came off")

    batch = Batch(act=act, length=50)
    batch.env.reset(batch.out)
    batch.step(2)
    calm[0] = 0
    with pytest.raises(EnvironmentFault, match=r"all 3 of a batch failed again and again.*a wheel came off") as caught:
        batch.step(10)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("given_up", [False, True])
def test_a_batch_with_failures_is_brought_back_exactly(given_up):
    def act(env, row):
        if row in (1, 3) and (given_up or env.np_random.random() < 0.2):
            raise ZeroDivisionError

    def look(env):  # not the number of the episode, which is not replayed
        return np.array([env.np_random.random(), env.t, 0], np.float32)

    one = Batch(act=act, length=7, observe=look)
    one.env.reset(one.out)
    one.step(20)
    assert one.errors
    assert bool(one.env._rows.failures.given_up) == given_up
    other = Batch(act=act, length=7, observe=look)
    assert other.env.restore(json.loads(json.dumps(one.env.snapshot())), other.out) == []
    for name in ("observation", "reward", "terminated", "truncated"):
        np.testing.assert_array_equal(getattr(other.out, name), getattr(one.out, name), err_msg=name)
    for _ in range(10):
        for mine, theirs in zip(one.step(), other.step(), strict=True):
            if mine is not one.out.final_observation and mine is not None:
                np.testing.assert_array_equal(mine, theirs)


BOX = spaces.Box(np.array([-1, -np.inf], np.float32), np.array([1, np.inf], np.float32))


def showing(value):
    return {"observation_space": BOX, "observe": lambda e: np.array([value if e.t == 2 else 0, 99], np.float32)}


def test_observations_outside_their_box_are_counted_and_told_once():
    batch = Batch(length=50, **showing(1.5))
    batch.env.reset(batch.out)
    batch.step(4)
    (trouble,) = batch.troubles
    assert (trouble.outside, trouble.errors) == (3, 0)
    assert "number 0, step 1: observation[0] is 1.5, outside its Box, which goes from -1.0 to 1.0" in trouble.text


def test_final_observations_outside_their_box_are_counted_too():
    batch = Batch(length=2, **showing(-3.0))
    batch.env.reset(batch.out)
    batch.step(2)
    assert sum(trouble.outside for trouble in batch.troubles) == 3
    assert "final observation[0] is -3.0" in batch.troubles[0].text


def test_asked_to_fail_an_observation_outside_its_box_is_a_fault():
    batch = Batch(length=50, guards=Guards("reset", "fail"), **showing(1.5))
    batch.env.reset(batch.out)
    with pytest.raises(EnvironmentFault, match=r"number 0, step 1: observation\[0\] is 1.5, outside its Box"):
        batch.step(2)
    batch = Batch(length=50, guards=Guards("reset", "ignore"), **showing(1.5))
    batch.env.reset(batch.out)
    batch.step(4)
    assert batch.troubles == []


@pytest.mark.parametrize("space", [spaces.Box(0, 255, (2, 2), np.uint8), spaces.Box(-np.inf, np.inf, (2,), np.float32)])
def test_what_no_value_could_exceed_is_not_looked_at(space):
    batch = Batch(observation_space=space)
    assert all(part.low is None and part.high is None for part in batch.env._scan._parts)
