"""The golden record and the comparison of rates: what counts as a difference, and one tiny run. Asserts no speed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import against, checkouts, golden
from benchmarks.golden_runs import ENVS, RUNS, UNROLL, GoldenRun
from benchmarks.measure import Case, Comparison, interleave
from benchmarks.worker import ROOT

SUMMARY = {
    "exit": "finished",
    "env_steps": 640,
    "learn_steps": 20,
    "samples": {"produced": 640, "trained": 640, "dropped": {}, "in_flight": 0},
    "episodes": 23,
    "return_mean": 22.5,
    "params_sha256": "3e85",
    "wall_seconds": 1.0,
}


@pytest.mark.slow
def test_a_tiny_run_is_the_same_as_itself_and_its_two_seeds_differ(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[list[golden.Summary]] = []
    train = golden.trained
    monkeypatch.setattr(golden, "RUNS", (GoldenRun("a2c", "jax", seeds=2, stops=(2 * ENVS * UNROLL,)),))
    monkeypatch.setattr(golden, "trained", lambda *asked: made.append(train(*asked)) or made[-1])
    assert golden.main(["--old", str(ROOT), "--only", "a2c"]) == 0
    assert "1 of 1 runs are the same" in capsys.readouterr().out
    summary = made[0][0]
    verdict = golden.compared("title", *([summary | one] for one in summary["seeds"]))
    assert verdict.outcome == "different"
    assert any(reason.startswith("params_sha256 ") for reason in verdict.reasons)


@pytest.mark.parametrize(
    ("name", "value"), [("params_sha256", "6f7d"), ("episodes", 24), ("samples", {"produced": 704}), ("seeds", [])]
)
def test_every_compared_field_is_told_where_it_differs(name: str, value: object) -> None:
    verdict = golden.compared("a run", [SUMMARY], [SUMMARY | {name: value}])
    assert (verdict.outcome, len(verdict.reasons)) == ("different", 1)
    assert verdict.reasons[0].startswith(f"{name} ")
    assert "different" in golden.table([verdict])


def test_how_long_a_run_took_and_where_it_is_kept_do_not_count() -> None:
    verdict = golden.compared("a run", [SUMMARY], [SUMMARY | {"wall_seconds": 9.0, "run": "elsewhere"}])
    assert verdict == golden.Verdict("a run", "same")


def test_a_resumed_run_says_which_training_differs() -> None:
    verdict = golden.compared("a run", [SUMMARY, SUMMARY], [SUMMARY, SUMMARY | {"episodes": 1}])
    assert verdict.reasons == ("training 2: episodes 23 → 1",)


def test_a_run_that_fails_alike_on_both_sides_is_not_the_same() -> None:
    refused = {"exit": "refused: no such plan"}
    verdict = golden.compared("a run", [SUMMARY, refused], [SUMMARY, refused])
    assert verdict.outcome == "failed"
    assert verdict.reasons == ("old: refused: no such plan", "new: refused: no such plan")


def test_titles_are_unique_and_only_chooses_by_their_words() -> None:
    assert len({run.title for run in RUNS}) == len(RUNS)
    assert {run.channel for run in golden.chosen("gru tcp")} == {"tcp"}
    assert golden.chosen("nothing") == []


def test_a_folder_without_weft_and_an_unknown_commit_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for flags in (["--old", str(tmp_path)], ["--old-commit", "no-such-commit"]):
        with pytest.raises(SystemExit):
            golden.main(flags)
    said = capsys.readouterr().err
    assert "is no checkout of Weft" in said
    assert "'no-such-commit' cannot be checked out" in said


def test_a_checkout_whose_weft_comes_from_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "weft").mkdir()  # without an __init__.py: a regular package further down the path comes first
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with pytest.raises(checkouts.NoCheckout, match="comes from elsewhere"):
        checkouts.require_own_weft(tmp_path)


def test_the_rates_of_two_checkouts_are_one_table() -> None:
    values = {"old": iter([100.0, 100.0, 100.0]), "new": iter([90.0, 97.0, 99.0])}
    case = Case(
        "a case", "u", {side: lambda side=side: next(values[side]) for side in values}, [Comparison("new", ("old",))]
    )
    left_out = Case("refused", "u", {"old": lambda: 1.0}, left_out={"new": "refused"})
    printed = against.summary(interleave([case, left_out], 3)).splitlines()
    assert [cell.strip() for cell in printed[2].split("|")[1:-1]] == [
        "a case", "100.0", "97.00", "0.970", "0.900 – 0.990", "missed",
    ]  # fmt: skip
    assert "refused" in printed[3]
    with pytest.raises(SystemExit):
        against.main(["no such case", "--old", sys.prefix])
