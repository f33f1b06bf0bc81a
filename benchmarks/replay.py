"""A replay on the host against the least that keeps and draws the same bytes: loops of NumPy copies.

Unrolls of 16 steps of 8 environments, observations of 84x84x4 bytes; batches of 64 steps with what followed them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import jax
import numpy as np

from benchmarks.measure import Case, Comparison
from benchmarks.options import Options
from weft.core.types import Finals, Transitions, Unroll
from weft.replay import PrioritisedReplay, UniformReplay
from weft.replay.on_host import HostReplay
from weft.runtimes.roles.store_home import CpuHome

LENGTH, ENVS, SLOTS, BATCH = 16, 8, 64, 64
SEEN = (84, 84, 4)
SETTINGS: dict[str, Any] = {"capacity": LENGTH * ENVS * SLOTS, "batch": BATCH, "n_step": 3, "begin": 1}


def cases(options: Options, stack: ExitStack) -> list[Case]:
    """Everything is full before it is measured."""
    unroll, key = _unroll(), jax.random.key(0)
    uniform, prioritised = UniformReplay(**SETTINGS), PrioritisedReplay(**SETTINGS)
    homes: dict[str, Any] = {
        "Weft uniform": HostReplay(uniform, unroll, key),
        "Weft prioritised": HostReplay(prioritised, unroll, key),
        "Weft uniform, in XLA": CpuHome(uniform, unroll, key),
        "bare copies": _Bare(),
    }
    batch = jax.eval_shape(lambda key: uniform.draw(uniform.init(unroll, key))[1], key)
    into: Transitions = jax.tree.map(lambda s: np.zeros((1, *s.shape), s.dtype), batch)
    for home in homes.values():
        for _ in range(SLOTS):
            home.insert(unroll)
        home.draw(into)
    made = []
    for title, unit, call in (
        ("unrolls of 16 x 8 steps kept", "unrolls/s", lambda home: home.insert(unroll)),
        ("batches of 64 steps drawn", "batches/s", lambda home: home.draw(into)),
    ):
        contenders = {name: _often(call, home, options.seconds) for name, home in homes.items()}
        aims = [Comparison(name, ("bare copies",), 0.5) for name in ("Weft uniform", "Weft prioritised")]
        aims.append(Comparison("Weft uniform, in XLA", ("bare copies",)))
        made.append(Case(f"replay: {title}, 84x84x4 uint8", unit, contenders, aims))
    made[0].notes.append("Bare: observations copied into the next slot; rows of random steps copied out, one by one.")
    return made


def _often(call: Callable[[Any], None], home: Any, seconds: float) -> Callable[[], float]:
    def measure() -> float:
        count, began = 0, time.perf_counter()
        while (passed := time.perf_counter() - began) < seconds:
            call(home)
            count += 1
        return count / passed

    return measure


class _Bare:
    def __init__(self) -> None:
        self.rows = np.zeros((SLOTS, LENGTH + 1, ENVS, *SEEN), np.uint8)
        self.inserted, self.random = 0, np.random.default_rng(0)

    def insert(self, unroll: Unroll) -> None:
        slot = self.inserted % SLOTS
        self.rows[slot, :LENGTH], self.rows[slot, LENGTH] = unroll.observation, unroll.last_observation
        self.inserted += 1

    def draw(self, into: Transitions) -> None:
        slots, steps = self.random.integers(0, SLOTS, BATCH), self.random.integers(0, LENGTH, BATCH)
        for k, (slot, step, env) in enumerate(zip(slots, steps, self.random.integers(0, ENVS, BATCH), strict=True)):
            into.observation[0, k] = self.rows[slot, step, env]
            into.following[0, k] = self.rows[slot, step + 1, env]


def _unroll() -> Unroll:
    random, shape = np.random.default_rng(0), (LENGTH, ENVS)
    seen, never = random.integers(0, 255, (LENGTH + 1, ENVS, *SEEN), dtype=np.uint8), np.zeros(shape, np.bool_)
    return Unroll(
        observation=seen[:-1],
        first=never,
        action=random.integers(0, 4, shape).astype(np.int32),
        extras={},
        reward=random.random(shape, np.float32),
        terminated=never,
        truncated=never,
        bootstrap=np.zeros(shape, np.float32),
        carry=(),
        last_observation=seen[-1],
        last_first=never[0],
        finals=Finals(np.zeros((1, ENVS, *SEEN), np.uint8), np.full((1, ENVS), -1, np.int32)),
    )
