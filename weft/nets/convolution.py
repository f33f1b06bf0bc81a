"""Convolutions that are fast on CPUs and on accelerators, with one set of weights.

XLA's convolutions are slow on a CPU, so there the image is cut into patches that a matrix product multiplies. Patches
are several times as large as the image: those of a whole batch do not fit into a cache, so that a batch is convolved a
few images at a time. On an accelerator XLA's convolution is used. All compute the same sums, in a different order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

IMAGES = 8
"""That a CPU convolves at a time: their patches fit into a core's cache."""
Way = Literal["xla", "patches", "rows"]


class Convolution(nn.Module):
    """The weights of ``features`` square filters of ``size``: called with a number of channels, (kernel, bias)."""

    features: int
    size: int

    @nn.compact
    def __call__(self, channels: int) -> tuple[jax.Array, jax.Array]:
        """``[size, size, channels, features]`` and ``[features]``."""
        shape = (self.size, self.size, channels, self.features)
        kernel = self.param("kernel", nn.initializers.orthogonal(np.sqrt(2)), shape)
        return kernel, self.param("bias", nn.initializers.zeros, (self.features,))


def in_parts(function: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    """``function`` of ``[N, ...]``, which knows no other rows than its own, ``IMAGES`` rows at a time.

    For its derivative what matrix products gave is kept, and the patches are cut again: to keep them too takes longer.
    """
    count = x.shape[0] // IMAGES * IMAGES
    parts = []
    if count:
        kept = jax.checkpoint(function, policy=jax.checkpoint_policies.dots_saveable)
        done = jax.lax.map(kept, x[:count].reshape((-1, IMAGES, *x.shape[1:])))
        parts.append(done.reshape((count, *done.shape[2:])))
    if count < x.shape[0]:
        parts.append(function(x[count:]))
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


def convolve(x: jax.Array, kernel: jax.Array, stride: int, way: Way) -> jax.Array:
    """``[N, H, W, C]`` by ``[size, size, C, features]``, without padding.

    By "patches" there is one product of all of them. By "rows", each row of the kernel has patches of its own and a
    product of its own, which are summed: less is copied, which is faster for a few images, and slower for many.
    """
    if way == "xla":
        return jax.lax.conv_general_dilated(
            x, kernel, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
    size, _, channels, features = kernel.shape
    if stride > 1 and size % stride == 0:
        # Each stride-by-stride square of pixels becomes one pixel with more channels; then the stride is 1.
        rows, columns = ((n - size) // stride * stride + size for n in x.shape[1:3])
        blocks = size // stride
        x = x[:, :rows, :columns].reshape(-1, rows // stride, stride, columns // stride, stride, channels)
        x = x.transpose(0, 1, 3, 2, 4, 5).reshape(-1, rows // stride, columns // stride, stride * stride * channels)
        kernel = kernel.reshape(blocks, stride, blocks, stride, channels, features)
        kernel = kernel.transpose(0, 2, 1, 3, 4, 5).reshape(blocks, blocks, -1, features)
        size, stride = blocks, 1
    rows, columns = ((n - size) // stride + 1 for n in x.shape[1:3])
    down = [slice(i, i + (rows - 1) * stride + 1, stride) for i in range(size)]
    across = [slice(j, j + (columns - 1) * stride + 1, stride) for j in range(size)]
    if way == "patches":
        patches = [x[:, i, j] for i in down for j in across]
        return jnp.concatenate(patches, axis=-1) @ kernel.reshape(-1, features)
    wide = jnp.concatenate([x[:, :, j] for j in across], axis=-1)
    products = [wide[:, i] @ kernel[k].reshape(-1, features) for k, i in enumerate(down)]
    return sum(products[1:], products[0])
