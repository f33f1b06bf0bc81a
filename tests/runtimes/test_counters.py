"""What a run counts: each thing where it happens, saved and brought back."""

import json
import math

import numpy as np
import pytest

from weft.runtimes.loop import counters as module
from weft.runtimes.loop.counters import Counters
from weft.runtimes.loop.engine import Report
from weft.telemetry.ledger import Ledger


class Clock:
    """A perf_counter that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def report(learn_steps=1, env_steps=80, **changes):
    """A report in which everything that was made was trained on."""
    made = {"produced": env_steps, "trained": env_steps}
    metrics = {"loss": np.arange(learn_steps, dtype=np.float32), "entropy": np.full((learn_steps, 2), 0.5)}
    whole = Report(learn_steps, env_steps, metrics, [[(1, 10.0, 5)]], True, True, False, {"act": 1.0, "learn": 3.0})
    return whole._replace(**{**made, **changes})


def test_steps_are_added_up():
    counters = Counters()
    counters.take(report(2, 160))
    counters.take(report(1, 80))
    assert (counters.learn_steps, counters.env_steps) == (3, 240)
    assert counters.ledger == Ledger(produced=240, trained=240)
    record = counters.record()
    assert record["env_steps"] == 240
    assert record["episodes"] == 2
    assert record["return_mean"] == 10.0
    assert record["episode_length_mean"] == 5.0
    assert (record["time/act"], record["time/learn"]) == (0.25, 0.75)


def test_the_newest_metrics_are_shown_as_means_over_seeds():
    counters = Counters()
    counters.take(report(3))
    assert counters.latest == {"loss": 2.0, "entropy": 0.5}
    record = counters.record()
    assert record["loss/total"] == 2.0
    assert record["loss/entropy"] == 0.5


def test_what_was_made_and_not_trained_on_was_filtered():
    counters = Counters()
    counters.take(report(1, 80, produced=80, trained=48))
    counters.take(report(1, 80, produced=80, trained=80))
    assert counters.ledger.to_json() == {
        "produced": 160,
        "trained": 128,
        "dropped": {"filtered": 32},
        "in_flight": 0,
    }


def test_what_a_map_made_more_of_was_produced_too():
    counters = Counters()
    counters.take(report(2, 80, produced=80, trained=160))
    assert counters.env_steps == 80
    assert counters.ledger == Ledger(produced=160, trained=160)


def test_workers_count_from_the_beginning():
    counters = Counters()
    for steps in (100, 250):
        samples = Ledger(produced=steps, trained=steps - 20, in_flight=20)
        counters.take(report(1, steps, samples=samples, restarts=1, figures={"lag/mean": 0.5}))
    assert counters.env_steps == 250
    assert counters.ledger.in_flight == 20
    assert counters.restarts == 2
    assert counters.record()["lag/mean"] == 0.5


def test_streams_stay_as_they_were_told_last():
    counters = Counters()
    counters.take(report(streams={"unroll": {"messages_per_second": 2.0}}))
    counters.take(report())
    assert counters.streams == {"unroll": {"messages_per_second": 2.0}}


def test_each_series_has_its_own_episodes():
    counters = Counters(("red", "blue"))
    counters.take(report(episodes=[[(1, 10.0, 5)], [(2, 40.0, 8)]]))
    record = counters.record()
    assert (record["return_mean/red"], record["return_mean/blue"]) == (10.0, 20.0)
    assert record["return_mean"] == 15.0
    assert record["episodes"] == 3
    with pytest.raises(ValueError, match="shorter"):
        counters.take(report(episodes=[[]]))


def test_before_the_first_episode_there_is_no_return():
    counters = Counters()
    counters.take(report(episodes=[[]]))
    assert math.isnan(counters.record()["return_mean"])


def test_compilation_does_not_count_as_speed(clock):
    counters = Counters()
    assert counters.seconds_per_learn == counters.recent_rate == 0.0
    clock.now += 50  # compilation
    counters.take(report(1, 80))
    assert counters.compile_seconds == 50
    assert counters.env_steps_per_second == pytest.approx(80 / 50), "there is nothing better yet"
    assert counters.seconds_per_learn == 0.0
    for _ in range(3):
        clock.now += 2
        counters.take(report(4, 320))
    assert counters.env_steps_per_second == pytest.approx(160)
    assert counters.recent_rate == pytest.approx(160)
    assert counters.seconds_per_learn == pytest.approx(0.5)
    assert counters.wall_seconds == 56


def test_the_recent_rate_forgets(clock):
    counters = Counters()
    clock.now += 1
    counters.take(report())
    for seconds in [10] * 20 + [1] * 15:
        clock.now += seconds
        counters.take(report(1, 80))
    assert counters.recent_rate == pytest.approx(80)
    assert counters.env_steps_per_second < 20


def test_warm_up_is_counted_in_learn_steps_of_this_process(clock):
    counters = Counters(learn_steps=10, env_steps=800, warm_up=3)
    clock.now += 1
    counters.take(report(2))
    assert counters.compile_seconds == 0.0
    clock.now += 1
    counters.take(report(1))
    assert counters.compile_seconds == 2.0


def test_a_document_brings_everything_back(clock):
    counters = Counters(("0", "1"))
    clock.now += 5
    counters.take(report(2, 160, episodes=[[(1, 10.0, 5)], [(3, 9.0, 6)]], produced=160, trained=80, restarts=2))
    document = json.loads(json.dumps(counters.to_document()))
    clock.now += 1000  # between two processes
    again = Counters.from_document(document, ("0", "1"), warm_up=4)
    assert again.to_document() == document
    assert again.wall_seconds == 5
    assert (again.warm_up, again.restarts, again.env_steps, again.learn_steps) == (4, 2, 160, 2)
    assert again.ledger == counters.ledger
    assert [w.return_mean for w in again.windows] == [10.0, 3.0]
    clock.now += 1
    again.take(report(4, 320, episodes=[[], []]))
    assert (again.env_steps, again.learn_steps) == (480, 6)
    assert again.compile_seconds == 1


@pytest.mark.parametrize("saved", [False, True])
def test_going_back_undoes_steps_and_keeps_time(clock, saved):
    counters = Counters()
    clock.now += 5
    counters.take(report(1, 80))
    document = counters.to_document()
    clock.now += 5
    counters.take(report(4, 320))
    counters.go_back(document if saved else None)
    assert (counters.learn_steps, counters.env_steps) == ((1, 80) if saved else (0, 0))
    assert counters.windows[0].total == (1 if saved else 0)
    assert counters.wall_seconds == 10
    assert counters.seconds_per_learn == 0.0, "programs may be compiled anew"
    clock.now += 7
    counters.take(report(1, 80))
    assert counters.env_steps == (160 if saved else 80)
