"""How often an observation is copied on the host: ``python -m benchmarks.copies [--plan PLAN …]``.

A small library (``copies.c``, compiled here) is preloaded into every process of a run and counts the bytes of each
``memcpy`` and ``memmove`` of one or several whole observations, by the process and the library that asked for it. A run
is made twice, once longer than the other: what the longer one copied more, for each byte of observation that its
environments gave more, is what a step costs; starting and compiling fall out. Copies that a compiler has put into a
loop, and those of the kernel (sockets), are not seen. The environment is ``Filming``, 84 × 84 × 4 bytes a step: a size
that nothing else has. It returns the same buffer again and again, so that its own process must copy once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks import machine
from benchmarks.table import grid
from benchmarks.weft_command import NotRun, run
from benchmarks.worker import ROOT

PLANS = ("env*2 | act | learn", "env*2 | act+learn", "(env+act)*2 | learn", "inline")
OBSERVATION = 84 * 84 * 4
ENVS, UNROLL = 16, 16
TITLE, PLACES, PLACE = 4096, 4096, struct.Struct("QQ112s")  # as copies.c has them
LEAST = 0.01
"""Copies of a byte of observation, of a library in a kind of process, that are worth a row."""


def compiled(folder: Path) -> Path:
    """The library that counts, made in ``folder``."""
    source, library = ROOT / "benchmarks" / "copies.c", folder / "copies.so"
    subprocess.run(["cc", "-O2", "-fno-builtin", "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
    return library


def counted(folder: Path) -> Counter[tuple[str, str]]:
    """Bytes by the kind of process and the library that copied them."""
    found: Counter[tuple[str, str]] = Counter()
    for file in folder.iterdir():
        data = file.read_bytes()
        kind = _kind(data[:TITLE].split(b"\0", 1)[0].decode(errors="replace"))
        for caller, copied, library in PLACE.iter_unpack(data[TITLE:]):
            if caller:
                found[kind, library.split(b"\0", 1)[0].decode() or "compiled by XLA"] += copied
    return found


def _kind(output: str) -> str:
    """What a process is, by where its output goes: a worker's log has its name. ``main`` is what a user starts."""
    log = Path(output)
    return log.stem.rstrip("-0123456789") if log.suffix == ".log" else "main"


def of_plan(plan: str, steps: int, library: Path) -> Iterator[tuple[str, str, float]]:
    """Process, library, and copied bytes for each byte of observation."""
    short, long = (_run(plan, n, library) for n in (steps, 3 * steps))
    for key in sorted(long):
        copies = (long[key] - short[key]) / (2 * steps * OBSERVATION)
        if copies >= LEAST:
            yield *key, copies


def _run(plan: str, steps: int, library: Path) -> Counter[tuple[str, str]]:
    folder = Path(tempfile.mkdtemp())
    asked: list[Any] = ["--plan", plan, "--envs", ENVS, "--steps", steps, "--vector", "each", "--algo.unroll", UNROLL]
    asked += ["--algo.epochs", 1, "--algo.minibatches", 1]
    try:
        (folder / "counts").mkdir()
        counted_here = {"WEFT_COPIES": str(folder / "counts"), "WEFT_OBSERVATION": str(OBSERVATION)}
        with mock.patch.dict(os.environ, {"LD_PRELOAD": str(library), **counted_here}):
            run("benchmarks.costly:filming", [str(part) for part in asked], folder / "run", 300.0)
        return counted(folder / "counts")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: list[str]) -> int:
    """Count, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.copies", description=__doc__.splitlines()[0])
    parser.add_argument("--plan", nargs="+", default=list(PLANS), metavar="PLAN")
    parser.add_argument("--steps", type=int, default=4096, help="of the shorter run; the longer one has three times")
    flags = parser.parse_args(arguments)
    print(machine.describe(), flush=True)
    with tempfile.TemporaryDirectory() as made:
        try:
            library = compiled(Path(made))
            rows = [[f"`{plan}`", *row] for plan in flags.plan for row in of_plan(plan, flags.steps, library)]
        except (OSError, NotRun) as error:
            print(f"not counted: {error}", file=sys.stderr)
            return 1
    print(grid(["plan", "process", "library", "copies"], [[*row[:3], f"{row[3]:.2f}"] for row in rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
