"""The benchmarks run: statistics by hand, and the harness at tiny sizes. No test here asserts a speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.measure import Case, Comparison, interleave
from benchmarks.options import find_bare, parse_dqn_size, parse_size
from benchmarks.serve import sized
from benchmarks.table import number, tables, to_json
from benchmarks.worker import ROOT, Worker

NOT_ON_AN_ACCELERATOR = ("gymnasium", "tyro", "msgspec", "tensorboardX", "zmq")


def test_rounds_interleave_back_and_forth_and_the_faster_rival_counts() -> None:
    order: list[str] = []
    values = {"a": iter([10.0, 40.0, 30.0]), "b": iter([5.0, 10.0, 5.0]), "slow": iter([1.0, 1.0, 1.0])}

    def contender(name: str) -> float:
        order.append(name)
        return next(values[name])

    case = Case(
        "t", "u", {name: lambda name=name: contender(name) for name in values}, [Comparison("a", ("slow", "b"))]
    )
    (outcome,) = interleave([case], 3)
    assert order == ["a", "b", "slow", "slow", "b", "a", "a", "b", "slow"]
    assert (outcome.spreads["a"].median, outcome.spreads["a"].low, outcome.spreads["a"].high) == (30.0, 10.0, 40.0)
    (ratio,) = outcome.ratios
    assert (ratio.against, ratio.of_medians, ratio.of_pairs, ratio.low, ratio.high) == ("b", 6.0, 4.0, 2.0, 6.0)
    assert json.loads(json.dumps(to_json([outcome])))[0]["values"]["a"] == [10.0, 40.0, 30.0]


def test_the_table_says_whether_an_aim_was_reached() -> None:
    case = Case("title", "unit", {"a": lambda: 3.0, "b": lambda: 2.0}, [Comparison("a", ("b",), 1.4)], ["a note"])
    reached = tables(interleave([case], 1))
    assert "### title" in reached
    assert "a note" in reached
    assert "reached" in reached
    case.comparisons = [Comparison("a", ("b",), 1.6), Comparison("a", ("absent",))]
    assert "missed" in tables(interleave([case], 1))


def test_numbers_and_sizes_read() -> None:
    assert [number(x) for x in (0.12345, 12.345, 999.96, 12345.6, 131_234_567)] == [
        "0.1235",
        "12.35",
        "1000",
        "12,350",
        "131,200,000",
    ]
    assert parse_size("512x32") == (512, 32, 4, 4)
    assert parse_size("65536x16x2x4") == (65536, 16, 2, 4)
    assert parse_dqn_size("128x8x256x4") == (128, 8, 256, 4)
    with pytest.raises(ValueError, match="ENVSxUNROLL"):
        parse_size("512")
    with pytest.raises(ValueError, match="ENVSxUNROLLxBATCHxUPDATES"):
        parse_dqn_size("128x8")
    with pytest.raises(FileNotFoundError, match="no bare program"):
        find_bare("nowhere.py")


def test_a_run_is_sized_to_the_seconds_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("benchmarks.serve.time.perf_counter", lambda: clock[0])

    def run(units: int) -> None:
        clock[0] += 0.1 * units

    assert sized(run, 2.0) == 20


def test_a_worker_that_dies_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    with Worker("benchmarks.host_worker") as worker, pytest.raises(RuntimeError, match="host_worker ended"):
        worker.prepare("x", "no such kind", 0.01)
    assert "no such kind" in capfd.readouterr().err


@pytest.mark.slow
def test_the_harness_runs_without_peers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = tmp_path / "values.json"
    flags = ["--repeats", "1", "--seconds", "0.01", "--no-peers", "--sizes", "8x4", "--host-sizes", "4x8", "4x8"]
    flags += ["--pqn-sizes", "8x4", "--dqn-sizes", "8x4x16x2"]
    assert main(["host", "compiled", "compiled_values", *flags, "--json", str(written)]) == 0
    printed = capsys.readouterr().out
    for row in (
        "stepping: gym.make loop",
        "stepping: Weft's vectoriser",
        "stepping: native vector",
        "stepping: compiled",
    ):
        assert row in printed
    cases = json.loads(written.read_text())["cases"]
    assert len(cases) == 5
    assert [case["case"].partition(", ")[2] for case in cases[-2:]] == [
        "PQN 8 × 4, 4 epochs × 4 minibatches",
        "DQN 8 × 4, then 2 updates of 16",
    ]
    assert all(set(case["values"]) == {"Weft", "bare JAX"} for case in cases[-2:])
    assert all(value > 0 for case in cases for values in case["values"].values() for value in values)


@pytest.mark.slow
def test_the_compiled_benchmark_needs_nothing_of_the_host(tmp_path: Path) -> None:
    code = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {NOT_ON_AN_ACCELERATOR}:
            raise ImportError("not there: " + name)
sys.meta_path.insert(0, Refuse())
from benchmarks import __main__, compiled, compiled_values, compiled_values_worker, compiled_worker
compiled_worker.ppo(envs=8, unroll=4, epochs=4, minibatches=4, iterations=50).run(1)
compiled_values_worker.pqn(envs=8, unroll=4, epochs=4, minibatches=4).run(1)
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
