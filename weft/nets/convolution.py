"""A convolution that is fast on CPUs and on accelerators, with one set of weights.

XLA's convolutions are slow on a CPU, so there the image is cut into patches that one matrix product multiplies. On an
accelerator XLA's convolution is used. Both compute the same sums, in a different order.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np


class Convolution(nn.Module):
    """``features`` square filters of ``size``, every ``stride`` pixels, without padding.

    It takes ``[N, H, W, C]`` and gives ``[N, H', W', features]``.
    """

    features: int
    size: int
    stride: int = 1

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Convolve and add a bias."""
        shape = (self.size, self.size, x.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.orthogonal(np.sqrt(2)), shape)
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        return convolve(x, kernel, self.stride, by_patches=jax.default_backend() == "cpu") + bias


def convolve(x: jax.Array, kernel: jax.Array, stride: int, *, by_patches: bool) -> jax.Array:
    """``[N, H, W, C]`` by ``[size, size, C, features]``, without padding."""
    if not by_patches:
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
    patches = [
        x[:, i : i + (rows - 1) * stride + 1 : stride, j : j + (columns - 1) * stride + 1 : stride]
        for i in range(size)
        for j in range(size)
    ]
    return jnp.concatenate(patches, axis=-1) @ kernel.reshape(-1, features)
