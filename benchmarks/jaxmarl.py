"""``python -m benchmarks.jaxmarl``: IPPO on MPE's simple_spread, beside JaxMARL's own training loop.

JaxMARL's loop is its ``baselines/IPPO/ippo_ff_mpe.py``, as it is in its repository; its environment comes from the
package. Neither is part of this project: ``--peers`` names a folder with the file and the packages (or with the file
alone, where they are installed). What its loop draws and logs with is left out by modules that do nothing.

Both are one program on JAX's first device, in one process and in turns: the same environments, steps, epochs,
minibatches and networks (two towers of 64, 64, tanh), values clipped, rates that fall. A unit is ``--iterations``
updates. Theirs begins afresh in each unit, which is one call of its ``train``; ours goes on.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from benchmarks import machine
from benchmarks.measure import Case, Comparison, interleave
from benchmarks.table import tables
from benchmarks.worker import ROOT, Worker

AIM = 1.0
PEERS = ROOT / "benchmarks" / ".peers" / "jaxmarl"
SIZES = ((16, 128), (256, 128), (2048, 32))
"""Environments and steps of an unroll; JaxMARL's own settings are the first."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jaxmarl", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--peers", type=Path, default=PEERS, metavar="DIR", help="holds ippo_ff_mpe.py and jaxmarl")
    parser.add_argument("--size", action="append", metavar="ENVSxSTEPS", help="may be given several times")
    parser.add_argument("--iterations", type=int, default=20, help="updates in one unit")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=7)
    flags = parser.parse_args(arguments)
    if not (flags.peers / "ippo_ff_mpe.py").exists():
        parser.error(f"{flags.peers} has no ippo_ff_mpe.py: take it from JaxMARL's repository, baselines/IPPO")
    sizes = [tuple(map(int, text.split("x"))) for text in flags.size or ()] or list(SIZES)
    print("\n".join(f"{key}: {value}" for key, value in machine.describe().items()), flush=True)
    with ExitStack() as stack:
        worker = stack.enter_context(Worker("benchmarks.jaxmarl_worker"))
        cases = [_case(flags, worker, envs, unroll) for envs, unroll in sizes]
        print(tables(interleave(cases, flags.rounds)), flush=True)
    return 0


def _case(flags: argparse.Namespace, worker: Worker, envs: int, unroll: int) -> Case:
    case = Case(f"IPPO, simple_spread, 3 agents, {envs:,} × {unroll}, 4 epochs × 4 minibatches", "env steps/s", {})
    case.comparisons = [Comparison("Weft", ("JaxMARL",), AIM)]
    sizes = {"envs": envs, "unroll": unroll, "iterations": flags.iterations}
    for label, kind in {"Weft": "weft", "JaxMARL": "jaxmarl"}.items():
        print(f"preparing  {case.title}  {label}", file=sys.stderr, flush=True)
        given = {**sizes, "peers": str(flags.peers)} if kind == "jaxmarl" else sizes
        case.contenders[label] = worker.prepare(f"{case.title} {label}", kind, flags.seconds, **given)
    return case


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
