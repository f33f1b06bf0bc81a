"""A step's call of act, handed only what it reads.

Around a host environment act is called for every step, and what it computes takes less time than the call: each array
that is handed over must be looked at, and a NumPy array made the device's. Act is given all params and the whole
timestep, and mostly reads the observation and half of the params (not a critic's). So the runtime looks at the
traced function once, and leaves out the rest. On a CPU, small params go over as one array: a call with eight arguments
takes half as long again as one with three. (What comes back costs too: a record with one array in it takes microseconds
more than the array.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import compress
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from weft.core.types import Array, Timestep, Tree
from weft.runtimes.compiled.replicas import Layout, Spread
from weft.runtimes.hosted.pinned import fetched, shapes_of_pinned
from weft.runtimes.loop.engine import is_key

MAX_IN_ONE = 2**18
"""Numbers in params that are handed over as one array: those of large networks would be copied for nothing."""


class ActCall:
    """``function(params, carry, timestep, noise)`` for a batch, compiled for a layout, without what it does not read.

    The rest are examples (``ShapeDtypeStruct``) of what it takes, for a batch of one; ``gives`` says how the results
    lie. Traced when first asked for anything.
    """

    def __init__(
        self,
        function: Callable[..., Tree],
        layout: Layout,
        gives: Tree,
        params: Tree,
        carry: Tree,
        timestep: Timestep,
        noise: Tree,
    ) -> None:
        self._function, self._layout, self._gives = function, layout, gives
        self._params, self._carry, self._timestep, self._noise = params, carry, timestep, noise

    def params(self, leaves: Iterable[Array]) -> tuple[Array, ...]:
        """What is to be handed over for all leaves of the params, in their order; costs a call where it is one array.

        So ask for it once for each version of them.
        """
        read = self.params_read(leaves)
        return (self._in_one(read),) if self._as_one else read

    def params_read(self, leaves: Iterable[Array]) -> tuple[Array, ...]:
        """Of all leaves of the params, in their order, those that are read."""
        return tuple(compress(leaves, self._reads[0]))

    def seen(self, timestep: Timestep) -> tuple[Array, ...]:
        """The leaves of a timestep that are handed over, ``[B, ...]`` or ``[K, B, ...]``."""
        return tuple(compress(jax.tree.leaves(timestep), self._reads[1]))

    def takes(self, rows: int) -> tuple[tuple[Any, ...], Tree, tuple[Any, ...], Tree]:
        """The shapes of what ``call`` takes for a batch of ``rows``."""

        def widened(tree: Tree) -> Tree:
            return jax.tree.map(lambda s: jax.ShapeDtypeStruct((rows, *s.shape[1:]), s.dtype), tree)

        params = self.params_read(jax.tree.leaves(self._params))
        if self._as_one:
            params = (jax.eval_shape(_joined, params),)
        return params, widened(self._carry), self.seen(widened(self._timestep)), widened(self._noise)

    def observation_places(self) -> tuple[list[int], Any]:
        """Which of ``seen(...)`` are the observation's leaves, in order, and its structure.

        Raises ValueError where it does not read all of them.
        """
        names = jax.tree.unflatten(jax.tree.structure(self._timestep), range(len(jax.tree.leaves(self._timestep))))
        wanted, structure = jax.tree.flatten(names.observation)
        return [self.seen(names).index(name) for name in wanted], structure

    def compile(self, rows: int) -> None:
        """Compile ``call`` for a batch of ``rows`` of arrays that are nowhere in particular; blocks. For any thread."""
        self.call.lower(*self.takes(rows)).compile()

    def compile_pinned(self, rows: int) -> None:
        """As ``compile``, of ``call_pinned``."""
        params, *rest = self.takes(rows)
        self.call_pinned.lower(params, *shapes_of_pinned(rest, self._layout.devices[0])).compile()

    @cached_property
    def call_pinned(self) -> Any:
        """As ``call``, where all but the params lie in pinned memory."""
        device = self._layout.devices[0]
        return jax.jit(lambda params, *rest: self.call(params, *fetched(rest, device)))

    @cached_property
    def call(self) -> Any:
        """The compiled function of ``params(...)``, the carry, ``seen(...)`` and the noise."""
        params, timestep = jax.tree.flatten(self._params), jax.tree.flatten(self._timestep)

        def lean(given: tuple[Array, ...], carry: Tree, seen: tuple[Array, ...], noise: Tree) -> Tree:
            batch = seen[0].shape[0]
            if self._as_one:
                given = _parted(given[0], self.params_read(params[0]))
            whole = [jnp.zeros((batch, *like.shape[1:]), like.dtype) for like in timestep[0]]
            return self._function(
                jax.tree.unflatten(params[1], _filled(map(_nothing, params[0]), self._reads[0], given)),
                carry,
                jax.tree.unflatten(timestep[1], _filled(whole, self._reads[1], seen)),
                noise,
            )

        return self._layout.wrap(lean, (Spread.SHARED, Spread.SPLIT, Spread.SPLIT, Spread.SPLIT), self._gives)

    @cached_property
    def _as_one(self) -> bool:
        """Whether the params that are read go over as one array."""
        read = self.params_read(jax.tree.leaves(self._params))
        small = sum(leaf.size for leaf in read) <= MAX_IN_ONE and all(leaf.dtype == jnp.float32 for leaf in read)
        return small and len(read) > 1 and self._layout.devices[0].platform == "cpu"

    @cached_property
    def _in_one(self) -> Callable[[tuple[Array, ...]], Array]:
        return self._layout.wrap(_joined, (Spread.SHARED,), Spread.SHARED)

    @cached_property
    def _reads(self) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
        """Which leaves of the params and of the timestep it reads; of the timestep, at least one is handed over."""
        arguments = self._params, self._carry, self._timestep, self._noise
        read = iter(_read(jax.make_jaxpr(self._function)(*arguments).jaxpr))
        params, _, timestep, _ = (
            tuple(next(read) or is_key(leaf) for leaf in jax.tree.leaves(tree)) for tree in arguments
        )
        return params, timestep if any(timestep) else (True, *timestep[1:])


def _joined(leaves: tuple[Array, ...]) -> Array:
    """``[n]``: all leaves, one after the other."""
    return jnp.concatenate([jnp.ravel(leaf) for leaf in leaves])


def _parted(joined: Array, likes: tuple[Array, ...]) -> tuple[Array, ...]:
    """The leaves again."""
    parts, at = [], 0
    for like in likes:
        parts.append(joined[at : at + like.size].reshape(like.shape))
        at += like.size
    return tuple(parts)


def _read(jaxpr: Any) -> list[bool]:
    """For each input of a jaxpr whether anything that it gives, or does, depends on it. Does not look into calls."""
    needed = {id(var) for var in jaxpr.outvars if not isinstance(var, Literal)}
    for equation in reversed(jaxpr.eqns):
        if equation.effects or any(id(var) in needed for var in equation.outvars):
            needed |= {id(var) for var in equation.invars if not isinstance(var, Literal)}
    return [id(var) in needed for var in jaxpr.invars]


def _filled(whole: Iterable[Array], reads: tuple[bool, ...], given: tuple[Array, ...]) -> list[Array]:
    """``whole`` with what was ``given`` in its places."""
    coming = iter(given)
    return [next(coming) if read else other for other, read in zip(whole, reads, strict=True)]


def _nothing(like: jax.ShapeDtypeStruct) -> Array:
    """Stands for what is not read."""
    return jnp.zeros(like.shape, like.dtype)
