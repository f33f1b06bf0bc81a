"""Gymnasium's spaces as Weft's, and policies' actions as the environment wants them.

Weft's spaces are plainer: a ``Discrete`` starts at 0, a ``MultiDiscrete`` and a ``MultiBinary`` have one axis, float64
becomes float32, and observations in 64-bit integers become 32-bit ones. What was changed here is undone by the action
converters below, and by ``observations.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np

from weft.core.errors import ConfigError
from weft.core.specs import Box, Discrete, EnvSpec, MultiBinary, MultiDiscrete, Space, SpaceTree

NDArray: TypeAlias = np.ndarray[Any, Any]
BatchConverter: TypeAlias = Callable[[NDArray], NDArray]
"""Policies' actions ``[B, ...]`` to a fresh array ``[B, *native shape]`` in the environment's units and dtype."""

NARROWED = {"int64": "int32", "uint64": "uint32"}
"""Integer dtypes that JAX holds in 32 bits: observations of them are kept so, and each value is checked to fit."""

OBSERVATIONS = "Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple"
ACTIONS = "Discrete, MultiDiscrete, MultiBinary and Box"


def observation_spec(space: gym.Space[Any], name: str, path: str = "observation") -> SpaceTree:
    """The space tree of an observation space; ``name`` and ``path`` are for the error."""
    match space:
        case gym.spaces.Dict():
            if not space.spaces:
                raise ConfigError(f"environment {name!r}: {path} is an empty Dict: there is nothing to observe.")
            kept = {k: s for k, s in space.spaces.items() if not is_text(s)}
            if not kept:
                raise ConfigError(f"environment {name!r}: {path} is only text, which Weft leaves out.")
            # Sorted, as JAX sorts them: buffers that went through JAX have their leaves in the same order.
            return {k: observation_spec(s, name, f"{path}[{k!r}]") for k, s in sorted(kept.items())}
        case gym.spaces.Tuple():
            if not space.spaces:
                raise ConfigError(f"environment {name!r}: {path} is an empty Tuple: there is nothing to observe.")
            return tuple(observation_spec(s, name, f"{path}[{i}]") for i, s in enumerate(space.spaces))
    flat = _flat_spec(space)
    if flat is None:
        raise _unsupported(name, path, space, OBSERVATIONS)
    if 0 in flat.shape:
        raise ConfigError(f"environment {name!r}: {path} has shape {list(flat.shape)}: there is nothing to observe.")
    if isinstance(flat, Box) and flat.dtype in NARROWED:
        dtype = NARROWED[flat.dtype]
        limits = np.iinfo(dtype)
        low, high = (np.clip(bound, limits.min, limits.max) for bound in (flat.low, flat.high))
        return Box(flat.shape, dtype, _bound(low, dtype), _bound(high, dtype))
    most = max(flat.nvec, default=0) if isinstance(flat, MultiDiscrete) else getattr(flat, "n", 0)
    if most > 2**31:
        raise ConfigError(
            f"environment {name!r}: {path} has {most} choices, and JAX holds integers below 2**31. Give a Box of "
            "several smaller numbers instead."
        )
    return flat


def is_text(space: gym.Space[Any]) -> bool:
    """Whether a space is of strings (Gymnasium's Text, MiniGrid's missions): within a Dict it is left out."""
    return space.dtype is not None and np.dtype(space.dtype).kind == "U"


def text_parts(space: gym.Space[Any], path: str = "observation") -> tuple[str, ...]:
    """The parts of an observation space that ``observation_spec`` leaves out."""
    if not isinstance(space, gym.spaces.Dict):
        return ()
    parts = ((f"{path}[{k!r}]", s) for k, s in sorted(space.spaces.items()))
    return tuple(text for part, s in parts for text in ([part] if is_text(s) else text_parts(s, part)))


def action_spec(space: gym.Space[Any], name: str) -> Space:
    """The action space in the environment's own units (``EnvSpec.native_action``)."""
    spec = _flat_spec(space)
    if spec is None:
        raise _unsupported(name, "action", space, ACTIONS)
    return spec


def native_layout(space: gym.Space[Any]) -> tuple[Any, tuple[int, ...] | None]:
    """What parts the environment's discrete actions from policies': where they start, and their axes if not one."""
    start: Any = getattr(space, "start", 0)
    start = np.asarray(start).tolist() if np.any(start) else 0
    several = isinstance(space, gym.spaces.MultiDiscrete | gym.spaces.MultiBinary) and len(space.shape) != 1
    return start, tuple(space.shape) if several and space.shape is not None else None


