"""What both kinds of act have in common: the bound algorithm's programs, its params, and the lanes' keys."""

from __future__ import annotations

import jax
import numpy as np

from weft.core.keys import env_keys, fragment_key
from weft.core.types import Array, Tree
from weft.graph.algorithm import Algorithm
from weft.graph.graph import Graph
from weft.graph.loops import acted_schema
from weft.runtimes.compiled.replicas import Layout
from weft.runtimes.hosted.blocks import Block, block_schema
from weft.runtimes.hosted.programs import make_programs
from weft.runtimes.hosted.unroll_buffer import UnrollBuffer
from weft.runtimes.roles.unroll_writer import UnrollWriter
from weft.runtimes.workers.layout.blueprint import Blueprint, Lane
from weft.runtimes.workers.side import SideContext
from weft.runtimes.workers.weights import Weights
from weft.streams.channel import Reader


class Acting:
    """An algorithm ready to act on this process's device, for lanes of ``rows`` environments each."""

    def __init__(
        self,
        post: SideContext,
        algorithm: Algorithm,
        graph: Graph,
        blueprint: Blueprint,
        params: Reader,
        *,
        seed: int,
        each_step: bool,
    ) -> None:
        self.post, self.algorithm, self.blueprint, self.seed = post, algorithm, blueprint, seed
        self.lockstep = blueprint.lockstep
        layout = Layout((jax.local_devices()[0],))
        # In lockstep the params are the learner's own, which then finds the extras by itself, as in one process.
        self.programs = make_programs(algorithm, graph, layout, recalls=self.lockstep or not each_step)
        schema = jax.eval_shape(algorithm.init, jax.eval_shape(lambda: jax.random.key(0))).params
        self.weights = Weights(params, jax.tree.structure(schema))
        self.length = algorithm.unroll

    def keys_of(self, lane: Lane) -> Array:
        """``[rows]`` act's keys of a lane's environments: by their index, whoever acts for them."""
        indices = np.arange(lane.first, lane.first + lane.rows, dtype=np.int32)
        # Noise is drawn where the keys are. A host that feeds an accelerator step by step wants it here. In lockstep
        # learn draws the same again, and must get the same bits.
        device = jax.local_devices()[0] if self.lockstep else jax.local_devices(backend="cpu")[0]
        with jax.default_device(device):
            keys: Array = jax.jit(lambda i: env_keys(fragment_key(self.seed, "act"), i))(indices)
        placed: Array = jax.device_put(keys, device)
        return placed

    def start_carry(self, rows: int) -> Tree:
        """``[rows, ...]`` NumPy: what act remembers of environments that have just begun."""
        start = self.algorithm.initial_carry()
        return jax.tree.map(lambda x: np.broadcast_to(np.asarray(x), (rows, *np.shape(x))).copy(), start)

    def begin(self, outlet: UnrollWriter) -> UnrollBuffer | None:
        """Room for the outlet's next unroll, with params to make it: in lockstep of its own number, else the newest.

        None where either is not there yet; does not wait.
        """
        weights, lockstep = self.weights, self.lockstep
        weights.refresh()
        if weights.version < (outlet.sequence if lockstep else 0):
            return None
        if lockstep and outlet.sequence >= self.post.limit:
            return None
        buffer = outlet.reserve()
        if buffer is not None:
            weights.refresh()  # the slot came back after an update: take its params, and not those seen before
            outlet.begin(weights.version)
        return buffer


def unroll_block(algorithm: Algorithm, rows: int, *, extras: bool) -> Block:
    """The shapes of a lane's unroll."""
    params = jax.eval_shape(algorithm.init, jax.eval_shape(lambda: jax.random.key(0))).params
    acted = acted_schema(algorithm, params)
    return block_schema(algorithm.spec.environment, algorithm.unroll, rows, acted, extras=extras)


def sends_extras(algorithm: Algorithm, *, lockstep: bool, compiled: bool) -> bool:
    """Whether unrolls carry act's extras: not where learn finds them by itself, from its own params."""
    return compiled or not lockstep or bool(jax.tree.leaves(algorithm.initial_carry()))
