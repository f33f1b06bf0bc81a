"""Replicas of a group over the devices of this process, and seeds side by side on one: the same function, mapped.

A function is written for one replica. ``Layout.wrap`` makes it run on all of them: by ``shard_map`` over a mesh of
devices, by ``vmap`` over seeds, or as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from weft.core.replicas import replica_axis
from weft.core.types import Tree

AXIS = "replica"


class Spread(Enum):
    """How a value is spread over the replicas and the seeds."""

    SHARED = "shared"  # one for all replicas; one for each seed
    SPLIT = "split"  # cut along its first axis, the environments'; one for each seed
    SPLIT_TIME = "split-time"  # likewise, but the environments' axis is the second, after time
    PLAIN = "plain"  # the same for all replicas and all seeds


@dataclass(frozen=True)
class Layout:
    """How many replicas on which devices, and how many seeds (0 where a run has a single seed and no seed axis)."""

    devices: tuple[Any, ...]
    seeds: int = 0

    @property
    def replicas(self) -> int:
        """How many copies of the group run."""
        return len(self.devices)

    @cached_property
    def mesh(self) -> Mesh:
        """The devices as a mesh of one axis."""
        import numpy as np

        return Mesh(np.array(self.devices), (AXIS,))

    def of_states(self, names: Iterable[str], kept: Iterable[str]) -> Tree:
        """How the states of fragments lie: the same for all replicas, but for those ``kept`` by stores, in shards."""
        if self.replicas == 1 or not set(kept):
            return Spread.SHARED
        return {name: Spread.SPLIT if name in kept else Spread.SHARED for name in names}

    def sharding(self, spread: Spread) -> NamedSharding | jax.sharding.SingleDeviceSharding:
        """Where a value of this spread is kept."""
        if self.replicas == 1:
            return jax.sharding.SingleDeviceSharding(self.devices[0])
        return NamedSharding(self.mesh, _spec(spread))

    def place(self, tree: Tree, spread: Tree) -> Tree:
        """Put a tree where it belongs; ``spread`` is a Spread or a prefix tree of them."""
        shardings = jax.tree.map(self.sharding, spread)
        return jax.device_put(tree, jax.tree.map(lambda s, t: jax.tree.map(lambda _: s, t), shardings, tree))

    def of_mine(self, mine: Any, spread: Spread = Spread.SPLIT) -> jax.Array:
        """This process's part of an array that lies over the devices of several."""
        whole: jax.Array = jax.make_array_from_process_local_data(self.sharding(spread), mine)
        return whole

    def replicated(self, tree: Tree) -> Tree:
        """The same for all replicas, also where they are in several processes: each of them must call this."""
        if self.replicas == 1:
            return jax.device_put(tree, self.devices[0])
        return jax.jit(lambda x: x, out_shardings=self.sharding(Spread.SHARED))(tree)

    def wrap_init(self, function: Callable[[Tree, Tree], Tree], gives: Tree) -> Callable[..., Tree]:
        """Compile ``function(seed, indices)``, which makes a fresh state, for all replicas or all seeds.

        Seeds are made one after the other: orthogonal matrices come from LAPACK, and on a CPU with few threads several
        batches of them at once wait for each other for ever (seen with jaxlib 0.10.2).
        """
        if not self.seeds:
            return self.wrap(function, (Spread.SHARED, Spread.SPLIT), gives)
        return jax.jit(lambda seeds, indices: jax.lax.map(lambda seed: function(seed, indices), seeds))

    def wrap(
        self, function: Callable[..., Tree], takes: Sequence[Tree], gives: Tree, donate: tuple[int, ...] = ()
    ) -> Callable[..., Tree]:
        """Compile ``function``, written for one replica and one seed, for all of them.

        ``takes`` (one for each argument) and ``gives`` say how they lie, as prefix trees of Spread.
        """

        def one(*args: Tree) -> Tree:
            with replica_axis(AXIS if self.replicas > 1 else None):
                return function(*args)

        mapped: Callable[..., Tree] = one
        if self.seeds:
            axes = tuple(jax.tree.map(lambda spread: None if spread is Spread.PLAIN else 0, spread) for spread in takes)
            mapped = jax.vmap(one, in_axes=axes)
        elif self.replicas > 1:
            in_specs, out_specs = jax.tree.map(_spec, (tuple(takes), gives))
            mapped = jax.shard_map(one, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
        return jax.jit(mapped, donate_argnums=donate)


def _spec(spread: Spread) -> PartitionSpec:
    match spread:
        case Spread.SPLIT:
            return PartitionSpec(AXIS)
        case Spread.SPLIT_TIME:
            return PartitionSpec(None, AXIS)
        case _:
            return PartitionSpec()
