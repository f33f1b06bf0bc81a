"""Gymnasium's CartPole-v1 by plain ``gym.make``: Weft against Stable-Baselines3 and against stepping alone."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.measure import Case, Comparison
from benchmarks.options import Options
from benchmarks.peers import how_to_install, python_of
from benchmarks.worker import Worker

LOOP, NATIVE, VECTORISER = "stepping: gym.make loop", "stepping: native vector", "stepping: Weft's vectoriser"
WORKERS = "(env+act)*2 | learn"
IN_WORKERS = f"Weft, {WORKERS}, in lockstep"
BESIDE = "(env+act) | learn"
WHILE_LEARNING = f"Weft, {BESIDE}, a lag of 1 at most"
SB3 = {"SB3": None, "SB3, 1 thread": 1}  # label: torch threads


def cases(options: Options, stack: ExitStack) -> list[Case]:
    """Workers started and compiled, ready to be measured; ``stack`` ends them."""
    worker = stack.enter_context(Worker("benchmarks.host_worker"))
    few, many = (
        dict(zip(("envs", "unroll", "epochs", "minibatches"), size, strict=True)) for size in options.host_sizes
    )
    return [_against_sb3(options, worker, few, stack), _against_stepping(options, worker, many)]


def _against_sb3(options: Options, worker: Worker, sizes: dict[str, int], stack: ExitStack) -> Case:
    case = Case(f"host: gym.make CartPole-v1, PPO {_words(sizes)}", "env steps/s", {})
    case.comparisons = [
        Comparison("Weft", tuple(SB3), 4.0),
        Comparison(IN_WORKERS, tuple(SB3), 4.0),
        Comparison(WHILE_LEARNING, tuple(SB3), 6.0),
        Comparison("Weft", (LOOP,)),
    ]
    _add(case, worker, options, "Weft", "ppo", **sizes)
    _add(case, worker, options, IN_WORKERS, "ppo", **sizes, plan=WORKERS)
    _add(case, worker, options, WHILE_LEARNING, "ppo", **sizes, plan=BESIDE, lag=1)
    if (python := python_of("sb3")) and options.peers:
        peer = stack.enter_context(Worker("benchmarks.sb3_worker", python))
        for label, threads in SB3.items():
            _add(case, peer, options, label, "ppo", **sizes, threads=threads)
        case.notes.append("SB3 counts with whichever thread setting is faster for it: torch's default, or one.")
    else:
        case.notes.append(how_to_install("sb3"))
    _add(case, worker, options, LOOP, "loop", envs=sizes["envs"])
    _add(case, worker, options, VECTORISER, "vectoriser", envs=sizes["envs"])
    return case


def _against_stepping(options: Options, worker: Worker, sizes: dict[str, int]) -> Case:
    case = Case(f"host: gym.make CartPole-v1, PPO {_words(sizes)}", "env steps/s", {})
    case.comparisons = [Comparison(label, (LOOP,), 0.6) for label in ("Weft", IN_WORKERS, WHILE_LEARNING)]
    case.comparisons.append(Comparison(VECTORISER, (LOOP,)))
    _add(case, worker, options, "Weft", "ppo", **sizes)
    _add(case, worker, options, IN_WORKERS, "ppo", **sizes, plan=WORKERS)
    _add(case, worker, options, WHILE_LEARNING, "ppo", **sizes, plan=BESIDE, lag=1)
    case.notes.append(
        "In one process and in lockstep it is strictly on-policy, with the same result. With a lag environments are "
        "stepped while learn works, so that a batch may be from the params before."
    )
    for label, kind in ((LOOP, "loop"), (VECTORISER, "vectoriser"), (NATIVE, "native")):
        _add(case, worker, options, label, kind, envs=sizes["envs"])
    return case


def _add(case: Case, worker: Worker, options: Options, label: str, kind: str, **fields: int | str | None) -> None:
    options.tell(f"preparing  {case.title}  {label}")
    case.contenders[label] = worker.prepare(f"{case.title} {label}", kind, options.seconds, **fields)


def _words(sizes: dict[str, int]) -> str:
    return "{envs} × {unroll}, {epochs} epochs × {minibatches} minibatches".format(**sizes)
