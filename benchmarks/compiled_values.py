"""``weft:CartPole-v1`` compiled whole: PQN and DQN against bare JAX programs, on JAX's first device."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.measure import Case, Comparison
from benchmarks.options import Options
from benchmarks.worker import Worker

AIM = 0.95
CAPACITY = 100_000


def cases(options: Options, stack: ExitStack) -> list[Case]:
    """The worker started and every program compiled, ready to be measured; ``stack`` ends it."""
    worker = stack.enter_context(Worker("benchmarks.compiled_values_worker"))
    made = []
    for envs, unroll, epochs, minibatches in options.pqn_sizes:
        words = f"PQN {envs:,} × {unroll}, {epochs} epochs × {minibatches} minibatches"
        sizes = {"envs": envs, "unroll": unroll, "epochs": epochs, "minibatches": minibatches}
        made.append(_case(options, worker, "pqn", words, sizes))
    for envs, unroll, batch, updates in options.dqn_sizes:
        words = f"DQN {envs:,} × {unroll}, then {updates} updates of {batch:,}"
        capacity = max(CAPACITY, 4 * envs * unroll)
        sizes = {"envs": envs, "unroll": unroll, "batch": batch, "updates": updates, "capacity": capacity}
        made.append(_case(options, worker, "dqn", words, sizes))
    return made


def _case(options: Options, worker: Worker, kind: str, words: str, sizes: dict[str, int]) -> Case:
    case = Case(f"compiled: weft:CartPole-v1, {words}", "env steps/s", {})
    case.comparisons = [Comparison("Weft", ("bare JAX",), AIM)]
    for label, which in {"Weft": kind, "bare JAX": f"bare {kind}"}.items():
        options.tell(f"preparing  {case.title}  {label}")
        case.contenders[label] = worker.prepare(f"{case.title} {label}", which, options.seconds, **sizes)
    return case
