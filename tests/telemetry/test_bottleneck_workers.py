"""Naming the bottleneck of a plan in workers, from records made by hand."""

from __future__ import annotations

import math

import pytest

from weft.telemetry.bottleneck import WORKER_HINTS, bottleneck, busy
from weft.telemetry.sink import Record

LAG: Record = {"lag": 0.5, "lag_max": 1.0, "lag/0": 0.5, "lag/1": 0.5}


def record(load: float = 0.5, **parts: float) -> Record:
    return {**LAG, **{f"busy/{stage.replace('_', '+')}": part for stage, part in parts.items()}, "load": load}


@pytest.mark.parametrize("stage", sorted(WORKER_HINTS))
def test_the_busiest_stage_is_named_with_what_to_change(stage: str) -> None:
    others = {f"busy/{name}": 0.3 for name in WORKER_HINTS if name != stage}
    assert bottleneck({**LAG, **others, f"busy/{stage}": 0.9}) == f"{stage}-bound: {WORKER_HINTS[stage]}"


def test_hints_are_of_plans_with_workers() -> None:
    assert "env*N" in bottleneck(record(env=0.99, act=0.3, learn=0.2))
    assert "act*2" in bottleneck(record(env=0.3, act=0.99, learn=0.2))
    assert "learn*2" in bottleneck(record(env=0.3, act=0.2, learn=0.99))
    assert "(env+act)*N" in bottleneck(record(env_act=0.9, learn=0.2))


def test_what_a_stage_takes_of_the_sum_does_not_matter_where_it_waits_most_of_its_own_time() -> None:
    """One learner that works for half a second beside eight env workers that never rest."""
    said = bottleneck({**record(env=0.98, learn=0.5), "time/learn": 0.9, "time/env": 0.1})
    assert said.startswith("env-bound: ")


def test_nearly_even_stages_are_balanced() -> None:
    assert bottleneck(record(env=0.9, learn=0.85)) == "balanced: env and learn are busy 90% and 85% of their time"


def test_where_nobody_is_busy_all_are_waiting() -> None:
    said = bottleneck(record(env=0.4, act=0.3, learn=0.55))
    assert said.startswith("waiting: ")
    assert "learn 55%, env 40%, act 30%" in said
    assert "--ring" in said
    assert "--max-lag" in said


def test_in_lockstep_waiting_is_what_was_asked_for() -> None:
    said = bottleneck({"busy/env": 0.4, "busy/learn": 0.5, "load": 0.4})
    assert said.startswith("waiting: in lockstep")
    assert "without --lockstep" in said


def test_more_busy_threads_than_cores_say_so_whoever_is_busiest() -> None:
    said = bottleneck(record(load=1.4, env=0.9, act=0.95, learn=0.99))
    assert said == "cores-bound: 1.4 busy threads for each core: fewer workers, or a machine with more cores"
    assert bottleneck(record(load=0.99, env=0.9, learn=0.5)).startswith("env-bound: ")


@pytest.mark.parametrize("load", [math.nan, "x"])
def test_a_load_that_is_no_number_is_not_looked_at(load: float | str) -> None:
    assert bottleneck({**LAG, "busy/env": 0.9, "load": load}).startswith("env-bound: ")


def test_unknown_stages_are_still_named_and_what_is_no_number_is_left_out() -> None:
    assert bottleneck({**LAG, "busy/reanalyse": 0.8}) == "reanalyse-bound: it is busy 80% of its time"
    assert busy({"busy/env": math.nan, "busy/act": 0.2, "busy/learn": 0.7}) == {"learn": 0.7, "act": 0.2}
