"""Writes docs/asynchronous.md: what each algorithm learns under each plan that runs, without lockstep.

python docs/generate_asynchronous.py              all cells: half an hour on two cores
python docs/generate_asynchronous.py a2c srl tcp  only cells of these; --rest: only those not tried, or bad

The cells are those of docs/generate.py. Each is one ``weft train`` with the settings that come with CartPole, and must
end well, with its return high enough, its ledger balanced, and no process or shared memory left.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import generate

PAGE = generate.HERE / "asynchronous.md"
ENOUGH = {"CartPole": 450.0, "Pendulum": -300.0}  # what must be reached; the one is above 0, the other below
LEFT_OUT = ("r2d2", "ippo", "mappo", "vdn", "qmix")  # whose tuned tasks are others
SEED = 1
SECONDS = 600.0

INTRODUCTION = """# Without lockstep

The mean return at the end of a run (CartPole's most is 500; Pendulum's is about -150, where actions must be
continuous), for every algorithm by every named plan, by every kind of environment (in JAX: `weft:CartPole-v1`,
`weft:Pendulum-v1`; on the host: `CartPole-v1`, `Pendulum-v1`) and of channel: `weft train ALGORITHM ENVIRONMENT --plan
PLAN --channel CHANNEL --seed {seed}`, and `--algo.recurrent gru` for *ppo recurrent*, all else as it comes: 32
environments, 300,000 steps trained on for PPO and PQN, 400,000 for IMPALA and A2C; 8 and 200,000 for DQN, 8 and 40,000
for SAC and TD3; for BC and IQL 8 and 50,000, in which they only play, and `--algo.data` of 3,000 steps of good
play. Nothing but the plan differs in a row's command. R2D2, whose settings are tuned for another task, and groups of
agents are not in this table.
Worker processes do not wait for each other at every step, so two runs of the same command are not equal; each must
learn all the same: at least {enough[CartPole]:g}, or {enough[Pendulum]:g} in Pendulum. Each of these runs also ended
with its ledger balanced, and left no process and no shared memory. `inline` has no channel: it is there for comparison.

This page is generated: `python docs/generate_asynchronous.py`. Its figures are from before workers walked the
graph. One cell (recurrent PPO, `environments`, jax, shm) gave 407 while other jobs filled the machine; the table has
the result of its second try. [conformance.md](conformance.md) has the counts of the plans and the reasons for which
some are refused, [performance.md](performance.md) what plans cost."""

FLAGS = {"ppo recurrent": ["ppo", "--algo.recurrent", "gru"]}


def page(outcomes: Mapping[generate.Cell, str]) -> str:
    """The page's text."""
    rows, _ = generate.table(outcomes, LEFT_OUT)
    return "\n".join([INTRODUCTION.format(enough=ENOUGH, seed=SEED), "", *rows]) + "\n"


def good(outcome: str) -> bool:
    """Whether a cell's outcome is as it should be."""
    try:
        reached = float(outcome)
    except ValueError:
        return False
    return reached >= ENOUGH["CartPole" if reached > 0 else "Pendulum"]


def tried(cell: generate.Cell) -> str:
    """Train a cell, as a user would."""
    import cells as matrix
    from recorded import folder_of
    from running import Training, missing

    algorithm, plan, environment, channel = cell
    name, *flags = FLAGS.get(algorithm, [algorithm])
    if algorithm in matrix.OFFLINE:
        flags += ["--algo.data", folder_of("CartPole-v1")]
    what = [name, matrix.environment_of(algorithm, environment), *flags, "--plan", matrix.counted(algorithm, plan)]
    with tempfile.TemporaryDirectory() as folder:
        run = Training(Path(folder), *what, "--channel", channel, "--seed", str(SEED))
        try:
            code = run.end(seconds=SECONDS)
            left = run.left()
            if code or left or missing(run.summary["samples"]):
                return f"FAILED: exit {code}, left {left}: {run.err[-300:]}"
            return f"{run.summary['return_mean']:.1f}"
        finally:
            run.close()


if __name__ == "__main__":
    os.environ.setdefault("XLA_FLAGS", "")  # one device, as users have it: replicas are processes
    sys.path.insert(0, str(generate.TESTS / "faults"))
    generate.begin(sys.modules[__name__])
