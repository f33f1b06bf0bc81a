"""The learn side of a worker: collects a batch, learns from it, publishes the params, tells the launcher.

Several learners are one program over all their devices: each eats its own lanes' unrolls, and gradients are averaged
by JAX's collectives.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np

from weft.core.keys import env_keys, fragment_key
from weft.core.types import Array, TrainState, Tree
from weft.graph.algorithm import Algorithm
from weft.graph.graph import Graph
from weft.runtimes.compiled.replicas import Layout, Spread
from weft.runtimes.hosted.blocks import Block
from weft.runtimes.hosted.programs import BLOCK_LIES, make_programs
from weft.runtimes.workers.collector import Collector
from weft.runtimes.workers.counting.account import OfRun
from weft.runtimes.workers.lane_checkpoint import from_words, to_words
from weft.runtimes.workers.side import SideContext
from weft.runtimes.workers.weights import publish
from weft.streams.channel import Message, Writer


class LearnSide:
    """One learner of ``layout.replicas``; ``run`` returns only by an exception.

    ``params`` is the writer of the first learner, None for the others.
    """

    def __init__(
        self,
        post: SideContext,
        algorithm: Algorithm,
        graph: Graph,
        layout: Layout,
        collector: Collector,
        schema: Block,
        params: Writer | None,
        *,
        seed: int,
        rank: int,
    ) -> None:
        self.post, self.layout, self.collector, self.params, self.rank = post, layout, collector, params, rank
        self.algorithm, self.schema, self.seed = algorithm, schema, seed
        self._structure = jax.tree.structure(schema)
        recalls = not schema.extras
        self._programs = make_programs(algorithm, graph, layout, recalls=recalls, pieces=collector.pieces)
        envs = algorithm.spec.envs
        indices = np.arange(rank * envs, (rank + 1) * envs, dtype=np.int32)
        self._keys: Array | None = None
        if recalls and self._programs.recalls:
            self._keys = jax.jit(lambda i: env_keys(fragment_key(seed, "act"), i))(indices)
            self._noise = make_programs(algorithm, graph, Layout((jax.local_devices()[0],))).noise
        self.train: TrainState | None = None
        self.fragments: tuple[Tree, ...] = ()
        self.version = 0
        post.saves = lambda: ({}, self.saved() if rank == 0 else []) if self.version >= post.limit else None

    def start(self, leaves: list[np.ndarray[Any, Any]] | None = None) -> None:
        """Begin from nothing, or from the leaves of a saved ``(train, fragments)``; publishes the params."""
        seed = np.int32(self.seed)
        indices: Any = np.arange(self.layout.replicas, dtype=np.int32)
        if self.layout.replicas > 1:
            indices = self._global(indices[self.rank : self.rank + 1], Spread.SPLIT)
        if leaves is None:
            self.train, self.fragments = self._programs.init(seed, indices)[:2]
        else:
            shapes = jax.eval_shape(self._programs.init, seed, indices)[:2]
            self.train, self.fragments = self._replicated(from_words(leaves, shapes))
        self.version = int(np.asarray(self.train.step))
        self._publish()

    def run(self) -> None:
        """Learn, for ever; raises Stopped at the run's end."""
        post = self.post
        while True:
            batch = None
            while batch is None:
                if self.version < post.limit:
                    batch = self.collector.collect(self.version)
                if batch is None:
                    post.wait()
            self._learn(batch)
            post.tick()

    def saved(self) -> list[np.ndarray[Any, Any]]:
        """The leaves of ``(train, fragments)``, keys as their words."""
        return to_words((self.train, self.fragments))

    def _learn(self, batch: list[Message]) -> None:
        assert self.train is not None
        began = time.perf_counter()
        blocks = tuple(jax.tree.unflatten(self._structure, message.arrays) for message in batch)
        noise = None
        if self._keys is not None:
            step = np.int32(self.version * self.algorithm.unroll + 1)
            noise = self._noise(self._keys, step)
        if self.layout.replicas > 1:
            blocks = self._spread_blocks(blocks)
            noise = jax.tree.map(lambda x: self._global(np.asarray(x), Spread.SPLIT_TIME), noise)
        train, fragments, metrics, ok = self._programs.learn_blocks(self.train, self.fragments, blocks, noise)
        figures = {name: float(np.asarray(value)) for name, value in metrics.items()}
        learned, rewards = bool(np.asarray(ok.learned)), bool(np.asarray(ok.rewards))
        jax.block_until_ready(train)
        self.train, self.fragments = train, fragments
        self.version += 1
        if learned:
            self._publish()
        self.collector.trained()  # not before: who gets a slot back begins its next unroll, with the newest params
        if self.rank == 0:
            lags, self.collector.lags = self.collector.lags, {}
            self.post.link.say(
                "learned",
                {
                    "version": self.version,
                    "metrics": figures,
                    "learned": learned,
                    "rewards": rewards,
                    "seconds": time.perf_counter() - began,
                    "lags": sorted(lags.items()),
                },
            )

    def _publish(self) -> None:
        assert self.train is not None
        if self.params is not None:
            publish(self.params, self.train.params, self.version)
            self.post.account.run[OfRun.VERSION] = self.version

    def _spread_blocks(self, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        lies = jax.tree.map(lambda s, t: jax.tree.map(lambda _: s, t), (BLOCK_LIES,) * len(blocks), blocks)
        spread: tuple[Block, ...] = jax.tree.map(self._global, blocks, lies)
        return spread

    def _global(self, mine: np.ndarray[Any, Any], lies: Spread) -> jax.Array:
        """This learner's part of an array that lies over all learners' devices."""
        whole: jax.Array = jax.make_array_from_process_local_data(self.layout.sharding(lies), mine)
        return whole

    def _replicated(self, tree: Tree) -> Tree:
        if self.layout.replicas == 1:
            return jax.device_put(tree, self.layout.devices[0])
        sharding = self.layout.sharding(Spread.SHARED)
        return jax.jit(lambda x: x, out_shardings=sharding)(tree)
