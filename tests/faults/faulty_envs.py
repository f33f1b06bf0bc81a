"""Environments that go wrong, as a user's module: copied to where the run is started."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import numpy as np


class Walk(gym.Env):
    """Twenty steps an episode; goes wrong only in the ways that its children do."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.time = self.total = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._look(), {}

    def step(self, action):
        self.time += 1
        self.total += 1
        return self._look(), float(action), self.time >= 20, False, {}

    def _look(self):
        return np.array([self.time / 20.0, self.np_random.random()], np.float32)


class NotesSeeds(Walk):
    """Writes down every seed that it is given."""

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            with Path("seeds").open("a") as file:
                file.write(f"{seed}\n")
        return super().reset(seed=seed, options=options)


class HangsOnce(Walk):
    """The first to reach step 200 sleeps for an hour; then never again, whoever is started."""

    def step(self, action):
        if self.total == 200 and _first("hung"):
            time.sleep(3600)
        return super().step(action)


class HangsInC(Walk):
    """Locks what it has locked, at step 200 of an environment: no signal ends that."""

    def step(self, action):
        if self.total == 200:
            Path("hung").touch()
            lock = ctypes.create_string_buffer(128)
            for _ in range(2):
                ctypes.CDLL(None).pthread_mutex_lock(lock)
        return super().step(action)


class HangsWhenMade(Walk):
    """The first is well, which is looked at before the run begins."""

    def __init__(self) -> None:
        super().__init__()
        if not _first("made"):
            time.sleep(3600)


class Starts(Walk):
    """Has a process of its own, as a simulator has, and ends it with the environment."""

    apart = False

    def __init__(self) -> None:
        super().__init__()
        self.child = subprocess.Popen(["sleep", "1000"], start_new_session=self.apart)
        with Path("started").open("a") as file:
            file.write(f"{self.child.pid}\n")

    def close(self):
        self.child.terminate()
        self.child.wait(5.0)
        with Path("closed").open("a") as file:
            file.write(f"{self.child.pid}\n")


class StartsApart(Starts):
    """Its process is in a session of its own, and nobody ends it."""

    apart = True

    def close(self):
        pass


class SlowToReplay(Walk):
    """One long episode; its steps take a while once a file says so."""

    def step(self, action):
        if self.total % 64 == 0 and Path("slowly").exists():
            time.sleep(0.25)
        seen, reward, _, _, info = super().step(action)
        return seen, reward, False, False, info


class Raises(Walk):
    """Divides by zero at step 150 of one environment."""

    def step(self, action):
        if self.total == 150:
            self.total // 0
        return super().step(action)


class Leaves(Walk):
    """Ends the process at step 150 of one environment, as if all were well."""

    def step(self, action):
        if self.total == 150:
            sys.exit()
        return super().step(action)


class Crashes(Walk):
    """Reads memory that is not there, at step 50 of an environment; in workers, only in the second of them."""

    def step(self, action):
        log = os.readlink("/proc/self/fd/1")
        if self.total == 50 and (not log.endswith(".log") or log.endswith("-1.log")):
            ctypes.string_at(0)
        return super().step(action)


class Spread(Walk):
    """After step 29, which is the 30th, an observation of another shape than its space says."""

    def _look(self):
        seen = super()._look()
        return seen[:1] if self.total == 30 else seen


class NotANumber(Walk):
    """The reward of step 29, which is the 30th, is NaN."""

    def step(self, action):
        seen, reward, *rest = super().step(action)
        return seen, float("nan") if self.total == 30 else reward, *rest


class CannotBeMade(Walk):
    """Looks well in the launcher, and cannot be made in a worker."""

    def __init__(self) -> None:
        super().__init__()
        if os.environ.get("WEFT_TEST_LAUNCHER") != str(os.getpid()):
            raise RuntimeError("no licence for this simulator")


class DiesWhenMade(Walk):
    """Takes its worker with it."""

    def __init__(self) -> None:
        super().__init__()
        if os.environ.get("WEFT_TEST_LAUNCHER") != str(os.getpid()):
            os._exit(7)


class Forks(Walk):
    """Has a child that outlives its worker for a while, with everything that the worker had open."""

    def __init__(self) -> None:
        super().__init__()
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)


def _first(what: str) -> bool:
    """Whether nobody has said ``what`` before, in any process."""
    try:
        Path(what).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def notes_seeds():
    return NotesSeeds()


def hangs_once():
    return HangsOnce()


def hangs_in_c():
    return HangsInC()


def hangs_when_made():
    return HangsWhenMade()


def starts():
    return Starts()


def starts_apart():
    return StartsApart()


def slow_to_replay():
    return SlowToReplay()


def raises():
    return Raises()


def leaves():
    return Leaves()


def crashes():
    return Crashes()


def forks():
    return Forks()


def lies():
    return Spread()


def not_a_number():
    return NotANumber()


def cannot_be_made():
    os.environ.setdefault("WEFT_TEST_LAUNCHER", str(os.getpid()))
    return CannotBeMade()


def dies_when_made():
    os.environ.setdefault("WEFT_TEST_LAUNCHER", str(os.getpid()))
    return DiesWhenMade()
