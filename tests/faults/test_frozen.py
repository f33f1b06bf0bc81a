"""Workers that are stopped: noticed whatever they were doing, and nobody else blamed."""

from __future__ import annotations

import os
import signal
import time

import pytest
from running import missing

SMALL = ["--envs", "8", "--seed", "1", "--steps", "100000000", "--checkpoint-seconds", "0.5", "--algo.hidden", "16"]
PLAN = ["--plan", "env*2 | act | learn"]


@pytest.mark.parametrize(
    ("algorithm", "plan", "names"),
    [
        ("ppo", "env*2 | act | learn", ["env-0"]),
        pytest.param("ppo", "env*2 | act | learn", ["act-0", "learn-0", "env-1"] * 3, marks=pytest.mark.slow),
        pytest.param("ppo", "(env+act)*2 | learn", ["env+act-0", "learn-0"] * 3, marks=pytest.mark.slow),
        pytest.param("a2c", "env*2 | act | learn*2", ["learn-0", "learn-1"] * 2, marks=pytest.mark.slow),
        pytest.param(
            "mapped:CentredOnHost", "(env+act)*2 | relabel | learn", ["relabel-0"] * 3, marks=pytest.mark.slow
        ),
    ],
)
def test_a_worker_that_is_stopped_is_replaced(training, algorithm, plan, names):
    """With ``--hang-seconds 4``: some seconds after that at most. Most of its time each of them waits for others."""
    run = training(algorithm, "CartPole-v1", "--plan", plan, *SMALL, "--hang-seconds", "4")
    run.wait_for_learning(2)
    run.wait_for_checkpoint()
    for name in names:
        pid = run.kill(name, signal.SIGSTOP)
        assert run.wait_for_another(name, pid, 30.0) > 2.0
        run.wait_for_learning(2)
    assert run.end(signal.SIGINT) == 130
    assert run.left() == []
    assert run.summary["restarts"] == len(names)
    assert missing(run.summary["samples"]) == 0
    told = [line for line in run.err.splitlines() if "its process stands still" in line]
    assert [line.split()[2] for line in told] == names, "others were blamed"


STOPS_AMID_A_MESSAGE = """
import os, signal
from weft.runtimes.workers.control import link

class Stopping:
    def __init__(self, socket):
        self._socket, self._sent = socket, 0
    def sendall(self, data):
        self._sent += 1
        if self._sent == 2:  # the first of the arrays
            os.kill(os.getpid(), signal.SIGSTOP)
        self._socket.sendall(data)

def say(self, topic, body=None, arrays=()):
    there = self._socket
    if topic == "saved" and arrays and os.path.exists({stop!r}):
        os.unlink({stop!r})
        self._socket = Stopping(there)
    whole(self, topic, body, arrays)
    self._socket = there

whole, link.Link.say = link.Link.say, say
"""


@pytest.mark.slow
def test_a_learner_that_is_stopped_amid_a_message_is_replaced(training, tmp_path, monkeypatch):
    """What the launcher has of the message must not keep it from looking on."""
    stop = tmp_path / "stop"
    (tmp_path / "sitecustomize.py").write_text(STOPS_AMID_A_MESSAGE.format(stop=str(stop)))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    run = training("ppo", "CartPole-v1", *PLAN, *SMALL, "--hang-seconds", "4")
    run.wait_for_learning(2)
    pid = run.workers()["learn-0"]
    stop.touch()
    assert run.wait_for_another("learn-0", pid, 30.0) > 2.0
    run.wait_for_learning(2)
    assert run.end(signal.SIGINT) == 130
    assert run.left() == []
    assert run.summary["restarts"] == 1
    assert missing(run.summary["samples"]) == 0
    assert "its process stands still" in run.err


@pytest.mark.slow
def test_when_everything_is_stopped_and_goes_on_nobody_is_blamed(training):
    """As a machine that is suspended, or Ctrl-Z and fg; and the launcher alone, for longer than workers may be."""
    run = training("ppo", "CartPole-v1", *PLAN, *SMALL, "--hang-seconds", "3")
    run.wait_for_learning(2)
    workers = list(run.workers().values())
    for pids in ([run.process.pid, *workers], [run.process.pid]):
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(4.5)
        for pid in pids:  # the launcher first: it looks before any of the others has had time to tick
            os.kill(pid, signal.SIGCONT)
        run.wait_for_learning(2)
    assert run.end(signal.SIGINT) == 130
    assert run.summary["restarts"] == 0
    assert "is killed and replaced" not in run.err


@pytest.mark.slow
def test_environments_may_take_longer_to_replay_than_a_worker_to_start(training, tmp_path, monkeypatch):
    """A lockstep run whose environments replay for long is resumed all the same."""
    plan = [*PLAN, "--lockstep", "--vector", "each", "--envs", "8", "--seed", "1", "--algo.hidden", "16"]
    (tmp_path / "sitecustomize.py").write_text(
        "from weft.runtimes.workers.control import watch\nwatch.START_SECONDS = 15.0\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    first = training("ppo", "faulty_envs:slow_to_replay", *plan, "--steps", "20000")
    assert first.end(seconds=120) == 0, first.err
    (tmp_path / "slowly").touch()
    began = time.monotonic()
    again = training("ppo", "faulty_envs:slow_to_replay", *plan, "--steps", "24000")
    assert again.end(seconds=300) == 0, again.err
    assert time.monotonic() - began > 30, "it replayed for longer than a worker may take to start"
    assert "not exactly" not in again.err
