"""Groups of agents in workers under kill -9: the ledger balances, and no carry is ever another's."""

from __future__ import annotations

import json
import signal

import pytest
from roster import Remembers, Roster
from running import missing

import weft

SECONDS_TO_REPLACE = 20.0
SMALL = ["--envs", "8", "--seed", "1", "--steps", "100000000", "--checkpoint-seconds", "0.5"]


@pytest.mark.parametrize(
    ("algorithm", "environment", "plan", "kills", "more"),
    [
        ("roster:Remembers", "roster:Roster", "env*2 | act | learn", ["env-0", "act-0", "learn-0"], []),
        pytest.param(
            "roster:Remembers",
            "roster:Roster",
            "(env+act)*2 | learn",
            ["env+act-1", "learn-0"],
            [],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "ppo",
            "weft:Spread-v0",
            "env*2 | act | learn",
            ["env-1", "act-0", "learn-0"],
            ["--algo.hidden", "16", "--algo.recurrent", "gru", "--algo.unroll", "8", "--algo.minibatches", "1"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_who_is_killed_is_replaced_and_nothing_is_mixed(training, algorithm, environment, plan, kills, more):
    run = training(algorithm, environment, "--plan", plan, *SMALL, *more)
    run.wait_for_learning(2)
    run.wait_for_checkpoint()
    for name in kills:
        pid = run.kill(name)
        run.wait_for_another(name, pid, SECONDS_TO_REPLACE)
        run.wait_for_learning(3)
    assert run.end(signal.SIGINT) == 130
    assert run.left() == []
    assert run.summary["restarts"] == len(kills)
    assert missing(run.summary["samples"]) == 0
    if algorithm == "roster:Remembers":
        _nothing_mixed(run.records())


@pytest.mark.parametrize("how", [{}, {"plan": "env*2 | act | learn", "lockstep": True}])
def test_no_carry_is_anothers(how, tmp_path):
    """Agents, lives and episodes in one process and in workers; and the check can fail."""
    run = weft.train(Remembers(), Roster(), envs=8, steps=2_560, run="r", root=tmp_path, quiet=True, **how)
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    _nothing_mixed(lines)


def test_a_mixed_carry_would_be_seen(tmp_path, monkeypatch):
    """Agents that are handed each other's carries: the metric says so."""
    from weft.graph import by_agent

    together = by_agent.ByAgent._together

    def turned(self, acted, present):
        import jax.numpy as jnp

        return together(self, acted._replace(carry=jnp.roll(acted.carry, 1, 0)), present)

    monkeypatch.setattr(by_agent.ByAgent, "_together", turned)
    run = weft.train(Remembers(), Roster(), envs=8, steps=1_280, run="r", root=tmp_path, quiet=True)
    with pytest.raises(AssertionError, match="mixed"):
        _nothing_mixed([json.loads(x) for x in (run.folder / "metrics.jsonl").read_text().splitlines()])


def _nothing_mixed(records):
    told = [record for record in records if "loss/mixed" in record]
    assert told
    assert sum(record["loss/known"] for record in told) > 0, "some carry was remembered at all"
    assert all(record["loss/mixed"] == 0 for record in told), "a carry was mixed"
