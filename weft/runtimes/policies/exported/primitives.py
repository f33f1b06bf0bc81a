"""JAX's primitives in NumPy: what a policy's program is made of, one function each.

Each takes its arrays and its parameters, plain values as a program's JSON has them, and gives one array, or a list of
several. ``KNOWN`` has them by name; what it does not have cannot be exported as a program.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np


def _divide(x: Any, y: Any) -> Any:
    if x.dtype.kind == "f":
        return x / y
    return (np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y))).astype(x.dtype)  # towards zero


def _logistic(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def _polynomial(x: Any, factors: list[float]) -> Any:
    total = np.full_like(x, factors[0])
    for factor in factors[1:]:
        total = total * x + np.float32(factor)
    return total


def _erf_inv(x: Any) -> Any:
    """The inverse error function to single precision: M. Giles, Approximating the erfinv function, 2010."""
    w = -np.log1p(-x * x)
    small = [2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06]
    small += [0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941]
    large = [-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844]
    large += [0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682]
    near = _polynomial(w - np.float32(2.5), small)
    far = _polynomial(np.sqrt(np.maximum(w, 5)) - np.float32(3.0), large)
    return (np.where(w < 5, near, far) * x).astype(x.dtype)


def _erf(x: Any) -> Any:
    """The error function; to 1.2e-7 by a series of Numerical Recipes (erfc, Chebyshev fitting)."""
    z = np.abs(x).astype(np.float64)
    t = 1.0 / (1.0 + 0.5 * z)
    total = np.zeros_like(t)
    for factor in (0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196):
        total = total * t + factor
    tail = t * np.exp(-z * z - 1.26551223 + t * (1.00002368 + t * total))
    return (np.sign(x) * (1.0 - tail)).astype(x.dtype)


def _select_n(which: Any, *cases: Any) -> Any:
    if len(cases) == 2:
        return np.where(which, cases[1], cases[0])
    return np.choose(which, cases)


def _broadcast_in_dim(x: Any, *, shape: list[int], broadcast_dimensions: list[int]) -> Any:
    wide = [1] * len(shape)
    for axis, at in enumerate(broadcast_dimensions):
        wide[at] = x.shape[axis]
    return np.broadcast_to(x.reshape(wide), shape)


def _pad(x: Any, value: Any, *, padding_config: list[list[int]]) -> Any:
    size = [
        n + low + high + max(n - 1, 0) * inner for n, (low, high, inner) in zip(x.shape, padding_config, strict=True)
    ]
    room = [
        n + max(low, 0) + max(high, 0) + max(n - 1, 0) * i
        for n, (low, high, i) in zip(x.shape, padding_config, strict=True)
    ]
    out = np.full(room, value, x.dtype)
    places = tuple(
        slice(max(low, 0), max(low, 0) + n + max(n - 1, 0) * inner, inner + 1)
        for n, (low, _, inner) in zip(x.shape, padding_config, strict=True)
    )
    out[places] = x
    starts = [max(-low, 0) for low, _, _ in padding_config]
    return out[tuple(slice(start, start + n) for start, n in zip(starts, size, strict=True))]


def _dot_general(x: Any, y: Any, *, dimension_numbers: Any, dtype: str) -> Any:
    (contract_x, contract_y), (batch_x, batch_y) = dimension_numbers
    free_x = [a for a in range(x.ndim) if a not in contract_x and a not in batch_x]
    free_y = [a for a in range(y.ndim) if a not in contract_y and a not in batch_y]
    shape = [x.shape[a] for a in (*batch_x, *free_x)] + [y.shape[a] for a in free_y]
    lead, inner = [x.shape[a] for a in batch_x], prod(x.shape[a] for a in contract_x)
    left = x.transpose(*batch_x, *free_x, *contract_x).reshape(*lead, -1 if x.size else 0, inner)
    right = y.transpose(*batch_y, *contract_y, *free_y).reshape(*lead, inner, -1 if y.size else 0)
    return np.matmul(left, right).reshape(shape).astype(dtype, copy=False)


def _windows(x: Any, sizes: list[int], strides: list[int], dilation: list[int]) -> Any:
    """``[..., out..., window...]`` views of the last ``len(sizes)`` axes."""
    axes = tuple(range(x.ndim - len(sizes), x.ndim))
    reach = tuple((n - 1) * step + 1 for n, step in zip(sizes, dilation, strict=True))
    views: Any = np.lib.stride_tricks.sliding_window_view(x, reach, axes)
    every = tuple(slice(None, None, step) for step in strides) + tuple(slice(None, None, step) for step in dilation)
    return views[(..., *every)]


def _convolve(
    x: Any,
    kernel: Any,
    *,
    window_strides: list[int],
    padding: list[list[int]],
    lhs_dilation: list[int],
    rhs_dilation: list[int],
    specs: list[list[int]],
    feature_group_count: int,
    dtype: str,
) -> Any:
    """``specs`` say where batch, features and the axes of space lie in the image, the kernel and the result."""
    image, weights = x.transpose(specs[0]), kernel.transpose(specs[1])  # [B, C, ...], [out, in, ...]
    spread = [[low, high, step - 1] for (low, high), step in zip(padding, lhs_dilation, strict=True)]
    image = _pad(image, np.zeros((), x.dtype), padding_config=[[0, 0, 0], [0, 0, 0], *spread])
    space = list(range(2, x.ndim))
    views = _windows(image, list(weights.shape[2:]), window_strides, rhs_dilation)  # [B, C, out..., window...]
    parts, size = [], weights.shape[1]
    for group, some in enumerate(np.split(weights, feature_group_count)):
        seen = views[:, group * size : (group + 1) * size]
        within = [a + len(space) for a in space]
        parts.append(np.tensordot(seen, some, ([1, *within], [1, *space])))  # [B, out..., features]
    out = np.moveaxis(np.concatenate(parts, -1), -1, 1)
    return out.transpose(np.argsort(specs[2])).astype(dtype, copy=False)


def _pooled(reduce: Any, start: Any) -> Callable[..., Any]:
    def pool(
        x: Any,
        *,
        window_dimensions: list[int],
        window_strides: list[int],
        padding: list[list[int]],
        base_dilation: list[int],
        window_dilation: list[int],
    ) -> Any:
        edge = np.asarray(start if x.dtype.kind == "f" or start == 0 else np.iinfo(x.dtype).min, x.dtype)
        spread = [[low, high, step - 1] for (low, high), step in zip(padding, base_dilation, strict=True)]
        image = _pad(x, edge, padding_config=spread)
        views = _windows(image, window_dimensions, window_strides, window_dilation)
        return reduce(views, axis=tuple(range(x.ndim, 2 * x.ndim)))

    return pool


def _gather(x: Any, indices: Any, *, numbers: dict[str, list[int]], slice_sizes: list[int], mode: str) -> Any:
    """As XLA has it: slices of ``x`` that begin where ``indices`` say, brought inside; or NaN where mode is fill."""
    starts, batches = indices.shape[:-1], numbers["operand_batching_dims"]
    gone = [*numbers["collapsed_slice_dims"], *batches]
    kept = [axis for axis in range(x.ndim) if axis not in gone]
    rank = len(starts) + len(kept)
    lead = [axis for axis in range(rank) if axis not in numbers["offset_dims"]]  # of the result: those of ``indices``
    at: list[Any] = [np.zeros([1] * rank, np.int64) for _ in range(x.ndim)]
    outside: Any = np.zeros([1] * rank, np.bool_)
    for column, axis in enumerate(numbers["start_index_map"]):
        shape = [1] * rank
        for place, n in zip(lead, starts, strict=True):
            shape[place] = n
        begin, most = indices[..., column].astype(np.int64).reshape(shape), x.shape[axis] - slice_sizes[axis]
        outside = outside | (begin < 0) | (begin > most)
        at[axis] = at[axis] + np.clip(begin, 0, most)
    for axis, source in zip(batches, numbers["start_indices_batching_dims"], strict=True):
        at[axis] = at[axis] + _along(lead[source], x.shape[axis], rank)
    for axis, place in zip(kept, numbers["offset_dims"], strict=True):
        at[axis] = at[axis] + _along(place, slice_sizes[axis], rank)
    found = x[tuple(at)] if x.ndim else np.broadcast_to(x, [1] * rank)
    if mode != "fill" or not outside.any():
        return found
    fill: Any = np.nan if x.dtype.kind == "f" else (np.iinfo(x.dtype).min if x.dtype.kind == "i" else 0)
    return np.where(outside, np.asarray(fill, x.dtype), found)


def _along(axis: int, n: int, rank: int) -> Any:
    shape = [1] * rank
    shape[axis] = n
    return np.arange(n).reshape(shape)


def _dynamic_slice(x: Any, *starts: Any, slice_sizes: list[int]) -> Any:
    begin = [int(np.clip(s, 0, n - size)) for s, n, size in zip(starts, x.shape, slice_sizes, strict=True)]
    return x[tuple(slice(b, b + size) for b, size in zip(begin, slice_sizes, strict=True))]


def _dynamic_update_slice(x: Any, new: Any, *starts: Any) -> Any:
    begin = [int(np.clip(s, 0, n - size)) for s, n, size in zip(starts, x.shape, new.shape, strict=True)]
    out = np.array(x)
    out[tuple(slice(b, b + size) for b, size in zip(begin, new.shape, strict=True))] = new
    return out


def _sort(*arrays: Any, dimension: int, num_keys: int) -> list[Any]:
    order = np.lexsort(tuple(reversed(arrays[:num_keys])), axis=dimension)
    return [np.take_along_axis(x, order, dimension) for x in arrays]


def _cumulative(of: Any) -> Callable[..., Any]:
    def run(x: Any, *, axis: int, reverse: bool) -> Any:
        turned = np.flip(x, axis) if reverse else x
        out = of.accumulate(turned, axis=axis, dtype=x.dtype)
        return np.flip(out, axis) if reverse else out

    return run


def _argument(of: Any) -> Callable[..., Any]:
    return lambda x, *, axes, index_dtype: of(x, axis=axes[0]).astype(index_dtype)


def _reduced(of: Any) -> Callable[..., Any]:
    return lambda x, *, axes: of.reduce(x, axis=tuple(axes), dtype=x.dtype)


KNOWN: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("tanh", "exp", "exp2", "log", "log1p", "expm1", "sin", "cos", "tan")},
    **{name: getattr(np, name) for name in ("sinh", "cosh", "sqrt", "cbrt", "abs", "sign", "floor", "ceil", "square")},
    "neg": np.negative,
    "logistic": _logistic,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "erf": _erf,
    "erf_inv": _erf_inv,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "round": lambda x, *, to_even: np.rint(x) if to_even else np.trunc(x + np.copysign(0.5, x)),
    "is_finite": np.isfinite,
    "not": lambda x: ~x,
    "integer_pow": lambda x, *, y: x**y,
    "convert_element_type": lambda x, *, new_dtype: x.astype(new_dtype),
    "bitcast_convert_type": lambda x, *, new_dtype: np.ascontiguousarray(x).view(new_dtype),
    **dict.fromkeys(("copy", "copy_p", "stop_gradient", "reduce_precision", "optimization_barrier"), lambda x: x),
    **dict.fromkeys(("add", "add_any"), np.add),
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "rem": np.fmod,
    "max": np.maximum,
    "min": np.minimum,
    "pow": np.power,
    "nextafter": np.nextafter,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "shift_left": np.left_shift,
    **dict.fromkeys(("shift_right_logical", "shift_right_arithmetic"), np.right_shift),  # of unsigned, and of signed
    "select_n": _select_n,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": lambda x, *, new_sizes: x.reshape(new_sizes),
    "squeeze": lambda x, *, dimensions: x.squeeze(tuple(dimensions)),
    "expand_dims": lambda x, *, dimensions: np.expand_dims(x, tuple(dimensions)),
    "transpose": lambda x, *, permutation: x.transpose(permutation),
    "rev": lambda x, *, dimensions: np.flip(x, tuple(dimensions)),
    "concatenate": lambda *x, dimension: np.concatenate(x, dimension),
    "stack": lambda *x, axis: np.stack(x, axis),
    "unstack": lambda x, *, axis: list(np.moveaxis(x, axis, 0)),
    "slice": lambda x, *, places: x[tuple(slice(*place) for place in places)],
    "split": lambda x, *, sizes, axis: np.split(x, np.cumsum(sizes)[:-1].tolist(), axis),
    "pad": _pad,
    "iota": lambda *, dtype, shape, dimension: np.broadcast_to(
        _along(dimension, shape[dimension], len(shape)).astype(dtype), shape
    ),
    "gather": _gather,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "sort": _sort,
    "cumsum": _cumulative(np.add),
    "cumprod": _cumulative(np.multiply),
    "cummax": _cumulative(np.maximum),
    "cummin": _cumulative(np.minimum),
    "argmax": _argument(np.argmax),
    "argmin": _argument(np.argmin),
    "reduce_sum": _reduced(np.add),
    "reduce_prod": _reduced(np.multiply),
    "reduce_max": _reduced(np.maximum),
    "reduce_min": _reduced(np.minimum),
    "reduce_and": _reduced(np.logical_and),
    "reduce_or": _reduced(np.logical_or),
    "dot_general": _dot_general,
    "conv_general_dilated": _convolve,
    "reduce_window_max": _pooled(np.max, -np.inf),
    "reduce_window_sum": _pooled(np.sum, 0),
}
