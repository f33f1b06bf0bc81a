"""The ledger against an account of its own: each sample has an id, what made it counts, what eats it writes it down."""

from __future__ import annotations

import random
import signal

import numpy as np
import pytest
from numbered import eaten, made
from running import missing

ENVS, UNROLL = 8, 16
COMMAND = ["numbered:Checked", "numbered:Numbered", "--envs", str(ENVS), "--seed", "1", "--checkpoint-seconds", "0.5"]
COMMAND += ["--algo.unroll", str(UNROLL), "--algo.epochs", "1", "--algo.minibatches", "1", "--algo.hidden", "16"]


@pytest.mark.parametrize(
    ("plan", "hit", "kills"),
    [
        ("(env+act)*2 | checker+learn", "env+act", 2),
        pytest.param("env*2 | act | checker+learn", "act", 6, marks=pytest.mark.slow),
        pytest.param("env*2 | act | checker+learn", "env", 6, marks=pytest.mark.slow),
        pytest.param("(env+act)*2 | checker+learn", "", 8, marks=pytest.mark.slow),
    ],
)
def test_no_sample_is_trained_on_twice_and_each_is_accounted_for(plan, hit, kills, training, tmp_path):
    run = training(*COMMAND, "--plan", plan, "--steps", "100000000")
    run.wait_for_learning(2)
    run.wait_for_checkpoint()
    choose = random.Random(f"{plan} {hit}")
    for _ in range(kills):
        name = choose.choice(sorted(name for name in run.workers() if name.startswith(hit)))
        pid = run.kill(name)
        run.wait_for_another(name, pid)
        run.wait_for_learning(2)
    assert run.end(signal.SIGINT) == 130
    samples, ids = run.summary["samples"], eaten(tmp_path)
    assert missing(samples) == 0
    everything = np.concatenate(list(ids.values()))
    for name, found in ids.items():
        assert len(np.unique(found, axis=0)) == len(found), f"{name} was given a sample twice"
    unique = len(np.unique(everything, axis=0))
    if hit:  # the learner was never killed
        assert len(ids) == 1
        assert unique == len(everything)
    else:  # what a killed learner was at is given to the next one: what it had learned from it is gone
        assert len(everything) - unique <= 2 * ENVS * UNROLL * kills
    # Between the checker and learn there are messages on their way, and some are too old when they arrive; and until
    # the run has ended the checker takes a few more, after the ledger was closed.
    on_their_way = samples["in_flight"] + sum(samples["dropped"].values()) + 2 * ENVS * UNROLL
    assert 0 <= unique - samples["trained"] <= on_their_way
    # A kill may come between a step and its being counted; the probe makes one step, in the launcher and in workers.
    # Environments do not stand still either until the run has ended: they go on while a lane has one of its two slots.
    uncounted, missed = made(tmp_path) - samples["produced"], (kills + 1) * (ENVS + 2)
    assert -missed <= uncounted <= missed + 2 * ENVS * UNROLL
