"""The learning report: its statistics by hand, and one small row for real."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import asdict

import numpy as np
import pytest

from benchmarks import learning
from benchmarks.curves import curve, interquartile_mean, interval, picture
from benchmarks.learning_rows import Row
from benchmarks.learning_runs import ON_CPU, Found, Task, load, tasks, train
from benchmarks.weft_command import NotRun


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 3, 100], 2.5),
        ([5.0], 5.0),
        ([0, 1, 2, 3, 50], (0.75 * 1 + 2 + 0.75 * 3) / 2.5),
        ([9, 0, 1, 2, 3, 4, 5, 90], 3.5),
    ],
)
def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end(values, expected):
    assert float(interquartile_mean(np.array(values, float))) == pytest.approx(expected)


def test_an_interval_holds_the_mean_and_is_a_point_where_all_seeds_agree():
    low, high = interval(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert 1.0 <= low < 3.0 < high <= 5.0
    assert interval(np.full(5, 7.0)) == (7.0, 7.0)


def test_curves_of_seeds_are_looked_at_where_all_have_something_and_drawn():
    found = curve([[(10.0, 0.0), (110.0, 100.0)], [(0.0, 0.0), (100.0, 100.0)], [(10.0, 10.0), (120.0, 120.0)]])
    assert (found.steps[0], found.steps[-1]) == (10.0, 100.0)
    assert found.middle[0] == pytest.approx(interquartile_mean(np.array([0.0, 10.0, 10.0])))
    drawn = ET.fromstring(picture("a & b", {"ppo": found, "dqn": found}))
    names = [e.text for e in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "a & b" in names
    assert "dqn" in names
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}polyline"))) == 2


@pytest.mark.slow
def test_rows_are_trained_side_by_side_told_drawn_and_gone_on_with(tmp_path, capsys):
    flags = ["--only", "^p(po|qn) weft:CartPole", "--out", str(tmp_path), "--device", "cpu"]
    assert learning.main([*flags, "--seeds", "2", "--steps", "10000", "--jobs", "2"]) == 0
    assert "| pqn " in capsys.readouterr().out
    rows = json.loads((tmp_path / "learning.json").read_text())["rows"]
    assert [(row["row"], row["seeds"]) for row in rows] == [
        ("ppo weft:CartPole-v1", [0, 1]),
        ("pqn weft:CartPole-v1", [0, 1]),
    ]
    assert all(row["steps"] >= 10_000 and len(row["returns"]) == 2 for row in rows)
    assert rows[0]["settings"]["envs"] == 32
    assert (tmp_path / "learning-weft-CartPole-v1.svg").read_text().startswith("<svg")
    lines = (tmp_path / "results.jsonl").read_text()
    assert learning.main([*flags, "--seeds", "2", "--steps", "10000"]) == 0  # nothing is left to do
    assert (tmp_path / "results.jsonl").read_text() == lines
    capsys.readouterr()
    merged = tmp_path / "merged"
    assert learning.main([*flags[:2], "--out", str(merged), "--merge", str(tmp_path), "--report"]) == 0
    assert "| pqn " in capsys.readouterr().out


def _found(seed, steps, asked=100):
    return Found("ppo weft:CartPole-v1", seed, steps, asked, float(steps), [(0.0, 0.0), (steps, 1.0)], 1.0, {})


def test_of_several_files_the_longest_run_of_a_seed_counts_and_what_is_cut_short_is_left_to_do(tmp_path):
    for name, several in {"a": [_found(0, 40), _found(1, 100)], "b": [_found(0, 60)]}.items():
        (tmp_path / name).write_text("".join(json.dumps(asdict(each)) + "\n" for each in several))
    known = load([tmp_path / "b", tmp_path / "a"])
    assert [(each.seed, each.steps) for each in known] == [(0, 60), (1, 100)]
    host, together = Row("dqn", "CartPole-v1"), Row("ppo", "weft:CartPole-v1")
    assert [task.seeds for task in tasks([host, together], range(3), 0, known)] == [(0, 2), (0,), (1,), (2,)]
    (one,) = tasks([host], range(3), 0, known, together=True)
    assert (one.seeds, one.run) == ((0, 1, 2), "dqn-CartPole-v1-s0x3")
    assert one.command[-2:] == ["--seeds", "3"]
    (learned,) = learning.collected([host, together], known)
    assert learned.steps == "60 of 100"
    assert "60 of 100" in learning.table([learned])


@pytest.mark.slow
def test_a_run_that_its_time_does_not_suffice_for_is_kept_as_far_as_it_came(tmp_path):
    task = Task(Row("ppo", "CartPole-v1"), (0,), 10**9)
    ((_, came),) = train([task], tmp_path, 1, 12.0, ON_CPU)
    (found,) = came
    assert 0 < found.steps < found.asked == 10**9
    assert load([tmp_path]) == [found]
    assert tasks([task.row], [0], 10**9, [found]) == [task]


def test_a_run_that_fails_is_told_of_in_its_own_words(tmp_path):
    ((_, came),) = train([Task(Row("dqn", "Pendulum-v1"), (0,), 1000)], tmp_path, 1, 60.0, ON_CPU)
    assert isinstance(came, NotRun)
    assert "Discrete" in str(came)
