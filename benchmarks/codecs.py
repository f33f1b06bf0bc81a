"""What codecs make of an unroll of Pong, and how fast: why images go through LZ4. One core.

``python -m benchmarks.codecs``; zstd is left out where the package ``zstandard`` is not installed. *difference*: each
step less the one before it, modulo 256, which the table's second rows are of.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable
from importlib import import_module, util
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.links import pong

ROUNDS = 9
Codec = tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]


def codecs(nbytes: int) -> dict[str, Codec]:
    """By name: compress, decompress."""
    lz4: Any = import_module("lz4.block")
    found: dict[str, Codec] = {
        "LZ4": (lambda b: lz4.compress(b, store_size=False), lambda b: lz4.decompress(b, uncompressed_size=nbytes)),
        "zlib, level 1": (lambda b: zlib.compress(b, 1), zlib.decompress),
    }
    if util.find_spec("zstandard") is not None:
        zstd: Any = import_module("zstandard")
        for level in (1, -3):
            found[f"zstd, level {level}"] = (zstd.ZstdCompressor(level).compress, zstd.ZstdDecompressor().decompress)
    return found


def fastest(function: Callable[[], bytes]) -> tuple[bytes, float]:
    """What it gives, and the seconds of the fastest of some rounds."""
    taken = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        given = function()
        taken.append(time.perf_counter() - began)
    return given, min(taken)


def main() -> int:
    """Print a table."""
    unroll, rng = pong()[0], np.random.default_rng(0)
    difference = np.concatenate([unroll[:1], unroll[1:] - unroll[:-1]])
    noisy = unroll + rng.integers(0, 3, unroll.shape, np.uint8)
    pictures = {"Pong": unroll, "its difference": difference, "Pong, each pixel 0 to 2 brighter": noisy}
    pictures["noise"] = rng.integers(0, 256, unroll.shape, np.uint8)
    print(machine.describe(), flush=True)
    print("| of | codec | of the bytes | MB/s | MB/s undone |\n|---|---|---|---|---|")
    for what, frames in pictures.items():
        data = frames.tobytes()
        for name, (compress, decompress) in codecs(len(data)).items():
            packed, there = fastest(lambda: compress(data))  # noqa: B023
            undone, back = fastest(lambda: decompress(packed))  # noqa: B023
            assert undone == data
            share, megabytes = len(packed) / len(data), len(data) / 1e6
            print(f"| {what} | {name} | {share:.4f} | {megabytes / there:,.0f} | {megabytes / back:,.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
