"""Observations that stay on the device where act was given them, for a learner in the same process.

Act's batches are written into an array ``[lanes, T + 1, rows, ...]`` on the device by the same program that acts. When
a lane's unroll is complete its part is cut out and left for learn (``Left``), which then does not fetch it from the
host again. What is in the channel is complete all the same: where nothing was left for it (it was made before this
process began), learn takes it from there.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weft.core.types import Tree
from weft.runtimes.hosted.act_call import ActCall
from weft.runtimes.hosted.pinned import fetched, shapes_of_pinned

Numbers = np.ndarray[Any, np.dtype[np.int32]]


class Resident:
    """Acts for ``lanes`` lanes of ``rows`` environments, and keeps what they observe; ``length`` is T.

    ``pins``: the device whose pinned memory the carry, what is seen and the noise lie in; None: they are handed over.
    """

    def __init__(self, act: ActCall, lanes: int, rows: int, length: int, pins: Any | None = None) -> None:
        self._act, self._lanes, self._rows, self._pins = act, lanes, rows, pins
        self._places, self._structure = act.observation_places()
        sees = act.takes(rows)[2]
        self._kept: list[Any] = [
            jnp.zeros((lanes, length + 1, *sees[place].shape), sees[place].dtype) for place in self._places
        ]
        self._call: Any = jax.jit(self._act_and_keep, donate_argnums=0)
        self._cut: Any = jax.jit(lambda kept, lane: [jax.lax.dynamic_index_in_dim(k, lane, 0, False) for k in kept])

    def compile(self, size: int) -> None:
        """Compile for a batch of ``size`` lanes; blocks. For any thread."""
        shapes = [jax.ShapeDtypeStruct(k.shape, k.dtype) for k in self._kept]
        where = jax.ShapeDtypeStruct((size,), np.int32)
        params, *rest = self._act.takes(size * self._rows)
        if self._pins is not None:
            rest = shapes_of_pinned(rest, self._pins)
        self._call.lower(shapes, params, *rest, where, where).compile()

    def call(
        self, params: Any, carry: Tree, seen: tuple[Any, ...], noise: Tree, lanes: Numbers, steps: Numbers
    ) -> Tree:
        """As ``ActCall.call``; place j of the batch is step ``steps[j]`` of lane ``lanes[j]``, or padding."""
        gave, self._kept = self._call(self._kept, params, carry, seen, noise, lanes, steps)
        return gave

    def where(self, work: list[tuple[int, int]], size: int) -> tuple[Numbers, Numbers]:
        """The last two arguments of ``call`` for some lanes and their steps, padded to ``size``."""
        lanes, steps = np.full(size, self._lanes, np.int32), np.zeros(size, np.int32)
        for j, (lane, step) in enumerate(work):
            lanes[j], steps[j] = lane, step
        return lanes, steps

    def observation(self, lane: int) -> Tree:
        """``[T + 1, rows, ...]`` of a lane, as it is on the device now. Does not wait."""
        return jax.tree.unflatten(self._structure, self._cut(self._kept, np.int32(lane)))

    def _act_and_keep(
        self, kept: list[Any], params: Any, carry: Tree, seen: tuple[Any, ...], noise: Tree, lanes: Any, steps: Any
    ) -> tuple[Tree, list[Any]]:
        if self._pins is not None:
            carry, seen, noise = fetched((carry, seen, noise), self._pins)
        after = []
        for whole, place in zip(kept, self._places, strict=True):
            came = seen[place].reshape(len(lanes), *whole.shape[2:])
            after.append(whole.at[lanes, steps].set(came, mode="drop"))  # padding is beyond the last lane
        return self._act.call(params, carry, seen, noise), after
