"""The runs of the learning report: several side by side, each ``weft train`` in a process of its own.

What a run came to is appended to ``results.jsonl`` as soon as it ends, a line for each seed; what a call did not finish
in its time is stopped as Ctrl-C does, kept as far as it came, and gone on with by the next call in the same folder.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.learning_rows import Row
from benchmarks.weft_command import NotRun
from benchmarks.worker import ROOT, variables

RESULTS = "results.jsonl"
LEAVING_SECONDS = 45.0  # that a run gets to save what it has
INTERRUPTED = 130  # Weft's exit code then

# NPROC is XLA's own.
ONE_THREAD = dict.fromkeys(("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
ON_CPU = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
SHARED_DEVICE = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


@dataclass(frozen=True)
class Found:
    """What one seed of a row came to."""

    row: str
    seed: int
    steps: int  # environment steps that it made
    asked: int  # and that it was to make
    result: float  # mean return of the last 100 episodes of training
    path: list[tuple[float, float]]  # steps, mean return then
    seconds: float  # of the run, with compilation; all seeds of a program have the same
    settings: dict[str, Any]  # the environments and the algorithm's fields

    @property
    def finished(self) -> bool:
        """Whether it made all its steps."""
        return self.steps >= self.asked


@dataclass(frozen=True)
class Task:
    """One process: one seed of a row, or all of them where they are one program."""

    row: Row
    seeds: tuple[int, ...]
    steps: int  # 0: as tuned
    hosted: bool = False  # one program although the environments are stepped on the host
    flags: tuple[str, ...] = ()  # of ``weft train`` besides

    @property
    def together(self) -> bool:
        """Whether all its seeds are one program."""
        return self.hosted or self.row.compiled

    @property
    def run(self) -> str:
        """The name of the run."""
        several = f"x{len(self.seeds)}" if self.together else ""
        length = f"-{self.steps}" if self.steps else ""
        name = self.row.name.replace("/", "-").replace(":", "-").replace(" ", "-")
        return f"{name}{length}-s{self.seeds[0]}{several}"

    @property
    def command(self) -> list[str]:
        """Without where it is kept."""
        asked = [sys.executable, "-m", "weft", "train", self.row.algorithm, self.row.environment]
        asked += ["--seed", str(self.seeds[0]), "--quiet", "--no-tensorboard"]
        # A replay of several seeds is large, and what is cut short is saved when it is stopped.
        asked += ["--keep-checkpoints", "1", "--keep-best", "0", "--checkpoint-seconds", "180"]
        if self.together:
            asked += ["--seeds", str(len(self.seeds))]
        asked += ["--steps", str(self.steps)] if self.steps else []
        return [*asked, *self.flags]


def tasks(
    rows: Iterable[Row],
    seeds: Sequence[int],
    steps: int,
    known: Sequence[Found],
    together: bool = False,
    flags: Sequence[str] = (),
) -> list[Task]:
    """What is still to be trained, given what was found before. ``steps`` above 0 and ``flags`` go for every row.

    ``together``: the seeds of a row are one program with host environments too.
    """
    finished = {(found.row, found.seed) for found in known if found.finished}
    made = []
    for row in rows:
        left = tuple(seed for seed in seeds if (row.name, seed) not in finished)
        groups = [left] if together or row.compiled else [(seed,) for seed in left]
        made += [Task(row, group, steps or row.steps, together, tuple(flags)) for group in groups if group]
    return sorted(made, key=lambda task: not task.together)  # the longest first


def train(
    todo: Sequence[Task], out: Path, jobs: int, seconds: float, settings: dict[str, str]
) -> Iterator[tuple[Task, list[Found] | NotRun]]:
    """Run them, at most ``jobs`` at a time, for about ``seconds``; what each came to, as it ends. Blocks.

    Where one fails, the others go on. One that had no time to begin is not told of.
    """
    out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + seconds
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(_train, task, out, end, settings): task for task in todo}
        for ended in as_completed(running):
            came = ended.result()
            if isinstance(came, list):
                with (out / RESULTS).open("a", encoding="utf-8") as lines:
                    lines.writelines(json.dumps(asdict(found)) + "\n" for found in came)
            if came is not None:
                yield running[ended], came


def _train(task: Task, out: Path, end: float, settings: dict[str, str]) -> list[Found] | NotRun | None:
    left = end - time.monotonic()
    if left <= 0:
        return None
    root = out / "runs"
    root.mkdir(exist_ok=True)
    with (root / f"{task.run}.log").open("w+") as said:
        process = subprocess.Popen(
            [*task.command, "--root", str(root), "--run", task.run],
            cwd=ROOT,
            env=variables(ROOT) | settings,
            stdout=said,
            stderr=said,
            process_group=0,
        )
        try:
            code = _wait(process, left)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        said.seek(0)
        words = said.read().strip().splitlines() or ["it said nothing"]
    if code not in (0, INTERRUPTED, None):
        return NotRun("failed", f"{words[-1]} (exit code {code})")
    try:
        return read(task, root / task.run)
    except (OSError, ValueError) as error:
        return NotRun("nothing", f"it had not begun to learn when its time was over ({error})")


def _wait(process: subprocess.Popen[str], seconds: float) -> int | None:
    """Its exit code; it is asked to leave after ``seconds``. None: it did not, and is to be killed."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        return process.wait(LEAVING_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def read(task: Task, folder: Path) -> list[Found]:
    """What a run's folder says of each of its seeds, however far it came. ValueError where no episode has ended."""
    config = json.loads((folder / "config.json").read_text())
    told = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines() if line.endswith("}")]
    several = len(task.seeds) if task.together else 1
    found = []
    for k, seed in enumerate(task.seeds):
        key = f"return_mean/{k}" if task.together else "return_mean"
        path = [(r["env_steps"] / several, float(r[key])) for r in told if r.get(key) is not None]
        if not path:
            raise ValueError("no episode has ended")
        found.append(
            Found(
                row=task.row.name,
                seed=seed,
                steps=int(path[-1][0]),
                asked=int(config["steps"]),
                result=path[-1][1],
                path=_thinned(path),
                seconds=float(told[-1]["wall_seconds"]),
                settings={"envs": config["envs"], "plan": config["plan"], **config["algo"]},
            )
        )
    return found


def _thinned(path: list[tuple[float, float]], points: int = 200) -> list[tuple[float, float]]:
    """At most so many of them, the first and the last among them."""
    if len(path) <= points:
        return path
    return [path[round(k * (len(path) - 1) / (points - 1))] for k in range(points)]


def load(files: Iterable[Path]) -> list[Found]:
    """What was written to these files, or by earlier calls to these folders; of each seed the longest run."""
    best: dict[tuple[str, int], Found] = {}
    for file in files:
        path = file / RESULTS if file.is_dir() else file
        for line in path.read_text(encoding="utf-8").splitlines():
            fields = json.loads(line)
            found = Found(**{**fields, "path": [(float(a), float(b)) for a, b in fields["path"]]})
            known = best.get((found.row, found.seed))
            if known is None or found.steps >= known.steps:
                best[found.row, found.seed] = found
    return [best[key] for key in sorted(best)]
