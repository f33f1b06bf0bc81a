"""What a run of the benchmarks is asked for."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.worker import ROOT

Size = tuple[int, int, int, int]
"""Environments, unroll, epochs, minibatches."""

CPU_SIZES: tuple[Size, ...] = ((64, 32, 4, 4), (512, 32, 4, 4))
HOST_SIZES: tuple[Size, ...] = ((8, 128, 4, 4), (64, 128, 4, 4))
GPU_SIZES: tuple[Size, ...] = ((2048, 32, 4, 4), (65536, 16, 2, 4))
PQN_SIZES: dict[bool, tuple[Size, ...]] = {  # by whether JAX's first device is a CPU
    True: ((64, 32, 4, 4), (256, 32, 4, 4)),
    False: ((2048, 32, 4, 4), (16384, 16, 4, 4)),
}
DQN_SIZES: dict[bool, tuple[Size, ...]] = {  # environments, unroll, batch, updates after each unroll
    True: ((8, 32, 128, 32), (128, 8, 128, 8)),
    False: ((128, 8, 128, 8), (1024, 16, 1024, 16)),
}
ENVIRONMENTS = ("cartpole", "burning", "sleeping")


@dataclass(frozen=True)
class Options:
    """The flags, resolved."""

    rounds: int = 7
    seconds: float = 2.0  # of one measurement, about
    sizes: tuple[Size, ...] = CPU_SIZES  # of the compiled cases
    pqn_sizes: tuple[Size, ...] = PQN_SIZES[True]  # of compiled_values
    dqn_sizes: tuple[Size, ...] = DQN_SIZES[True]  # environments, unroll, batch, updates after each unroll
    bare: Path | None = None  # bare_ppo.py
    peers: bool = True
    host_sizes: tuple[Size, ...] = HOST_SIZES  # two: beside peers, and with many environments
    settings: tuple[str, ...] = ENVIRONMENTS  # of distributed and ring: which environments
    plans: tuple[str, ...] = ()  # of distributed: Weft's plans; unless given, its own list

    def tell(self, line: str) -> None:
        """Progress, on stderr: the table alone goes to stdout."""
        print(line, file=sys.stderr, flush=True)


def parse_size(text: str) -> Size:
    """``512x32`` (4 epochs × 4 minibatches) or ``65536x16x2x4``."""
    parts = [int(part) for part in text.lower().replace("×", "x").split("x")]
    if len(parts) not in (2, 4) or min(parts) < 1:
        raise ValueError(f"{text!r}: expected ENVSxUNROLL or ENVSxUNROLLxEPOCHSxMINIBATCHES")
    envs, unroll, epochs, minibatches = parts if len(parts) == 4 else [*parts, 4, 4]
    return envs, unroll, epochs, minibatches


def parse_dqn_size(text: str) -> Size:
    """``128x8x256x4``: environments, unroll, batch, updates after each unroll."""
    parts = [int(part) for part in text.lower().replace("×", "x").split("x")]
    if len(parts) != 4 or min(parts) < 1:
        raise ValueError(f"{text!r}: expected ENVSxUNROLLxBATCHxUPDATES")
    envs, unroll, batch, updates = parts
    return envs, unroll, batch, updates


def find_bare(given: str | None) -> Path | None:
    """``bare_ppo.py``: as given, by WEFT_BARE_PPO, or in the folder ``shared`` beside or inside the repository."""
    named = given or os.environ.get("WEFT_BARE_PPO")
    if named:
        if not Path(named).is_file():
            raise FileNotFoundError(f"no bare program at {named}")
        return Path(named).resolve()
    for folder in (ROOT.parent, ROOT):
        if (found := folder / "shared" / "bench" / "bare_ppo.py").is_file():
            return found
    return None
