"""``live.json``: how a run stands, for others to look at."""

from __future__ import annotations

import json
import math
import os

from weft.telemetry.live import Live
from weft.telemetry.plain import Quiet
from weft.telemetry.telemetry import Telemetry


def read(path):
    return json.loads(path.read_text())


def test_it_has_the_newest_record_the_facts_and_what_was_said(tmp_path):
    path, workers = tmp_path / "live.json", [{"name": "env-0", "state": "ready"}]
    clock = iter(range(100)).__next__
    live = Live(path, lambda: True, lambda: {"workers": workers}, clock=clock)
    with Telemetry([live], Quiet()) as telemetry:
        telemetry.write({"return_mean": 3.0, "loss/total": math.nan}, 100)
        telemetry.warn("worker env-0 was killed")
        found = read(path)
        assert found["training"] is True
        assert found["env_steps"] == 100
        assert found["record"] == {"return_mean": 3.0}
        assert found["workers"] == workers
        assert found["pid"] == os.getpid()
        assert [(note["kind"], note["text"]) for note in found["notes"]] == [("warning", "worker env-0 was killed")]
        workers[0]["state"] = "gone"
        live.refresh()
        assert read(path)["workers"] == [{"name": "env-0", "state": "gone"}]
    assert read(path)["training"] is False
    assert read(path)["record"] == {"return_mean": 3.0}
    assert [p.name for p in tmp_path.iterdir()] == ["live.json"]


def test_an_evaluation_stays_until_the_next(tmp_path):
    live = Live(tmp_path / "live.json", lambda: True)
    live.write({"return_mean": 1.0, "eval/return_mean": 5.0}, 1)
    live.write({"return_mean": 2.0}, 2)
    assert read(tmp_path / "live.json")["record"] == {"return_mean": 2.0, "eval/return_mean": 5.0}
    live.write({"return_mean": 3.0, "eval/return_mean": 6.0}, 3)
    assert read(tmp_path / "live.json")["record"]["eval/return_mean"] == 6.0


def test_a_folder_that_is_no_longer_the_runs_is_left_alone(tmp_path):
    held = [True]
    live = Live(tmp_path / "live.json", lambda: held[0])
    live.write({}, 1)
    held[0] = False
    live.write({}, 2)
    live.close()
    assert read(tmp_path / "live.json")["env_steps"] == 1
    assert read(tmp_path / "live.json")["training"] is True


def test_trouble_with_it_is_no_trouble(tmp_path):
    live = Live(tmp_path / "nowhere" / "live.json", lambda: True)
    said = []

    class Heard(Quiet):
        def warn(self, text):
            said.append(text)

    with Telemetry([live], Heard()) as telemetry:
        telemetry.write({}, 1)
    assert said == []
