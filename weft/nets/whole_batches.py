"""Networks that have a faster way for whole batches, where they are handed over as such and where calls are mapped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from weft.core.types import Tree
from weft.nets.network import Network, NetworkOutput

Batch = Callable[[Tree, Tree], NetworkOutput]
"""What a feed-forward network gives for params and ``[N, ...]`` observations; no carry."""


def on_a_cpu(net: Network, batch: Batch, images: bool) -> Network:
    """The network with ``batch`` for where it is trained, on a CPU; with ``images`` for where it acts as well.

    There is no such way on an accelerator: XLA's own is as fast.
    """
    if jax.default_backend() != "cpu":
        return net
    return in_batches(net, batch) if images else net._replace(batch=batch)


def in_batches(net: Network, batch: Batch) -> Network:
    """The network with ``batch`` for ``[N, ...]`` observations: where they are handed over whole, and mapped calls.

    What is mapped is only looked at: where it is differentiated it goes through the layers, whose derivative by the
    params is found for the batch, not for each sample.
    """

    def layers(params: Tree, observation: Tree) -> tuple[jax.Array, jax.Array]:
        output = net.apply(params, (), observation)
        return output.logits, output.value

    def whole(params: Tree, observation: Tree) -> tuple[jax.Array, jax.Array]:
        output = batch(params, observation)
        return output.logits, output.value

    def over(several: Any, one: Any, batched: Any, params: Tree, observation: Tree) -> tuple[Any, Any]:
        """What is mapped over: by ``several`` where that is observations alone, else ``one``, mapped as it would be."""
        if any(jax.tree.leaves(batched[0])) or not all(jax.tree.leaves(batched[1])):
            axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, tuple(batched))
            return jax.vmap(one, axes)(params, observation), (True, True)
        return several(params, observation), (True, True)

    def merged(params: Tree, observation: Tree) -> tuple[jax.Array, jax.Array]:
        """Of ``[M, N, ...]``: mapped twice, as steps and environments are, and one batch all the same."""
        sizes = jax.tree.leaves(observation)[0].shape[:2]
        flat = jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), observation)
        logits, value = rows(params, flat)
        return logits.reshape((*sizes, -1)), value.reshape(sizes)

    rows = jax.custom_batching.custom_vmap(whole)
    rows.def_vmap(lambda size, batched, *args: over(merged, whole, batched, *args))
    mapped = jax.custom_batching.custom_vmap(layers)
    mapped.def_vmap(lambda size, batched, *args: over(rows, layers, batched, *args))
    looked = jax.custom_jvp(mapped)
    looked.defjvp(lambda values, tangents: jax.jvp(layers, values, tangents))

    def apply(params: Tree, carry: Tree, observation: Tree) -> NetworkOutput:
        logits, value = looked(params, observation)
        return NetworkOutput(logits, value, carry)

    return net._replace(apply=apply, batch=batch)
