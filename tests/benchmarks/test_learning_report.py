"""The learning report: its statistics by hand, and one small row for real."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from benchmarks import learning
from benchmarks.curves import curve, interquartile_mean, interval, picture


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


def test_a_row_is_trained_told_and_drawn(tmp_path, monkeypatch, capsys):
    real = learning.run
    monkeypatch.setattr(learning, "run", lambda e, flags, *a, **k: real(e, [*flags, "--steps", "20000"], *a, **k))
    assert learning.main(["--only", "^ppo weft:CartPole", "--seeds", "2", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "| ppo " in told
    (row,) = json.loads((tmp_path / "learning.json").read_text())["rows"]
    assert row["steps"] >= 20_000
    assert len(row["returns"]) == 2
    assert (tmp_path / "learning-weft-CartPole-v1.svg").read_text().startswith("<svg")
