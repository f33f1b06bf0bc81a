"""Fan-out to sinks, rhythms, and sinks in trouble."""

from __future__ import annotations

import importlib.util
import io
import json
import math
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from weft.telemetry.plain import Plain, Quiet
from weft.telemetry.sink import Record
from weft.telemetry.telemetry import Telemetry, open_telemetry


class Kept:
    """A sink that keeps what it gets, and fails while told to."""

    def __init__(self, every: float = 0.0) -> None:
        self.every = every
        self.got: list[tuple[dict[str, Any], int]] = []
        self.closed = 0
        self.failing: type[Exception] | None = None

    def write(self, record: Record, env_steps: int) -> None:
        if self.failing:
            raise self.failing("No space left on device")
        self.got.append((dict(record), env_steps))

    def close(self) -> None:
        self.closed += 1
        if self.failing:
            raise self.failing("No space left on device")


class Clock:
    """Seconds that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_each_sink_gets_records_at_its_own_rhythm_and_the_last_one_at_the_end() -> None:
    clock, all_of_them, some = Clock(), Kept(), Kept(every=1.0)
    with Telemetry([all_of_them, some], clock=clock) as telemetry:
        for step in range(8):
            telemetry.write({"x": step}, step)
            clock.now += 0.4
    assert [steps for _, steps in all_of_them.got] == list(range(8))
    assert [steps for _, steps in some.got] == [0, 3, 6, 7]
    assert all_of_them.closed == some.closed == 1


def test_scalars_of_numpy_and_jax_become_plain_numbers() -> None:
    sink = Kept()
    Telemetry([sink]).write(
        {"a": np.float32(0.5), "b": jnp.int32(3), "c": jnp.array(2.0), "d": None, "e": "text", "f": 7, "g": True}, 1
    )
    record, _ = sink.got[0]
    assert math.isnan(record.pop("d"))
    assert record == {"a": 0.5, "b": 3, "c": 2.0, "e": "text", "f": 7, "g": 1.0}
    assert [type(record[name]) for name in "abcefg"] == [float, int, float, str, int, float]


def test_a_sink_in_trouble_is_said_once_and_again_when_it_works() -> None:
    said, troubled, healthy = io.StringIO(), Kept(), Kept()
    telemetry = Telemetry([troubled, healthy], Quiet(stream=said))
    telemetry.write({}, 1)
    troubled.failing = OSError
    for step in (2, 3, 4):
        telemetry.write({}, step)
    assert said.getvalue().count("\n") == 1
    assert "Kept: No space left on device. Training goes on" in said.getvalue()
    troubled.failing = None
    telemetry.write({}, 5)
    telemetry.write({}, 6)
    assert said.getvalue().splitlines()[1:] == ["warning: Kept: works again; records lost: 3."]
    assert [steps for _, steps in troubled.got] == [1, 5, 6]
    assert [steps for _, steps in healthy.got] == [1, 2, 3, 4, 5, 6]


def test_trouble_in_closing_one_sink_does_not_keep_others_open() -> None:
    said, first, second = io.StringIO(), Kept(), Kept()
    first.failing = OSError
    Telemetry([first, second], Quiet(stream=said)).close()
    assert (first.closed, second.closed) == (1, 1)
    assert "No space left" in said.getvalue()


def test_a_bug_in_a_sink_is_not_swallowed() -> None:
    sink = Kept()
    sink.failing = ValueError
    with pytest.raises(ValueError, match="No space"):
        Telemetry([sink]).write({}, 1)


def test_an_exception_in_the_run_closes_everything_and_passes() -> None:
    sink = Kept(every=10)

    def run() -> None:
        with Telemetry([sink]) as telemetry:
            telemetry.write({}, 1)
            telemetry.write({}, 2)
            raise RuntimeError("the run's own")

    with pytest.raises(RuntimeError, match="the run's own"):
        run()
    assert ([steps for _, steps in sink.got], sink.closed) == ([1, 2], 1)


def test_a_screen_that_is_gone_never_stops_a_run() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    sink = Kept()
    with Telemetry([sink], Plain(stream=Gone())) as telemetry:
        telemetry.note("x")
        telemetry.warn("y")
        telemetry.write({}, 1)
    assert len(sink.got) == 1


def test_plain_lines() -> None:
    out, clock = io.StringIO(), Clock()
    screen = Plain(500_000, stream=out, clock=clock)
    record = {
        "return_mean": 412.34,
        "env_steps_per_second": 45_000.0,
        "loss/policy": -0.01,
        "time/env": 0.7,
        "time/learn": 0.3,
    }
    screen.write(record, 50_000)
    screen.write({**record, "return_mean": math.nan}, 500_000)
    screen.warn("careful")
    screen.note("by the way")
    first, bound, second, warning, note = out.getvalue().splitlines()
    assert first == " 10%   50,000 steps  return 412.3  45,000 steps/s  policy -0.01000  10 s left".replace(
        "-0.01000", "-0.01"
    )
    assert bound.strip().startswith("env-bound")
    assert (
        second == "100%  500,000 steps  return –  45,000 steps/s  policy -0.01"
    )  # the same bottleneck is not said again
    assert (warning, note) == ("warning: careful", "by the way")


def test_plain_lines_of_a_run_without_an_end() -> None:
    out = io.StringIO()
    Plain(stream=out, clock=Clock()).write({}, 12_345)
    assert out.getvalue() == "12,345 steps  – steps/s\n"


def test_quiet_says_nothing_but_warnings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with open_telemetry(quiet=True, metrics=tmp_path / "m.jsonl", total_steps=10) as telemetry:
        telemetry.write({"return_mean": 1.0}, 5)
        telemetry.note("in passing")
        telemetry.warn("lost")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "warning: lost\n"
    assert json.loads((tmp_path / "m.jsonl").read_text())["return_mean"] == 1.0


def test_all_that_people_read_goes_to_stderr(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with open_telemetry(metrics=tmp_path / "m.jsonl", tensorboard=tmp_path / "tb", total_steps=10) as telemetry:
        telemetry.write({"return_mean": 1.0}, 5)
        telemetry.note("in passing")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "50%" in captured.err
    assert "in passing" in captured.err
    assert len(list((tmp_path / "tb").iterdir())) == 1


def test_without_tensorboardx_it_is_said_and_the_rest_works(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "weft.telemetry.tensorboard.find_spec", lambda name: None if name == "tensorboardX" else real(name)
    )
    with open_telemetry(metrics=tmp_path / "m.jsonl", tensorboard=tmp_path / "tb") as telemetry:
        telemetry.write({}, 1)
    assert "pip install tensorboardX" in capsys.readouterr().err
    assert not (tmp_path / "tb").exists()
    assert (tmp_path / "m.jsonl").exists()


@pytest.mark.parametrize(
    ("tty", "term", "expected"), [(True, "xterm", "Terminal"), (True, "dumb", "Plain"), (False, "xterm", "Plain")]
)
def test_the_live_table_is_for_terminals(monkeypatch: pytest.MonkeyPatch, tty: bool, term: str, expected: str) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: tty, raising=False)
    monkeypatch.setenv("TERM", term)
    assert type(open_telemetry().screen).__name__ == expected


def test_an_evaluation_comes_to_every_sink_at_once_and_is_a_line_of_its_own() -> None:
    clock, some, out = Clock(), Kept(every=10.0), io.StringIO()
    found = {"eval/return_mean": 487.3, "eval/return_low": 470.1, "eval/return_high": 504.5, "eval/episodes": 20}
    with Telemetry([some], Plain(1000, every=10.0, stream=out, clock=clock), clock=clock) as telemetry:
        telemetry.write({"x": 1}, 100)
        telemetry.write({"x": 2, **found, "eval/version": 625}, 200, at_once=True)
        telemetry.write({"x": 3}, 300)
    assert [steps for _, steps in some.got] == [100, 200, 300]
    told = [line.strip() for line in out.getvalue().splitlines() if "evaluation" in line]
    assert told == ["evaluation: 487.3  (470.1 to 504.5)  20 episodes  version 625"]
