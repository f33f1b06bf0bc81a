"""A border within a program that XLA does not compile across, so that parts of it are compiled as they are elsewhere.

The last bit of a power, of a division or of a product and a sum depends on what it is compiled together with. A store
and its learner are one program in one process, and two where each has a worker: both must come to the same bits.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from weft.core.types import Array, Tree


def bordered(tree: Tree) -> Tree:
    """The same numbers, which lie in memory: what makes them and what reads them are compiled apart.

    By a loop, since XLA takes barriers out on a CPU before it joins what is left. Two turns, since one would be no loop
    to it; it does not see that each of them changes nothing. Elsewhere there is no border: only on a CPU are there
    workers to be equal to, and each array that is written for a reader is a kernel more.
    """

    def turn(number: Array, now: Tree) -> Tree:
        return jax.tree.map(lambda x: jnp.where(number < 2, x, jnp.zeros_like(x)), now)

    def loop(tree: Tree) -> Tree:
        return jax.lax.fori_loop(0, 2, turn, tree)

    return jax.lax.platform_dependent(tree, cpu=loop, default=lambda tree: tree)
