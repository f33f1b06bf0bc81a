"""``weft:CartPole-v1`` compiled whole against the same PPO as a bare JAX program, on JAX's first device."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.measure import Case, Comparison
from benchmarks.options import Options
from benchmarks.worker import Worker

ITERATIONS = 50
"""In one dispatch, of both programs."""


def cases(options: Options, stack: ExitStack) -> list[Case]:
    """The worker started and every program compiled, ready to be measured; ``stack`` ends it."""
    worker = stack.enter_context(Worker("benchmarks.compiled_worker"))
    return [_case(options, worker, *size) for size in options.sizes]


def _case(options: Options, worker: Worker, envs: int, unroll: int, epochs: int, minibatches: int) -> Case:
    words = f"{envs:,} × {unroll}, {epochs} epochs × {minibatches} minibatches"
    case = Case(f"compiled: weft:CartPole-v1, PPO {words}", "env steps/s", {})
    case.comparisons = [Comparison("Weft", ("bare JAX",), 0.95), Comparison("Weft", ("stepping: compiled",))]
    sizes = {"envs": envs, "unroll": unroll, "epochs": epochs, "minibatches": minibatches, "iterations": ITERATIONS}

    def add(label: str, kind: str, **fields: object) -> None:
        options.tell(f"preparing  {case.title}  {label}")
        case.contenders[label] = worker.prepare(f"{case.title} {label}", kind, options.seconds, **fields)

    add("Weft", "ppo", **sizes)
    if options.bare is not None:
        add("bare JAX", "bare", path=str(options.bare), **sizes)
    else:
        case.notes.append("No bare program was found, and it was left out: name it by --bare PATH or WEFT_BARE_PPO.")
    add("stepping: compiled", "stepping", envs=envs, unroll=unroll)
    return case
