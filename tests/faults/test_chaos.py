"""``weft chaos``: the schedule, and a short storm for real."""

from __future__ import annotations

import json

import pytest

from weft.chaos.inject import Injected
from weft.chaos.schedule import ALL, kinds_of, schedule
from weft.chaos.verdict import Measured, Verdict
from weft.cli.main import main
from weft.core.errors import UnknownName

RUN = ["ppo", "CartPole-v1", "--envs", "8", "--algo.unroll", "32", "--algo.hidden", "16"]


def samples(**changed):
    return {"produced": 1000, "trained": 700, "dropped": {"stale": 200}, "in_flight": 100, **changed}


def measured(**changed):
    return Measured(**{"rate": 100.0, "samples": samples(), "restarts": 2, "exit": 130, "leaks": [], **changed})


def test_a_schedule_follows_from_its_seed():
    first, again, other = (schedule(("kill", "stop"), 15.0, 600.0, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert {fault.kind for fault in first} == {"kill", "stop"}
    assert 30 <= len(first) <= 45
    assert all(0 < fault.at <= 585 for fault in first)
    assert schedule(("raise",), 15.0, 600.0, 1) == [], "those raise all the time"


def test_a_short_time_has_one_fault_at_least():
    assert len(schedule(("kill",), 6.0, 10.0, 0)) == 1


def test_kinds_are_named():
    assert kinds_of("all") == ALL
    assert kinds_of("kill, stop") == ("kill", "stop")
    with pytest.raises(UnknownName, match="Did you mean 'kill'"):
        kinds_of("kil")


def test_a_verdict_names_every_problem():
    faults = [Injected(3.0, "kill", "env-1", 0.5), Injected(9.0, "kill", "env-0", None)]
    fine = Verdict(faults, measured(rate=200.0), measured())
    assert fine.problems == []
    assert "50%" in fine.table()
    assert "kill   env                        2  0.5 (0.5), 1 not before the next" in fine.table()
    bad = Verdict(faults, measured(), measured(samples=samples(trained=0), exit=None, leaks=["process env-0 (7)"]))
    assert bad.problems == [
        "700 samples are unaccounted for",
        "the run ended with None instead of 130 (interrupted)",
        "nothing was trained on",
        "left behind: process env-0 (7)",
    ]
    assert not bad.to_json()["survived"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "needs an algorithm and an environment first, got nothing"),
        (["--plan", "env | act | learn"], "needs an algorithm and an environment first"),
        ([*RUN, "--every", "0"], "every must be above 0"),
        ([*RUN, "--faults", "flood"], "unknown fault 'flood'"),
    ],
)
def test_what_cannot_be_is_said_before_anything_starts(arguments, says, capsys):
    assert main(["chaos", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_a_run_that_does_not_begin_is_shown_with_its_own_words(capsys):
    assert main(["chaos", "ppo", "CartPol-v1"]) == 1
    assert "Did you mean 'CartPole-v1'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("plan", "faults", "seconds", "every"),
    [
        pytest.param("(env+act)*2 | learn", "kill", "5", "2", marks=pytest.mark.slow),
        pytest.param("env*2 | act | learn", "kill,slow,disk", "40", "8", marks=pytest.mark.slow),
        pytest.param("(env+act)*2 | learn", "stop", "40", "15", marks=pytest.mark.slow),
        pytest.param("inline", "kill", "20", "6", marks=pytest.mark.slow),
        pytest.param("(env+act)*2 | learn", "raise", "15", "6", marks=pytest.mark.slow),
    ],
)
def test_a_run_survives_a_storm(plan, faults, seconds, every, capsys):
    more = ["--hang-seconds", "5"] if "stop" in faults else []
    code = main(
        ["chaos", *RUN, "--plan", plan, "--faults", faults, "--seconds", seconds, "--every", every, "--json", *more]
    )
    out, err = capsys.readouterr()
    verdict = json.loads(out)
    assert code == 0, (verdict, err)
    assert verdict["survived"]
    assert verdict["throughput_share"] > 0
    assert (verdict["raised"] > 0) == (faults == "raise")
    if faults != "raise":
        assert verdict["faults"]
