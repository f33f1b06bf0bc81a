"""Weft's plans and RLlib on one and the same Ray of this machine, with as many env runners as Weft has env workers."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from benchmarks.distributed import PEERS, PEERS_NOTE, SETTINGS, UNROLL, WINDOW, WORKERS, add_weft, scratch
from benchmarks.measure import Case, Comparison
from benchmarks.options import Options
from benchmarks.peers import how_to_install, python_of
from benchmarks.weft_command import Measured
from benchmarks.worker import Worker

PLANS = ("(env+act)*2 | learn", "env*2 | act | learn")
RLLIB = {label: peer for label, peer in PEERS.items() if peer.peer == "rllib"}
PORT, CPUS = 46379, 64  # a number for Ray's scheduler: only as many as there are cores are ever busy
AIM = 5.0
NOTE = (
    "All on one Ray that was started before, without a dashboard: RLlib's env runners are its actors, Weft's workers "
    "are processes of its agent. RLlib's actors stay there, and do nothing while Weft is measured."
)


def cases(options: Options, stack: ExitStack) -> list[Case]:
    """CartPole: Weft's plans on the Ray, and RLlib's algorithms."""
    setting, root, window = SETTINGS["cartpole"], scratch(stack), WINDOW * options.seconds
    case = Case(
        f"on one Ray: {setting.title}, {WORKERS} × {setting.envs} environments", "env steps/s", {}, notes=[NOTE]
    )
    address = stack.enter_context(ray_here())
    on = ("--on", address)
    labels = []
    for plan in options.plans or PLANS:
        labels.append(label := f"Weft {plan} --on ray")
        measured = Measured(setting.weft, plan, WORKERS * setting.envs, UNROLL, window, root, on)
        add_weft(case, options, label, measured, setting.guess)
    if python := python_of("rllib"):
        os.environ["RAY_ADDRESS"] = address
        try:
            worker = stack.enter_context(Worker("benchmarks.rllib_worker", python))
        finally:
            del os.environ["RAY_ADDRESS"]
        for label, peer in RLLIB.items():
            options.tell(f"preparing  {case.title}  {label}")
            case.contenders[label] = worker.prepare(label, peer.kind, window, **peer.request(setting))
        case.notes.append(PEERS_NOTE)
    else:
        case.notes.append(how_to_install("rllib"))
    case.comparisons = [Comparison(label, tuple(RLLIB), AIM) for label in labels]
    return [case]


@contextmanager
def ray_here() -> Iterator[str]:
    """A Ray of this machine, in a folder of its own, with a token that children of this process have. Its address."""
    ray = Path(sys.executable).parent / "ray"
    folder = Path(tempfile.mkdtemp(prefix="ray"))
    command = [str(ray), "start", "--head", "--block", "--node-ip-address", "127.0.0.1", "--port", str(PORT)]
    command += ["--num-cpus", str(CPUS), "--include-dashboard", "false", "--temp-dir", str(folder)]
    before = dict(os.environ)
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        deadline = time.monotonic() + 60.0
        while "Ray runtime started" not in (folder / "said").read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no Ray could be started: {(folder / 'said').read_text()[-2000:]}")
            time.sleep(0.2)
        yield f"127.0.0.1:{PORT}"
    finally:
        os.environ.clear()
        os.environ.update(before)
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=30)
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
