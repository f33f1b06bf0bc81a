"""Sample Factory's APPO. Runs in the peer's environment, which knows nothing of Weft.

Sample Factory trains until it is told to end, in processes of its own. So each contender is a child that trains all
the time; between two measurements its whole process group is stopped (SIGSTOP), and costs nothing. The child writes a
line for every batch that was trained on:

    {"at": seconds on the monotonic clock, "trained": samples so far, "returns": [of the episodes that ended since]}

As a module: ``python -m benchmarks.sample_factory_worker`` serves, ``... train FLAG ...`` is such a child,
``... solve JSON`` prints the seconds until CartPole is solved.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.serve import Window, serve

SETTLE_SECONDS = 1.0  # after going on: queues fill, caches warm
PATIENCE_SECONDS = 120.0
NETWORK = (
    *("--encoder_mlp_layers", "64", "64", "--nonlinearity", "tanh"),
    *("--use_rnn", "False", "--actor_critic_share_weights", "False"),
)
"""Two towers of 64 and 64, as everybody else has. Its own default, 512, 512 and a GRU of 512, is far slower."""


class Trained(NamedTuple):
    """What the child said after a batch."""

    at: float  # seconds, monotonic
    trained: int  # samples that batches were made of so far
    returns: list[float]


class Training:
    """A child that trains, in a process group of its own; running until :meth:`pause` is called."""

    def __init__(self, flags: list[str]) -> None:
        self.folder = tempfile.mkdtemp(prefix="sample-factory-")
        command = [sys.executable, "-m", "benchmarks.sample_factory_worker", "train", *flags]
        # The same session: if this process dies, the kernel hangs up on a stopped group and lets it go on to its end.
        self._log = Path(self.folder) / "said.txt"  # it says much
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*command, "--train_dir", self.folder],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                process_group=0,
                env={**os.environ, "OMP_NUM_THREADS": "1"},  # of each process: there are more of them than cores
            )
        self._said: list[Trained] = []
        self._more = threading.Condition()
        self._ended = False
        threading.Thread(target=self._listen, daemon=True).start()
        atexit.register(self.close)

    def after(self, moment: float, since: int = 0) -> Trained:
        """The first report at or after ``moment``, waited for; ``since`` skips as many that were said before."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._more:
            while not (found := [report for report in self._said[since:] if report.at >= moment]):
                if self._ended or not self._more.wait(deadline - time.monotonic()):
                    said = "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])
                    raise RuntimeError(f"Sample Factory trained on nothing more; the last it said:\n{said}")
        return found[0]

    def reports(self) -> int:
        """How many there were so far."""
        with self._more:
            return len(self._said)

    def pause(self) -> None:
        """Stop every process of it."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def proceed(self) -> None:
        """Let them go on."""
        os.killpg(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        """End them all; may be called twice."""
        atexit.unregister(self.close)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._more:
                self._said.append(Trained(**json.loads(line)))
                self._more.notify_all()
        with self._more:
            self._ended = True
            self._more.notify_all()


def flags_of(environment: str, workers: int, envs: int, unroll: int, batch: int, **more: Any) -> list[str]:
    """Its command line: ``workers`` × ``envs`` environments, and ``more``; whatever is not here is its default."""
    sizes = {"num_workers": workers, "num_envs_per_worker": envs, "rollout": unroll, "batch_size": batch}
    quiet = {"heartbeat_reporting_interval": 10**6, "save_every_sec": 10**6, "save_best_every_sec": 10**6}
    settings: dict[str, Any] = {
        "env": environment,
        "device": "cpu",
        "serial_mode": False,
        "num_epochs": 1,
        "seed": 0,
        **sizes,
        **quiet,
        **more,
    }
    return [*(f"--{name}={value}" for name, value in settings.items()), *NETWORK]


def appo(*, environment: str, workers: int, envs: int, unroll: int, batch: int, splits: int = 2) -> Window:
    """APPO, one epoch; measured between the first batch in the window and the first after it.

    ``splits``: a worker steps one part of its environments while the others' actions are inferred. Its default is 2.
    """
    training = Training(flags_of(environment, workers, envs, unroll, batch, worker_num_splits=splits))
    training.after(0.0)
    training.after(time.monotonic() + SETTLE_SECONDS)
    training.pause()

    def measure(seconds: float) -> float:
        before = training.reports()
        training.proceed()
        try:
            first = training.after(time.monotonic() + SETTLE_SECONDS, before)
            last = training.after(first.at + seconds, before)
        finally:
            training.pause()
        return (last.trained - first.trained) / (last.at - first.at)

    return Window(measure)


def solve(*, threshold: float, limit: float, **asked: Any) -> float:
    """Wall seconds to a mean return over the last 100 episodes; infinite where ``limit`` seconds were not enough.

    ``asked`` goes to :func:`flags_of`. Counted from when the learner is ready: imports and processes' start are over.
    """
    training = Training(flags_of(**asked))
    try:
        began = training.after(0.0).at  # it tells of 0 samples before it begins
        returns: list[float] = []
        heard = 1
        while (report := training.after(0.0, heard)).at - began <= limit:
            heard += 1
            returns = [*returns, *report.returns][-100:]
            if len(returns) == 100 and sum(returns) / 100 >= threshold:
                return report.at - began
        return float("inf")
    finally:
        training.close()


def make_env(name: str, cfg: Any, env_config: Any, render_mode: str | None = None) -> Any:
    """What Sample Factory calls in its workers."""
    from benchmarks import costly

    return costly.make(name)


def train(flags: list[str]) -> None:
    """Be the child: train until killed, a line for every batch."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import numpy as np
    from sample_factory.algo.utils.misc import EPISODIC, LEARNER_ENV_STEPS, ExperimentStatus
    from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
    from sample_factory.envs.env_utils import register_env
    from sample_factory.train import make_runner

    from benchmarks import sample_factory_worker  # by its name, not as __main__: its workers import it

    parser, known = parse_sf_args(flags)
    register_env(known.env, sample_factory_worker.make_env)
    _, runner = make_runner(parse_full_cfg(parser, flags))
    returns: list[float] = []

    def tell(trained: int) -> None:
        line = {"at": time.monotonic(), "trained": trained, "returns": returns}
        replies.write(json.dumps(line) + "\n")
        replies.flush()
        returns.clear()

    def on_trained(runner: Any, message: dict[str, Any], policy: int) -> None:
        tell(int(message[LEARNER_ENV_STEPS]))

    def on_episode(runner: Any, message: dict[str, Any], policy: int) -> None:
        returns.extend(np.ravel(message[EPISODIC]["reward"]).tolist())  # one, or an array of them

    runner.policy_msg_handlers[LEARNER_ENV_STEPS].append(on_trained)
    runner.policy_msg_handlers[EPISODIC].append(on_episode)
    assert runner.init() == ExperimentStatus.SUCCESS
    runner.run()


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train(sys.argv[2:])
    elif sys.argv[1:2] == ["solve"]:
        print(solve(**json.loads(sys.argv[2])))
    else:
        serve({"appo": appo})
