"""What every side that acts has: an act's programs on this process's device, its params, its keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import numpy as np

from weft.core.keys import env_keys, fragment_key
from weft.core.types import Array, Tree
from weft.runtimes.compiled.replicas import Layout
from weft.runtimes.compiled.rollout import Actor
from weft.runtimes.hosted.programs import act_programs, worth_recalling
from weft.runtimes.hosted.unroll_buffer import UnrollBuffer
from weft.runtimes.workers.layout.blueprint import Lane, Side
from weft.runtimes.workers.unroll_writer import UnrollWriter

if TYPE_CHECKING:
    from weft.runtimes.workers.wiring import Task


class ActingContext:
    """An act ready to act on this process's device."""

    def __init__(self, task: Task, side: Side, actor: Actor, *, each_step: bool) -> None:
        self.actor, self.algorithm, self.synchrony = actor, actor.algorithm, task.blueprint.synchrony
        self.context, self._seed = task.context(side), task.seed
        # Where an unroll has one version of the params, its extras can be found for all of it at once. In lockstep they
        # are: the numbers must not depend on how many environments an act has.
        recalls = self.synchrony.one_params or (not each_step and worth_recalling(actor.algorithm))
        self.programs = act_programs(actor.algorithm, Layout((jax.local_devices()[0],)), recalls=recalls)
        self.weights = task.weights(side, actor.name)

    def keys_of(self, lane: Lane) -> Array:
        """``[rows]`` act's keys of a lane's environments: by their index, wherever they are acted for."""
        indices = np.arange(lane.first, lane.first + lane.rows, dtype=np.int32)
        # Noise is drawn where the keys are. A host that feeds an accelerator step by step wants it here. Where learn
        # draws the same again, it must get the same bits.
        device = jax.local_devices()[0] if self.synchrony.one_params else jax.local_devices(backend="cpu")[0]
        with jax.default_device(device):
            keys: Array = jax.jit(lambda i: env_keys(fragment_key(self._seed, self.actor.name), i))(indices)
        placed: Array = jax.device_put(keys, device)
        return placed

    def start_carry(self, rows: int) -> Tree:
        """``[rows, ...]`` NumPy: what act remembers of environments that have just begun."""
        start = self.algorithm.initial_carry()
        return jax.tree.map(lambda x: np.broadcast_to(np.asarray(x), (rows, *np.shape(x))).copy(), start)

    def begin_with(self, writer: UnrollWriter) -> Callable[[], UnrollBuffer | None]:
        """Asks for room and params for a wire's next unroll; gives None where either is not there yet."""
        return lambda: writer.begin_unroll(self.weights, self.synchrony, self.context)
