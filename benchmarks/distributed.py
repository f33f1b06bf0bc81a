"""Weft's plans against Sample Factory and RLlib on one machine: light, costly and waiting environments."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import Case, Comparison
from benchmarks.options import Options
from benchmarks.peers import how_to_install, python_of
from benchmarks.weft_command import Measured, NotRun
from benchmarks.worker import Worker

PLANS = ("inline", "(env+act)*2 | learn", "env*2 | act+learn", "env*2 | act | learn", "env | act+learn")
UNROLL = 32
WORKERS = 2
WINDOW = 3  # times --seconds: systems that run by themselves need a longer look
ONE_CORE, ALL_CORES = "stepping: one process", "stepping: {} processes"


@dataclass(frozen=True)
class Setting:
    """An environment, and how many of it each worker holds."""

    title: str
    name: str  # for benchmarks.costly.make
    weft: str  # for weft train
    envs: int  # in each of the workers
    guess: int  # env steps that take about a second
    notes: tuple[str, ...] = ()

    @property
    def batch(self) -> int:
        """Samples of one learn call: an unroll of every environment."""
        return WORKERS * self.envs * UNROLL


SLEEP_NOTE = (
    "A worker steps its environments one after the other, and each step sleeps 1 ms: stepping alone reaches "
    "1,000 env steps/s for each worker at the very most, less what the kernel takes to wake it."
)
BURN_NOTE = "A step is 1 ms of CPU time: no more than 1,000 env steps/s for each core, whatever else there is to do."

SETTINGS = {
    "cartpole": Setting("gym.make CartPole-v1", "CartPole-v1", "CartPole-v1", 16, 30_000),
    "burning": Setting("1 ms of CPU a step", "burning", "benchmarks.costly:burning", 8, 2_000, (BURN_NOTE,)),
    "sleeping": Setting("1 ms of sleep a step", "sleeping", "benchmarks.costly:sleeping", 8, 2_000, (SLEEP_NOTE,)),
}


@dataclass(frozen=True)
class Peer:
    """A contender in a peer's own environment."""

    peer: str
    module: str
    kind: str
    fields: dict[str, Any] = field(default_factory=dict)

    def request(self, setting: Setting) -> dict[str, Any]:
        """The fields of its ``prepare``."""
        workers = {"workers" if self.peer == "sample-factory" else "runners": WORKERS}
        sizes = {"envs": setting.envs, "unroll": UNROLL, "batch": setting.batch}
        asked = {"environment": setting.name, **workers, **sizes, **self.fields}
        if asked.get("algorithm") == "ppo":
            asked |= {"batch": 4 * setting.batch, "minibatch_size": 4 * setting.batch}
        return asked


SAMPLE_FACTORY = ("sample-factory", "benchmarks.sample_factory_worker", "appo")
RLLIB = ("rllib", "benchmarks.rllib_worker", "train")
PEERS = {
    "Sample Factory": Peer(*SAMPLE_FACTORY, {"splits": 2}),
    "Sample Factory, 1 split": Peer(*SAMPLE_FACTORY, {"splits": 1}),
    "RLlib PPO": Peer(*RLLIB, {"algorithm": "ppo", "num_epochs": 1}),
    "RLlib IMPALA": Peer(*RLLIB, {"algorithm": "impala", "timeout_s_sampler_manager": 1.0}),
}
PEERS_NOTE = (
    "Everybody: two towers of 64 and 64 with tanh, one epoch, one minibatch, a learn call for each 32 steps of all "
    "environments (RLlib's PPO: 128 steps, which is faster for it). Peers have one torch thread in each process."
)


class Steppers:
    """A worker for each core that does nothing but step; they step one at a time or all at once."""

    def __init__(self, stack: ExitStack, options: Options, count: int | None = None) -> None:
        self.count = count or os.cpu_count() or 1
        self._workers = [stack.enter_context(Worker("benchmarks.costly_worker")) for _ in range(self.count)]
        self._threads = stack.enter_context(ThreadPoolExecutor(self.count))
        self._seconds = options.seconds

    def add(self, case: Case, setting: Setting, envs: int) -> tuple[str, str]:
        """Two more contenders for ``case``, ``envs`` environments in each process; their labels."""
        name, all_cores = f"{case.title} stepping", ALL_CORES.format(self.count)
        request = {"environment": setting.name, "envs": envs}
        each = [worker.prepare(name, "loop", self._seconds, **request) for worker in self._workers]
        case.contenders[ONE_CORE] = each[0]
        case.contenders[all_cores] = lambda: self._together(each)
        return ONE_CORE, all_cores

    def _together(self, each: Sequence[Callable[[], float]]) -> float:
        return float(sum(self._threads.map(lambda measure: measure(), each)))


def cases(options: Options, stack: ExitStack) -> list[Case]:
    """Peers started and warm, Weft's runs sized, all ready to be measured; ``stack`` ends what was started."""
    root = scratch(stack)
    steppers = Steppers(stack, options)
    workers: dict[str, Worker] = {}
    return [_case(options, stack, SETTINGS[name], root, steppers, workers) for name in options.settings]


def scratch(stack: ExitStack) -> Path:
    """A folder that ``stack`` removes."""
    folder = Path(tempfile.mkdtemp(prefix="weft-distributed-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


def add_weft(case: Case, options: Options, label: str, measured: Measured, guess: int) -> None:
    """A contender for ``case``; where Weft refuses, a note instead."""
    options.tell(f"preparing  {case.title}  {label}")
    try:
        measured.prepare(guess)
    except NotRun as error:
        options.tell(f"left out   {case.title}  {label}  {error}")
        case.left_out[label] = error.how
        case.notes.append(f"{label}: {error}")
    else:
        case.contenders[label] = measured


def _case(
    options: Options, stack: ExitStack, setting: Setting, root: Path, steppers: Steppers, workers: dict[str, Worker]
) -> Case:
    sizes = f"{WORKERS} × {setting.envs} environments"
    case = Case(f"distributed: {setting.title}, {sizes}", "env steps/s", {}, notes=list(setting.notes))
    window = WINDOW * options.seconds
    labels = {plan: f"Weft {plan}" for plan in options.plans or PLANS}
    for plan, label in labels.items():
        measured = Measured(setting.weft, plan, WORKERS * setting.envs, UNROLL, window, root)
        add_weft(case, options, label, measured, setting.guess)
    for label, peer in PEERS.items() if options.peers else ():
        if python := python_of(peer.peer):
            options.tell(f"preparing  {case.title}  {label}")
            if peer.peer not in workers:
                workers[peer.peer] = stack.enter_context(Worker(peer.module, python))
            prepare = workers[peer.peer].prepare
            case.contenders[label] = prepare(f"{case.title} {label}", peer.kind, window, **peer.request(setting))
        elif (note := how_to_install(peer.peer)) not in case.notes:
            case.notes.append(note)
    if options.peers:
        case.notes.append(PEERS_NOTE)
    _, all_cores = steppers.add(case, setting, setting.envs)
    case.comparisons = [
        Comparison(label, against) for label in labels.values() for against in (tuple(PEERS), (all_cores,))
    ]
    return case
