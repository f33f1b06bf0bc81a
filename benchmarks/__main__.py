"""``python -m benchmarks [NAME ...]``: everything asked for, in one interleaved run, as one table."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path

from benchmarks import machine
from benchmarks.measure import Case, interleave
from benchmarks.options import (
    CPU_SIZES,
    DQN_SIZES,
    ENVIRONMENTS,
    GPU_SIZES,
    HOST_SIZES,
    PQN_SIZES,
    Options,
    find_bare,
    parse_dqn_size,
    parse_size,
)
from benchmarks.table import tables, to_json

USUAL = ("host", "compiled", "startup")
# Those that are not usual run only by name.
NAMES = (*USUAL, "compiled_values", "off_policy", "streams", "distributed", "on_ray", "ring", "replay")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; unless given: {', '.join(USUAL)}"
    )
    parser.add_argument("--repeats", type=int, help="rounds of the interleaved run (7; quick: 3)")
    parser.add_argument("--seconds", type=float, help="of one measurement, about (2; quick: 0.5)")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: does it work, roughly")
    parser.add_argument("--sizes", type=parse_size, nargs="+", help="of compiled: ENVSxUNROLL[xEPOCHSxMINIBATCHES]")
    parser.add_argument("--pqn-sizes", type=parse_size, nargs="+", help="of compiled_values, as --sizes")
    parser.add_argument(
        "--dqn-sizes", type=parse_dqn_size, nargs="+", help="of compiled_values: ENVSxUNROLLxBATCHxUPDATES"
    )
    parser.add_argument(
        "--host-sizes", type=parse_size, nargs=2, help="of host: the one with peers, the one with many environments"
    )
    parser.add_argument("--bare", help="bare_ppo.py, which compiled is held against")
    parser.add_argument("--environments", nargs="+", choices=ENVIRONMENTS, help="of distributed and ring")
    parser.add_argument("--plans", nargs="+", metavar="PLAN", help="of distributed and on_ray: Weft's plans")
    parser.add_argument("--no-peers", action="store_true", help="leave other libraries out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value there too")
    flags = parser.parse_args(arguments)
    unknown = [name for name in flags.names if name not in NAMES]
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]!r} (known: {', '.join(NAMES)})")
    here = machine.describe()
    on_cpu = here["device"].startswith("cpu")
    sizes = flags.sizes or (CPU_SIZES if on_cpu else GPU_SIZES)
    options = Options(
        rounds=flags.repeats or (3 if flags.quick else 7),
        seconds=flags.seconds or (0.5 if flags.quick else 2.0),
        sizes=tuple(sizes),
        pqn_sizes=tuple(flags.pqn_sizes or PQN_SIZES[on_cpu]),
        dqn_sizes=tuple(flags.dqn_sizes or DQN_SIZES[on_cpu]),
        host_sizes=tuple(flags.host_sizes or HOST_SIZES),
        bare=find_bare(flags.bare),
        peers=not flags.no_peers,
        settings=tuple(flags.environments or ENVIRONMENTS),
        plans=tuple(flags.plans or ()),
    )
    with ExitStack() as stack:
        cases: list[Case] = []
        for name in flags.names or USUAL:
            cases += import_module(f"benchmarks.{name}").cases(options, stack)
        outcomes = interleave(cases, options.rounds, options.tell)
    how = f"{options.rounds} interleaved rounds, about {options.seconds:g} s each"
    print("\n".join([f"{key}: {value}" for key, value in here.items()] + [f"measured: {how}", ""]))
    print(tables(outcomes))
    if flags.json:
        flags.json.write_text(json.dumps({"machine": here, "measured": how, "cases": to_json(outcomes)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
