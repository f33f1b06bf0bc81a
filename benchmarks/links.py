"""Unrolls of images from host to host, over links of several speeds, compressed and not (root, ``ip`` and ``tc``).

``python -m benchmarks.links [--rates 100mbit 1gbit] [--rounds N] [--seconds S]`` records unrolls of Pong once, and
sends them from one network namespace to another by a channel as a run has it between hosts, keys and all. ``loopback``
is within one namespace; ``noise`` is no picture at all, which nothing makes smaller. Measured in turn, each time with
processes and a channel of their own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.namespaces import Namespaces

LENGTH, ENVS, ACTIONS = 32, 8, 6
RECORDED = 6  # unrolls, sent again and again
FAR = "benchmarks.links_far"


def pong() -> np.ndarray[Any, Any]:
    """[RECORDED, T + 1, B, 4, 84, 84] uint8: pictures of random play, as Weft makes Atari's."""
    from ale_py.vector_env import AtariVectorEnv

    envs = AtariVectorEnv("pong", num_envs=ENVS, num_threads=1, repeat_action_probability=0.25)
    rng = np.random.default_rng(0)
    seen, _ = envs.reset(seed=0)
    frames = np.empty((RECORDED * LENGTH + 1, *seen.shape), np.uint8)
    for t in range(-200, len(frames)):
        if t >= 0:
            frames[t] = seen
        seen = envs.step(rng.integers(0, ACTIONS, ENVS))[0]
    envs.close()
    return np.stack([frames[n * LENGTH : (n + 1) * LENGTH + 1] for n in range(RECORDED)])


def one(spaces: Namespaces, place: str, recorded: Path, compress: bool, seconds: float) -> tuple[float, float]:
    """Unrolls a second, and kilobytes of the link for each."""
    address = "127.0.0.1" if place == "loopback" else spaces.address(1)
    reading, writing = (0, 0) if place == "loopback" else (1, 0)
    told = {"recorded": str(recorded), "compress": compress, "address": address, "seconds": seconds}
    with ExitStack() as stack:
        reader = _far(stack, spaces, reading, "reader", told)
        exported = json.loads(reader.stdout.readline())
        device = "lo" if place == "loopback" else "eth0"
        writer = _far(stack, spaces, writing, "writer", told | {"exported": exported, "device": device})
        line = reader.stdout.readline()
        if not line:
            raise RuntimeError("the reader ended")
        writer.stdin.close()
        sent, nbytes = json.loads(writer.stdout.readline())
        return float(line), nbytes / sent / 1e3


def _far(stack: ExitStack, spaces: Namespaces, host: int, kind: str, told: dict[str, Any]) -> Any:
    command = [*spaces.inside(host), sys.executable, "-m", FAR, kind, json.dumps(told)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stack.enter_context(process)
    stack.callback(process.kill)
    return process


def main(arguments: list[str]) -> int:
    """Measure in turn, print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.links", description=__doc__.splitlines()[0])
    parser.add_argument("--rates", nargs="*", default=["100mbit", "1gbit"], help="of links, as tc's tbf takes them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    flags = parser.parse_args(arguments)
    print(machine.describe(), flush=True)
    found: dict[tuple[str, str, bool], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        recorded = {"Pong": Path(folder) / "pong.npy", "noise": Path(folder) / "noise.npy"}
        pictures = pong()
        np.save(recorded["Pong"], pictures)
        np.save(recorded["noise"], np.random.default_rng(0).integers(0, 256, pictures.shape, np.uint8))
        spaces = Namespaces(2, net=78)
        stack.callback(spaces.close)
        for turn in range(flags.rounds):
            for place in (*flags.rates, "loopback"):
                if place != "loopback":
                    spaces.limit(0, place)
                for what, path in recorded.items():
                    for compress in (False, True) if turn % 2 == 0 else (True, False):
                        measured = one(spaces, place, path, compress, flags.seconds)
                        found.setdefault((place, what, compress), []).append(measured)
    print(f"unrolls of {LENGTH} steps of {ENVS} environments, {pictures[0].nbytes / 1e3:,.0f} kB of images each")
    print("| link | of | unrolls/s | kB each | compressed: unrolls/s | kB each | with / without, of each round |")
    print("|---|---|---|---|---|---|---|")
    for place, what in dict.fromkeys((place, what) for place, what, _ in found):
        plain, packed = found[place, what, False], found[place, what, True]
        shares = [b[0] / a[0] for a, b in zip(plain, packed, strict=True)]
        print(
            f"| {place} | {what} | {_of(plain)} | {_of(packed)} | {median(shares):.2f} "
            f"({min(shares):.2f} – {max(shares):.2f}) |"
        )
    return 0


def _of(measured: list[tuple[float, float]]) -> str:
    rates = [rate for rate, _ in measured]
    kilobytes = median(size for _, size in measured)
    return f"{median(rates):,.1f} ({min(rates):,.1f} – {max(rates):,.1f}) | {kilobytes:,.0f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
