"""``weft scale``: what it says of a run, what it refuses before it asks one, and its exit codes."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from weft.cli.main import main
from weft.plans import parse
from weft.services.run_folder import lock_folder
from weft.services.scale_request import ScaleAnswer, answer, next_request


@pytest.fixture
def at(tmp_path: Path) -> list[str]:
    """The flags that lead to a run that is not under way."""
    run = tmp_path / "r"
    run.mkdir()
    (run / "config.json").write_text("{}")
    (run / "plan.json").write_text(json.dumps(parse("env*2 | act | learn").to_dict()))
    return ["--root", str(tmp_path)]


def answered(run: Path, became: ScaleAnswer) -> threading.Thread:
    """A run under way, in this process, that answers so."""

    def carry_out() -> None:
        lock, until = lock_folder(run), time.monotonic() + 30.0
        begun.set()
        while (request := next_request(run)) is None and time.monotonic() < until:
            time.sleep(0.01)
        assert request is not None
        answer(run, request, became)
        while list((run / "scale").glob("*")) and time.monotonic() < until:
            time.sleep(0.01)
        os.close(lock)

    begun = threading.Event()
    thread = threading.Thread(target=carry_out)
    thread.start()
    assert begun.wait(20.0)
    return thread


def test_without_counts_it_says_what_there_is(at: list[str], tmp_path: Path, capsys: Any) -> None:
    assert main(["scale", "r", *at]) == 0
    said = capsys.readouterr().out
    assert "env*2 | act | learn" in said
    assert "Hosts" not in said
    hosts = [{"name": f"host-{k}", "cores": 3, "room": 3} for k in range(2)]
    (tmp_path / "r" / "live.json").write_text(json.dumps({"hosts": hosts}))
    assert main(["scale", "r", *at]) == 0
    assert "host-0 (3 cores), host-1 (3 cores). It has 4 workers there, and room for 2 more." in capsys.readouterr().out
    assert main(["scale", "r", "--json", *at]) == 0
    assert json.loads(capsys.readouterr().out)["replicas"] == {"env": 2, "act": 1, "learn": 1}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nosuch", "env=4"], 2, "unknown run 'nosuch'"),
        (["r", "env=4"], 1, "is not under way"),
        (["r", "evn=4"], 2, "unknown fragment 'evn'. Did you mean 'env'?"),
        (["r", "env=0"], 2, "'env=0' is no count of replicas"),
        (["r", "env=4", "--plan", "inline"], 2, "give one of the two"),
        (["r", "--sceonds", "3"], 2, "Did you mean '--seconds'"),
    ],
)
def test_what_cannot_be_is_refused(at: list[str], capsys: Any, words: list[str], code: int, said: str) -> None:
    assert main(["scale", *words, *at]) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("became", "code"), [("scaled", 0), ("as it was", 0), ("refused", 2), ("failed", 1)])
def test_what_became_of_it_is_printed_and_is_the_exit_code(
    at: list[str], tmp_path: Path, capsys: Any, became: Any, code: int
) -> None:
    thread = answered(tmp_path / "r", ScaleAnswer(became, "so it is", "env*4 | act | learn"))
    assert main(["scale", "r", "env=4", *at]) == code
    thread.join()
    printed = capsys.readouterr()
    assert "so it is" in printed.out + printed.err
    assert ("plan: env*4 | act | learn" in printed.out) == (became == "scaled")


def test_a_population_is_not_scaled(at: list[str], tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "r" / "config.json").write_text('{"population": {}}')
    best = tmp_path / "r" / "best"
    best.mkdir()
    (best / "config.json").write_text("{}")
    assert main(["scale", "r", "env=4", *at]) == 1
    assert "is a population" in capsys.readouterr().err
