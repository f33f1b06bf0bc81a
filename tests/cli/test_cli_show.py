"""``weft show``: a plan, and a run that was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import SMALL, Weft

import weft as package

STREAMS = {
    "timestep": {"messages_per_second": 3924.6, "bytes_per_message": 312, "environments": 2},
    "unroll": {"messages_per_second": 12.25, "bytes_per_message": 10168, "environments": 2},
    "params": {"messages_per_second": 0.0, "bytes_per_message": 100},
}


@pytest.fixture
def ran(weft: Weft, here: Path) -> Path:
    """The folder of a run in one process."""
    ended = weft("train", "ppo", "weft:CartPole-v1", *SMALL, "--run", "first", "--quiet")
    assert ended.code == 0, ended.err
    return here / "runs" / "first"


def test_a_run_in_one_process_has_nothing_measured(weft: Weft, ran: Path) -> None:
    ended = weft("show", "first")
    assert (ended.code, ended.err) == (0, "")
    assert "╭─ env+act+learn ─" in ended.out
    assert "messages/s" not in ended.out.splitlines()[-3]
    assert "Nothing was measured between workers: it is one group." in ended.out
    assert weft("show", str(ran)).out == ended.out
    assert weft("show", "first", "--mermaid").out.startswith("flowchart")


def test_a_run_in_workers_has_messages_and_bytes_per_second(weft: Weft, ran: Path) -> None:
    """As the process runtime leaves it: its own tests see to the numbers."""
    plan = [{"fragments": [name], "replicas": n, "device": None} for name, n in (("env", 2), ("act", 1), ("learn", 1))]
    (ran / "plan.json").write_text(json.dumps({"expression": "env*2 | act | learn", "groups": plan}))
    summary = json.loads((ran / "summary.json").read_text())
    (ran / "summary.json").write_text(json.dumps({**summary, "streams": STREAMS, "env_steps_per_second": 7849.2}))
    out = weft("show", "first").out
    assert "╭─ env*2 ─" in out
    rows = {line.split()[0]: line for line in out.splitlines() if "→" in line}
    assert "3,925/s    312 B  1.2 MiB/s" in rows["timestep"]
    assert "12.2/s  9.9 KiB  122 KiB/s" in rows["unroll"]
    assert "0.0/s" in rows["params"]
    assert "/s" not in rows["action"]
    assert "is one lane's, 2 environments" in out
    assert "7,849 env steps/s in all." in out
    assert "measured: 3,925/s of 312 B" in weft("show", "first", "--mermaid").out
    (ran / "summary.json").unlink()
    assert "Nothing is measured yet: the run has not ended." in weft("show", "first").out


def test_sizes_say_what_a_message_is(weft: Weft) -> None:
    show = ("show", "ppo", "weft:CartPole-v1", "--envs", "16", "--plan")
    lanes = "Between workers timestep, action and unroll travel in 4 lanes of 4, a message for each lane."
    assert f"Sizes are of all 16 environments together. {lanes}" in weft(*show, "env*2 | act | learn").out
    assert f"Sizes are of one learner's 8 environments together. {lanes}" in weft(*show, "env*2 | act | learn*2").out
    assert "Sizes" not in weft(*show, "inline").out


def test_lanes_are_those_of_the_ring(weft: Weft) -> None:
    show = ("show", "ppo", "weft:CartPole-v1", "--envs", "16", "--plan", "env*2 | act | learn", "--ring")
    assert "travel in 8 lanes of 2," in weft(*show, "4").out
    assert "travel in 2 lanes of 8," in weft(*show, "1").out
    assert weft(*show, "0") == (2, "", "weft: error: ring must be at least 1 slice, got 0\n")
    said = package.show("ppo", "weft:CartPole-v1", plan="env*2 | act | learn", envs=16, ring=4)
    assert said == weft(*show, "4").out.rstrip("\n"), "Python draws what the command does"


def test_streams_say_what_they_take_of_memory(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    show = ("show", "ppo", "CartPole-v1", "--envs", "32", "--plan", "env*2 | act | learn")
    out = weft(*show).out
    assert out.splitlines()[-1] == (
        "Streams take 163 KiB of shared memory: unroll 84 KiB, params 73 KiB, timestep 4.2 KiB, action 2.0 KiB."
    )
    assert "shared memory" not in weft(*show[:-1], "inline").out
    monkeypatch.setattr("weft.plans.machine._memory", lambda: 100 * 1024)
    ended = weft(*show)
    assert ended.code == 0
    assert "need 163 KiB of memory" in ended.out
    assert "there are 100 KiB here" in ended.out


def test_what_would_not_run_says_why(weft: Weft) -> None:
    ended = weft("show", "ppo", "weft:CartPole-v1", "--plan", "central")
    assert ended.code == 0
    assert "parts grad from apply" in ended.out
    out = weft("show", "ppo", "mine:nameless", "--plan", "env | act | learn").out
    assert "which a worker process cannot import" in out
    assert "parts grad from apply" not in weft("show", "a2c", "weft:CartPole-v1", "--plan", "central").out


def test_a_run_that_is_not_there(weft: Weft, ran: Path) -> None:
    assert weft("show", "frist") == (
        2,
        "",
        "weft: error: unknown run 'frist'. Did you mean 'first'? Runs are looked for in runs.\n",
    )
    assert "weft show needs ENV" in weft("show", "ppo").err
    assert "unknown flag '--plan'" in weft("show", "first", "--plan", "inline").err
