"""``weft train`` as a user runs it, in a process of its own, measured by the records that it writes.

The figure is trained samples over wall time; start-up and compilation are outside it, metrics and checkpoints inside.
It is not the summary's ``env_steps_per_second``, which begins at the first report: where environments run beside the
learner, they go on while it compiles, and what they have made by then is trained on at once. In a short run that shows
as more than stepping alone can reach. So the first second after the first report is left out, as it is for peers.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.worker import ROOT, variables

REFUSED = 2  # Weft's exit code for what cannot be
START_SECONDS = 240.0  # more than any start takes
SETTLE_SECONDS = 1.0
LEARN_CALLS = 12  # in a run, at least


class NotRun(Exception):
    """Weft refused the command (a plan or a flag that this version does not have), or failed."""

    def __init__(self, how: str, why: str) -> None:
        super().__init__(f"{how}: {why}")
        self.how = how  # one word, for a table


@dataclass
class Measured:
    """One plan in one environment, measured by a run of its own every time it is called; blocks."""

    environment: str
    plan: str
    envs: int
    unroll: int
    seconds: float  # that a measurement shall take, about
    root: Path  # where runs are kept meanwhile
    flags: Sequence[str] = ()
    steps: int = 0  # of a run; 0: not known yet
    checkout: Path = ROOT  # whose Weft

    def prepare(self, guess: int) -> None:
        """Find how many steps take ``seconds``, by a run of ``guess`` steps; raises :class:`NotRun`."""
        self.steps = guess
        rate = float(self._train()[0]["env_steps_per_second"])  # rough, too high if anything: the run gets longer
        self.steps = max(LEARN_CALLS * self.envs * self.unroll, round(rate * (self.seconds + SETTLE_SECONDS)))

    def __call__(self) -> float:
        """Env steps per second that were trained on."""
        while (rate := steady_rate(self._train()[1], self.envs * self.unroll)) is None:
            self.steps *= 2
        return rate

    def _train(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        algorithm = {"unroll": self.unroll, "epochs": 1, "minibatches": 1}
        asked = ["--plan", self.plan, "--envs", str(self.envs), "--steps", str(self.steps), "--vector", "each"]
        asked += [part for name, value in algorithm.items() for part in (f"--algo.{name}", str(value))]
        folder = Path(tempfile.mkdtemp(dir=self.root))
        try:
            limit = START_SECONDS + 20 * self.seconds
            summary = run(self.environment, [*asked, *self.flags], folder, limit, checkout=self.checkout)
            return summary, records(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def steady_rate(told: Sequence[dict[str, Any]], batch: int) -> float | None:
    """Env steps trained on per second, ``batch`` in a learn step; None where too few records were written.

    From a second after the first record to the last. Where none was written between that second and the end, the last
    but one is taken, but never the first.
    """
    if len(told) < 3:
        return None
    first, between, last = told[0], told[1:-1], told[-1]
    settled = [record for record in between if record["wall_seconds"] >= first["wall_seconds"] + SETTLE_SECONDS]
    begin = (settled or between[-1:])[0]
    taken = last["wall_seconds"] - begin["wall_seconds"]
    return float(last["learn_steps"] - begin["learn_steps"]) * batch / taken if taken > 0 else None


def records(folder: Path) -> list[dict[str, Any]]:
    """What the one run in ``folder`` wrote, in order."""
    (written,) = folder.glob("*/metrics.jsonl")
    return [json.loads(line) for line in written.read_text().splitlines()]


def run(
    environment: str,
    flags: Sequence[str],
    folder: Path,
    limit: float,
    *,
    algorithm: str = "ppo",
    checkout: Path = ROOT,
    settings: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """``weft train`` of a checkout with its run in ``folder``; its summary. ``settings`` are environment variables.

    Raises :class:`NotRun` where it fails or takes longer than ``limit`` seconds.
    """
    command = [sys.executable, "-m", "weft", "train", algorithm, environment, *flags]
    command += ["--json", "--quiet", "--root", str(folder), "--no-tensorboard"]
    process = subprocess.Popen(
        command,
        cwd=checkout,
        env=variables(checkout) | dict(settings or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    try:
        out, err = process.communicate(timeout=limit)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)  # its workers too
        out, err = process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise NotRun("failed", f"it ran longer than {limit:.0f} s") from error
        raise
    if process.returncode:
        said = (err.strip().splitlines() or ["it said nothing"])[-1].removeprefix("weft: error: ")
        raise NotRun("refused" if process.returncode == REFUSED else "failed", said)
    summary: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return summary
