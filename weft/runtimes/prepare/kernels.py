"""What a run on a CPU is told where images take longer than they need to."""

from __future__ import annotations

from weft.runtimes.prepare.config import Prepared


def without_kernels(prepared: Prepared) -> list[str]:
    """A line to warn with where this machine's CPU convolves images without our kernels, and nobody asked for that."""
    import jax

    from weft.nets.encoders import has_image
    from weft.nets.native import library

    if jax.default_backend() != "cpu" or not has_image(prepared.source.spec.observation) or library.switched_off():
        return []
    why = library.trouble()
    return [f"images are convolved without Weft's kernels, which would be about three times as fast: {why}"] * bool(why)
