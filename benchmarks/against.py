"""The rates of two checkouts, interleaved: ``python -m benchmarks.against --old DIR [CASE ...]``.

The workers of each side run that checkout's own ``benchmarks`` and ``weft``, and take turns: old, new, new, old, and so
on. Where both sides import the same Weft, the ratio's spread shows what the machine alone does.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import checkouts, machine
from benchmarks.compiled import ITERATIONS
from benchmarks.distributed import SETTINGS, UNROLL, WINDOW, add_weft, scratch
from benchmarks.distributed import WORKERS as ENV_WORKERS
from benchmarks.host import WORKERS as ACTORS
from benchmarks.measure import Case, Comparison, Outcome, interleave
from benchmarks.options import CPU_SIZES, HOST_SIZES, Options, Size
from benchmarks.table import grid, number, to_json
from benchmarks.weft_command import Measured
from benchmarks.worker import Worker

AIM = 0.98
PLANS = {  # not in lockstep, by distributed's names of the environments
    "cartpole": ("env*2 | act | learn", ACTORS),
    "burning": ("env*2 | act+learn",),
    "sleeping": ("env*2 | act+learn",),
}


class Session(NamedTuple):
    """What cases are made with."""

    options: Options
    stack: ExitStack
    sides: dict[str, Path]  # "old" and "new"
    workers: dict[tuple[str, str], Worker]  # by module and side

    def worker(self, module: str, side: str) -> Worker:
        """The one of this side's checkout, started when first asked for."""
        if (module, side) not in self.workers:
            started = Worker(module, checkout=self.sides[side])
            self.workers[module, side] = self.stack.enter_context(started)
        return self.workers[module, side]


def in_worker(session: Session, case: Case, *, module: str, **fields: int | str) -> None:
    """Contenders that stay alive between rounds: PPO as the other benchmarks have it."""
    for side in session.sides:
        session.options.tell(f"preparing  {case.title}  {side}")
        prepare = session.worker(module, side).prepare
        case.contenders[side] = prepare(case.title, "ppo", session.options.seconds, **fields)


def by_command(session: Session, case: Case, *, setting: str, plan: str) -> None:
    """Contenders that are a ``weft train`` of their own each time, not in lockstep."""
    runs, window = SETTINGS[setting], WINDOW * session.options.seconds
    both = []
    for side, checkout in session.sides.items():
        envs, root = ENV_WORKERS * runs.envs, scratch(session.stack)
        measured = Measured(runs.weft, plan, envs, UNROLL, window, root, checkout=checkout)
        add_weft(case, session.options, side, measured, runs.guess)
        both.append(measured)
    for measured in both:
        measured.steps = max(each.steps for each in both)


def _cases() -> dict[str, Callable[[Session, Case], None]]:
    """What fills each case, by its name."""
    on_host = partial(in_worker, module="benchmarks.host_worker")
    compiled = partial(in_worker, module="benchmarks.compiled_worker", iterations=ITERATIONS)
    known: dict[str, Callable[[Session, Case], None]] = {}
    for size in HOST_SIZES:
        known[f"host {_words(size)} inline"] = partial(on_host, **_fields(size))
    many = HOST_SIZES[-1]
    known[f"host {_words(many)} {ACTORS}, in lockstep"] = partial(on_host, plan=ACTORS, **_fields(many))
    for size in CPU_SIZES:
        known[f"compiled {_words(size)}"] = partial(compiled, **_fields(size))
    for setting, plans in PLANS.items():
        for plan in plans:
            known[f"workers {setting} {plan}"] = partial(by_command, setting=setting, plan=plan)
    return known


def _words(size: Size) -> str:
    return f"{size[0]}x{size[1]}"


def _fields(size: Size) -> dict[str, int]:
    return dict(zip(("envs", "unroll", "epochs", "minibatches"), size, strict=True))


CASES = _cases()


def summary(outcomes: Sequence[Outcome]) -> str:
    """One row for each case: the medians of both sides, and the ratio new / old within each round."""
    rows = []
    for outcome in outcomes:
        case, spreads = outcome.case, outcome.spreads
        rates = [number(spreads[side].median) if side in spreads else case.left_out[side] for side in ("old", "new")]
        told = ["", "", ""]
        for ratio in outcome.ratios:
            reached = "reached" if ratio.of_pairs >= AIM else "missed"
            told = [f"{ratio.of_pairs:.3f}", f"{ratio.low:.3f} – {ratio.high:.3f}", reached]
        rows.append([case.title, *rates, *told])
    return grid(["env steps/s", "old", "new", "new / old, median of pairs", "min – max", f"≥ {AIM}"], rows)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="CASE", help=f"how its name begins ({'; '.join(CASES)}); unless given: all"
    )
    checkouts.add_flags(parser)
    parser.add_argument("--repeats", type=int, default=7, help="rounds of the interleaved run (7)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one measurement, about (2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value there too")
    flags = parser.parse_args(arguments)
    for beginning in flags.names:
        if not any(name.startswith(beginning) for name in CASES):
            parser.error(f"no case begins with {beginning!r} (known: {'; '.join(CASES)})")
    wanted = [name for name in CASES if not flags.names or name.startswith(tuple(flags.names))]
    options = Options(rounds=flags.repeats, seconds=flags.seconds)
    here = machine.describe()
    try:
        with checkouts.opened(flags) as sides, ExitStack() as stack:
            session = Session(options, stack, sides._asdict(), {})
            cases = [Case(name, "env steps/s", {}, [Comparison("new", ("old",), AIM)]) for name in wanted]
            for case in cases:
                CASES[case.title](session, case)
            outcomes = interleave(cases, options.rounds, options.tell)
    except checkouts.NoCheckout as error:
        parser.error(str(error))
    how = f"{options.rounds} interleaved rounds, about {options.seconds:g} s each"
    print("\n".join([f"{key}: {value}" for key, value in here.items()] + [f"measured: {how}", ""]))
    print(summary(outcomes))
    if flags.json:
        flags.json.write_text(json.dumps({"machine": here, "measured": how, "cases": to_json(outcomes)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
