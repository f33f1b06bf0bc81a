"""What another thread sees of the one that works: which environment it is in, and whether it compiles."""

from __future__ import annotations

import threading
import time

import gymnasium as gym
import jax
import numpy as np
import pytest

from weft.core.buffers import timestep_buffers
from weft.envs.registry import open_environment
from weft.envs.whereabouts import environment_in
from weft.runtimes.stacks import frame_of, is_compiling, is_computing
from weft.runtimes.workers import pulse as pulses
from weft.runtimes.workers.control.link import Link
from weft.runtimes.workers.counting.account import Account, Doing, OfSide
from weft.runtimes.workers.pulse import Pulse


class Sleeps(gym.Env):
    """Sleeps at each step for ``seconds``, which a test sets."""

    seconds = 0.0
    observation_space, action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        time.sleep(Sleeps.seconds)
        return np.zeros(2, np.float32), 0.0, False, False, {}


@pytest.fixture
def batch(monkeypatch):
    monkeypatch.setattr(Sleeps, "seconds", 0.0)
    env = open_environment(Sleeps, vector="each").host(3, seed=1, first_index=4)
    out = timestep_buffers(env.spec, (3,))
    env.reset(out)
    yield env, out
    env.close()


@pytest.fixture
def beating(monkeypatch):
    """A pulse that beats quickly, the words that it writes, and the launcher's end of its link."""
    monkeypatch.setattr(pulses, "BEAT_SECONDS", 0.02)
    account, (link, theirs) = Account(1, 0), Link.pair()
    pulse = Pulse(account, Link(theirs), (0,), hang_seconds=0.5)
    pulse.start()
    yield account.sides[0], link
    pulse.end()
    link.close()
    theirs.close()
    account.close()


class Seen(threading.Thread):
    """Looks at the main thread every millisecond; ``found`` is all that it saw, without doubles."""

    def __init__(self, look):
        super().__init__(daemon=True)
        self._look, self._ended, self.found = look, threading.Event(), []

    def run(self):
        while not self._ended.wait(0.001):
            seen = self._look(frame_of(threading.main_thread().ident))
            if seen not in self.found:
                self.found.append(seen)

    def __enter__(self):
        self.start()
        return self.found

    def __exit__(self, *error):
        self._ended.set()
        self.join()


def test_the_environment_that_is_being_stepped_is_seen_by_its_number(batch):
    env, out = batch
    Sleeps.seconds = 0.1
    with Seen(environment_in) as found:
        env.step(np.zeros(3, np.int32), out)
    texts = [str(where) for where in found if where is not None]
    assert texts == [f"environment {i} has not returned from step() after 0 steps" for i in (4, 5, 6)]


def test_environments_that_replay_show_progress_and_one_that_does_not_return_is_told_of(batch, beating):
    env, out = batch
    words, link = beating
    for _ in range(30):
        env.step(np.zeros(3, np.int32), out)
    saved, moved = env.snapshot(), int(words[OfSide.MOVED])
    Sleeps.seconds = 0.01
    assert env.restore(saved, out) == []
    assert words[OfSide.MOVED] > moved + 10, "90 steps were replayed in about a second"
    assert link.hear(0) is None
    Sleeps.seconds = 1.0
    env.step(np.zeros(3, np.int32), out)
    assert words[OfSide.DOING] == Doing.CALLING
    message = link.hear(1.0)
    assert (message.topic, message.body["text"]) == (
        "where",
        "environment 4 has not returned from step() after 30 steps",
    )


def test_what_compiles_is_seen_and_what_computes_is_not_taken_for_it():
    def long(x):
        return jax.lax.fori_loop(0, 200, lambda _, y: jax.numpy.tanh(y @ y), x)

    def many(x):  # another program each time that the test runs, so that no cache has it
        for k in range(300):
            x = x * (k + time.time() % 1.0) + jax.numpy.sin(x)
        return x

    with Seen(is_compiling) as found:
        jax.jit(many)(np.float32(1.0)).block_until_ready()
    assert True in found
    program = jax.jit(long).lower(np.ones((256, 256), np.float32)).compile()
    with Seen(lambda frame: (is_compiling(frame), is_computing(frame))) as found:
        program(np.ones((256, 256), np.float32)).block_until_ready()
    assert not any(compiling for compiling, _ in found)