def batch_converter(space: gym.Space[Any], spec: EnvSpec) -> BatchConverter:
    """How to turn a batch of policies' actions into the environment's; equal to ``spec.to_native``, but lean."""
    match space:
        case gym.spaces.Discrete():
            return _integers((), space.start, space.dtype)
        case gym.spaces.MultiDiscrete():
            return _integers(space.nvec.shape, space.start, space.dtype)
        case gym.spaces.MultiBinary():
            return _integers(space.shape, 0, space.dtype)
        case gym.spaces.Box():
            return _stretched(spec)
    raise _unsupported(spec.name, "action", space, ACTIONS)


def scalar_converter(space: gym.spaces.Discrete) -> Callable[[NDArray], list[Any]]:
    """How to turn a batch of policies' choices ([B]) into B NumPy integers, as the space's own ``sample`` gives them.

    Gymnasium's environments check their actions, and are quicker with these than with Python's integers.
    """
    start, dtype = int(space.start), space.dtype
    return (
        (lambda action: list((action + start).astype(dtype))) if start else (lambda action: list(action.astype(dtype)))
    )


def action_shape(space: gym.Space[Any]) -> tuple[int, ...]:
    """The shape in which policies give one action (one axis for MultiDiscrete and MultiBinary)."""
    spec = _flat_spec(space)
    return () if spec is None else spec.shape


def _flat_spec(space: gym.Space[Any]) -> Space | None:
    """A space that is one array; None for any other."""
    match space:
        case gym.spaces.Box():
            dtype = "float32" if space.dtype == np.float64 else np.dtype(space.dtype).name
            return Box(tuple(space.shape), dtype, _bound(space.low, dtype), _bound(space.high, dtype))
        case gym.spaces.Discrete():
            return Discrete(int(space.n))
        case gym.spaces.MultiDiscrete():
            return MultiDiscrete(tuple(int(n) for n in space.nvec.reshape(-1)))
        case gym.spaces.MultiBinary():
            return MultiBinary(int(np.prod(space.shape)))
    return None


def _bound(bound: NDArray, dtype: str) -> Any:
    """A bound in the spec's dtype: a scalar where all elements agree (an image's bounds are as large as the image)."""
    with np.errstate(over="ignore"):  # float64's largest number is float32's infinity
        cast = np.asarray(bound).astype(dtype)
    return cast.reshape(-1)[0].item() if cast.size and (cast == cast.reshape(-1)[0]).all() else cast


def _integers(shape: tuple[int, ...], start: Any, dtype: Any) -> BatchConverter:
    offset = np.asarray(start, dtype)
    shifted = bool(offset.any())

    def convert(action: NDArray) -> NDArray:
        native = action.astype(dtype).reshape(action.shape[0], *shape)
        return native + offset if shifted else native

    return convert


def _stretched(spec: EnvSpec) -> BatchConverter:
    native = spec.native_action
    assert isinstance(native, Box)
    dtype, bounded = np.dtype(native.dtype), native.bounded
    if not (np.isfinite(native.low) | np.isfinite(native.high)).any():
        return lambda action: action.astype(dtype)
    if not bounded.all():  # a single bound is kept to by clipping
        return lambda action: np.asarray(spec.to_native(action)).astype(dtype)
    # Every bound is finite: the arithmetic of EnvSpec.to_native with its constants computed once.
    low = np.broadcast_to(np.asarray(native.low), native.shape).astype(np.float32)
    high = np.broadcast_to(np.asarray(native.high), native.shape).astype(np.float32)
    half = np.float32(0.5) * (high - low)
    below, above, one = np.float32(-1.0), np.float32(1.0), np.float32(1.0)
    minimum, maximum = np.minimum, np.maximum

    def convert(action: NDArray) -> NDArray:
        result: NDArray = low + (minimum(maximum(action, below), above) + one) * half
        return result.astype(dtype, copy=False)

    return convert


def _unsupported(name: str, path: str, space: gym.Space[Any], known: str) -> ConfigError:
    return ConfigError(
        f"environment {name!r}: {path} is {type(space).__name__} ({space}), which Weft cannot batch. "
        f"Supported: {known}. Wrap the environment in one that gives such a space "
        "(gymnasium.wrappers.TransformObservation, TransformAction)."
    )
