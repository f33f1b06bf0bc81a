"""Where a store's state lies in a worker of its own: in the host's memory, as NumPy arrays or on JAX's CPU device."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import numpy as np

from weft.core.types import Array, Tree
from weft.graph.fragment import Schema
from weft.graph.store import Home, Store
from weft.replay.on_host import KNOWN, HostReplay


def home_of(store: Store, unroll: Schema, key: Array, held: Tree | None = None) -> Home:
    """A home for a store that takes unrolls of these shapes, with ``held`` in it, or empty."""
    if type(store) in KNOWN:
        return HostReplay(store, unroll, key, held)  # type: ignore[arg-type]
    return CpuHome(store, unroll, key, held)


def tells_lanes_apart(store: Store) -> bool:
    """Whether a store is a ``LaneStore``; one derived from ours may have an ``insert`` that is told of no lane."""
    return hasattr(store, "of_lanes") and "lane" in inspect.signature(store.insert).parameters


class CpuHome:
    """Any store, on JAX's CPU device: its state is given away to each program, and changed in place."""

    def __init__(self, store: Store, unroll: Schema, key: Array, held: Tree | None = None) -> None:
        cpu = jax.local_devices(backend="cpu")[0]
        with jax.default_device(cpu):
            made = jax.jit(lambda key: store.init(unroll, key))(key) if held is None else held
        self._held = jax.device_put(made, cpu)
        self._lanes = tells_lanes_apart(store)
        self._insert = jax.jit(store.insert, donate_argnums=0)

        def draw(held: Tree, count: int) -> tuple[Tree, Tree]:
            return jax.lax.scan(lambda held, _: store.draw(held), held, None, count)

        def tell(held: Tree, messages: Tree) -> Tree:
            return jax.lax.scan(lambda held, message: (store.feedback(held, message), None), held, messages)[0]

        self._draw = jax.jit(draw, static_argnums=1, donate_argnums=0)
        self._tell = jax.jit(tell, donate_argnums=0)
        self._waits, self._figures = jax.jit(store.waits), jax.jit(store.figures)

    @property
    def state(self) -> Tree:
        """As the store gave it."""
        return self._held

    def insert(self, unroll: Any, lane: int = 0, same: Any = True) -> None:
        """Keep an unroll; waits, since the program may read the caller's memory."""
        told = (np.array(np.broadcast_to(same, unroll.reward.shape[1])), np.int32(lane)) if self._lanes else ()
        self._held = jax.block_until_ready(self._insert(self._held, unroll, *told))

    def draw(self, into: Any) -> None:
        """Draw as many batches as ``into`` has room for, and write them there."""
        places = jax.tree.leaves(into)
        self._held, batches = self._draw(self._held, len(places[0]))
        for place, value in zip(places, jax.tree.leaves(batches), strict=True):
            np.copyto(place, np.asarray(value))

    def feedback(self, messages: Any) -> None:
        """Take in what learn tells of batches."""
        self._held = jax.block_until_ready(self._tell(self._held, messages))

    def waits(self) -> int:
        """Unrolls from now on that are only kept."""
        return int(np.asarray(self._waits(self._held)))

    def figures(self) -> dict[str, float]:
        """What it counts."""
        return {name: float(np.asarray(value)) for name, value in self._figures(self._held).items()}
