"""Off-policy on Gymnasium's environments, one environment: Weft against Stable-Baselines3 and sbx, SB3 in JAX.

Everybody makes as many learn calls for each step, with batches and networks of the same sizes. Each is measured twice:
learning as often as SB3's defaults have it, and after more steps at a time.
"""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.measure import Case, Comparison
from benchmarks.options import Options
from benchmarks.peers import how_to_install, python_of
from benchmarks.worker import Worker

SETTINGS = {  # kind: environment, steps for each learn call, and for how many steps learning is put off
    "dqn": ("CartPole-v1", 4, 64),
    "sac": ("Pendulum-v1", 1, 32),
}
WORDS = {
    "dqn": "DQN, layers of 64 and 64, batches of 32, a learn call for every 4 steps",
    "sac": "SAC, layers of 256 and 256, batches of 256, a learn call for every step",
}
PEERS = {
    "sb3": ("benchmarks.sb3_worker", {"SB3": None, "SB3, 1 thread": 1}),
    "sbx": ("benchmarks.sbx_worker", {"sbx": 0}),
}
HALF = f"Weft, bfloat16, {SETTINGS['sac'][2]} steps at a time"
"""Products of numbers rounded to bfloat16, where the CPU has them (``weft/nets/native/halves.h``): SAC alone."""
AIM = {"sb3": 5.0, "sbx": 1.0}


def cases(options: Options, stack: ExitStack) -> list[Case]:
    """Workers started and compiled, ready to be measured; ``stack`` ends them."""
    worker = stack.enter_context(Worker("benchmarks.off_policy_worker"))
    made = {kind: _case(options, worker, kind) for kind in SETTINGS}
    half = stack.enter_context(Worker("benchmarks.off_policy_worker", JAX_DEFAULT_MATMUL_PRECISION="bfloat16"))
    _, every, later = SETTINGS["sac"]
    _add(made["sac"], half, options, HALF, "sac", every=every, steps=later)
    for peer, (module, rows) in PEERS.items():
        python = python_of(peer) if options.peers else None
        if python is None:
            for case in made.values():
                case.notes.append(how_to_install(peer))
            continue
        other = stack.enter_context(Worker(module, python))
        for kind, case in made.items():
            _, every, later = SETTINGS[kind]
            labels: list[str] = []
            for label, threads in rows.items():
                for steps in (every, later):
                    labels.append(f"{label}, {steps} steps at a time")
                    _add(case, other, options, labels[-1], kind, every=every, steps=steps, threads=threads)
            for mine in [label for label in case.contenders if label.startswith("Weft")]:
                case.comparisons = [*case.comparisons, Comparison(mine, tuple(labels), AIM[peer])]
    return list(made.values())


def _case(options: Options, worker: Worker, kind: str) -> Case:
    environment, every, later = SETTINGS[kind]
    case = Case(f"off-policy: {environment}, {WORDS[kind]}", "env steps/s", {})
    for steps in (every, later):
        _add(case, worker, options, _weft(steps), kind, every=every, steps=steps)
    case.notes.append("Of a peer's rows the fastest counts.")
    return case


def _weft(steps: int) -> str:
    return f"Weft, {steps} steps at a time"


def _add(case: Case, worker: Worker, options: Options, label: str, kind: str, **fields: int | None) -> None:
    options.tell(f"preparing  {case.title}  {label}")
    case.contenders[label] = worker.prepare(f"{case.title} {label}", kind, options.seconds, **fields)
