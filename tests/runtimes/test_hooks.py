"""``on_record`` and ``stop_when``: called with each record, and able to end a run that is then saved."""

from __future__ import annotations

import json
import math

import pytest
from toys import SMALL, Counter

import weft

HOW = {"envs": 4, "tensorboard": False, "quiet": True}


def test_every_record_is_told(tmp_path):
    told = []
    run = weft.train(weft.PPO(**SMALL), Counter(), steps=160, root=tmp_path, run="r", on_record=told.append, **HOW)
    kept = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert [record["env_steps"] for record in told] == [record["env_steps"] for record in kept]
    assert told[-1]["env_steps"] == 160
    assert run.summary["exit"] == "finished"


def test_a_run_is_stopped_saved_and_goes_on(tmp_path):
    def half(record):
        return record["env_steps"] >= 800

    how = {**HOW, "root": tmp_path, "run": "r"}
    run = weft.train(weft.PPO(**SMALL), Counter(), steps=16_000, stop_when=half, **how)
    assert (run.summary["exit"], run.summary["stopped"]) == ("stopped", "as stop_when said")
    assert 800 <= run.summary["env_steps"] < 16_000
    assert run.summary["saved_learn_steps"] == run.summary["learn_steps"]
    assert weft.train(weft.PPO(**SMALL), Counter(), steps=16_000, **how).summary["env_steps"] == 16_000


def test_a_return_that_is_reached(tmp_path):
    run = weft.train(weft.PPO(**SMALL), Counter(), steps=160_000, stop_at=36.0, root=tmp_path, **HOW)
    assert run.summary["stopped"] == "return_mean reached 36"
    assert run.summary["episodes"] >= 100
    assert run.summary["env_steps"] < 160_000


def test_in_workers_too(tmp_path):
    plan = {"plan": "env+act | learn", "root": tmp_path, **HOW}
    run = weft.train(weft.PPO(**SMALL), "weft:CartPole-v1", steps=10_000_000, stop_when=lambda r: True, **plan)
    assert run.summary["exit"] == "stopped"


def test_what_a_hook_raises_ends_the_run(tmp_path):
    def fails(record):
        raise OSError("no such place")

    with pytest.raises(RuntimeError, match="on_record or stop_when raised OSError: no such place"):
        weft.train(weft.PPO(**SMALL), Counter(), steps=160, root=tmp_path, on_record=fails, **HOW)


def test_reached():
    stop = weft.reached(10.0)
    assert not stop({"return_mean": 11.0, "episodes": 99})
    assert stop({"return_mean": 10.0, "episodes": 100}) == "return_mean reached 10"
    assert not stop({"return_mean": math.nan, "episodes": 100})
    assert not stop({"episodes": 100})
    assert weft.reached(10.0, "eval/return_mean")({"eval/return_mean": 12.0, "episodes": 1})


def test_no_progress():
    stop = weft.no_progress(100)
    for env_steps, figure, stops in [(0, math.nan, False), (200, 1.0, False), (250, 1.0, False), (290, 2.0, False)]:
        assert bool(stop({"env_steps": env_steps, "return_mean": figure})) is stops
    assert not stop({"env_steps": 389, "return_mean": 1.5})
    assert stop({"env_steps": 390, "return_mean": 2.0}) == "no progress of return_mean for 100 env steps"


def test_hyper_parameters_in_tensorboard(tmp_path):
    how = {**HOW, "tensorboard": True}
    run = weft.train(weft.PPO(**SMALL), Counter(), steps=160, root=tmp_path, run="r", **how)
    (file,) = (run.folder / "tensorboard").iterdir()
    raw = file.read_bytes()
    assert b"_hparams_/session_start_info" in raw
    assert b"algo.learning_rate" in raw
