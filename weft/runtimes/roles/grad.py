"""The grad side of a worker: gradients of its own lanes' unrolls, sent to the one apply that owns the params."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weft.core.keys import env_keys, fragment_key
from weft.core.types import Array, Tree, Unroll
from weft.graph.algorithm import Algorithm
from weft.graph.graph import Graph
from weft.runtimes.compiled.replicas import Layout
from weft.runtimes.hosted.blocks import Block, as_unroll, join, seen
from weft.runtimes.hosted.programs import Programs, make_programs
from weft.runtimes.workers.collector import Collector
from weft.runtimes.workers.counting.account import OfRun
from weft.runtimes.workers.gradients import GradientWriter
from weft.runtimes.workers.side import SideContext
from weft.runtimes.workers.weights import Weights
from weft.streams.channel import Message, Reader

FLAGS = ("learned", "rewards")
"""What travels after the metrics: whether all numbers, and the rewards as given, were finite."""


def gradient_schema(algorithm: Algorithm, block: Block, pieces: int) -> tuple[Tree, tuple[str, ...]]:
    """The shapes of a message of gradients, ``(gradients, figures)``, and the metrics' names among the figures."""
    params = jax.eval_shape(algorithm.init, jax.eval_shape(lambda: jax.random.key(0))).params
    full = block
    if not block.extras:  # found again where they are needed: the schema wants them all the same
        from weft.graph.loops import acted_schema

        acted = acted_schema(algorithm, params).extras
        length, rows = block.bootstrap.shape
        full = block._replace(
            extras=jax.tree.map(lambda s: jax.ShapeDtypeStruct((length, rows, *s.shape[1:]), s.dtype), acted)
        )
    unroll: Unroll = jax.eval_shape(lambda *b: as_unroll(join(b)), *(full,) * pieces)
    gradients, metrics = jax.eval_shape(algorithm.grad, params, unroll)
    names = tuple(sorted(metrics))
    return (gradients, jax.ShapeDtypeStruct((len(names) + len(FLAGS),), jnp.float32)), names


class GradSide:
    """Computes one gradient for each batch of its lanes; ``run`` returns only by an exception."""

    def __init__(
        self,
        post: SideContext,
        algorithm: Algorithm,
        graph: Graph,
        collector: Collector,
        schema: Block,
        params: Reader,
        gradients: GradientWriter,
        *,
        seed: int,
        first: int,
    ) -> None:
        self.post, self.algorithm, self.collector, self.gradients = post, algorithm, collector, gradients
        self._structure = jax.tree.structure(schema)
        layout = Layout((jax.local_devices()[0],))
        self._programs = make_programs(algorithm, graph, layout, recalls=not schema.extras, pieces=collector.pieces)
        shapes = jax.eval_shape(algorithm.init, jax.eval_shape(lambda: jax.random.key(0))).params
        self.weights = Weights(params, jax.tree.structure(shapes))
        self._keys: Array | None = None
        if self._programs.recalls and not schema.extras:
            indices = np.arange(first, first + algorithm.spec.envs, dtype=np.int32)
            self._keys = jax.jit(lambda i: env_keys(fragment_key(seed, "act"), i))(indices)
        self._grad = jax.jit(_grad_of(algorithm, self._programs))

    def run(self) -> None:
        """Compute gradients, for ever; raises Stopped at the run's end."""
        lockstep = self.collector.lockstep
        while True:
            batch = None
            while batch is None:
                self.weights.refresh()
                if self.weights.version >= 0:
                    # By what is published, and not by what this side has seen: act may have seen more by now.
                    batch = self.collector.collect(int(self.post.account.run[OfRun.VERSION]))
                if batch is None:
                    self.post.wait()
            self.weights.refresh()
            while lockstep and self.weights.version < batch[0].stamp.version:
                if not self.weights.refresh():
                    self.post.wait()
            self._compute(batch)
            self.post.tick()

    def _compute(self, batch: list[Message]) -> None:
        blocks = tuple(jax.tree.unflatten(self._structure, message.arrays) for message in batch)
        noise = None
        if self._keys is not None:
            step = np.int32(batch[0].stamp.sequence * self.algorithm.unroll + 1)
            noise = self._programs.noise(self._keys, step)
        leaves: list[Any] = jax.tree.leaves(self._grad(self.weights.leaves, blocks, noise))
        while (places := self.gradients.reserve()) is None:
            self.post.wait()
        for place, leaf in zip(places, leaves, strict=True):
            np.copyto(place, np.asarray(leaf))
        self.gradients.send(batch)


def _grad_of(algorithm: Algorithm, programs: Programs) -> Any:
    structure = jax.tree.structure(jax.eval_shape(algorithm.init, jax.eval_shape(lambda: jax.random.key(0))).params)

    def grad(leaves: tuple[Array, ...], blocks: tuple[Block, ...], noise: Tree | None) -> Tree:
        block = join(blocks)
        unroll = as_unroll(block)
        if noise is not None:
            unroll = unroll._replace(extras=programs.extras(leaves, block.carry, seen(block), noise))
        unroll = jax.lax.optimization_barrier(unroll)
        gradients, metrics = algorithm.grad(jax.tree.unflatten(structure, leaves), unroll)
        given = unroll.reward.sum()
        names = sorted(metrics)
        values = [jnp.asarray(metrics[name], jnp.float32) for name in names]
        finite = jnp.isfinite(given + sum(values))
        for leaf in jax.tree.leaves(gradients):
            finite &= jnp.isfinite(leaf).all()
        return gradients, jnp.stack([*values, finite.astype(jnp.float32), jnp.isfinite(given).astype(jnp.float32)])

    return grad
