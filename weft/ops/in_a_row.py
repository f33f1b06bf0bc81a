"""How many steps of a loop are one after the other in its body."""

from __future__ import annotations

import jax


def in_a_row(length: int, most: int) -> int:
    """For ``jax.lax.scan``'s ``unroll``: on an accelerator the largest divisor of ``length`` up to ``most``, else 1.

    On a GPU each turn of a loop copies what it carries and counts, by kernels that take as long as those of a small
    network's steps. On a CPU it only takes longer to compile.
    """
    if jax.default_backend() == "cpu":
        return 1
    return max(k for k in range(1, min(most, max(length, 1)) + 1) if length % k == 0)
