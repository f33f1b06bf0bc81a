"""Where lanes stand between two unrolls: what lockstep saves and brings back, so that a run goes on exactly.

In lockstep every lane has made the unrolls that were asked for and waits for params that are not there yet; then a
worker can say where its lanes stand. Otherwise producers are never still, and environments begin anew after a resume.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from weft.core.types import Tree
from weft.graph.algorithm import Algorithm
from weft.graph.loops import as_schema, timestep_schema
from weft.runtimes.hosted.rolling import LaneCheckpoint
from weft.runtimes.loop.engine import is_key


def lane_schema(algorithm: Algorithm, rows: int) -> LaneCheckpoint:
    """The shapes of one act's LaneCheckpoint for ``rows`` environments."""

    def widened(x: Any) -> Any:
        return jax.ShapeDtypeStruct((rows, *x.shape), x.dtype)

    environment = algorithm.spec.environment
    timestep = timestep_schema(environment, rows)._replace(final_observation=None)
    totals: Any = (jax.ShapeDtypeStruct((rows,), np.float64), jax.ShapeDtypeStruct((rows,), np.int64))
    return LaneCheckpoint(jax.tree.map(widened, as_schema(algorithm.initial_carry())), timestep, *totals)


def to_words(tree: Tree) -> list[np.ndarray[Any, Any]]:
    """The leaves as NumPy; PRNG keys as their words."""
    return [np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf) for leaf in jax.tree.leaves(tree)]


def from_words(leaves: list[np.ndarray[Any, Any]], like: Tree) -> Tree:
    """What ``to_words`` gave, as a tree like ``like``."""
    likes, structure = jax.tree.flatten(like)
    back = [
        jax.random.wrap_key_data(jax.numpy.asarray(leaf)) if is_key(shape) else leaf
        for leaf, shape in zip(leaves, likes, strict=True)
    ]
    return jax.tree.unflatten(structure, back)


def cut_rows(leaves: list[np.ndarray[Any, Any]], first: int, rows: int) -> list[np.ndarray[Any, Any]]:
    """The rows of one lane; leaves without rows (a counter) stay whole."""
    return [leaf[first : first + rows] if leaf.ndim else leaf for leaf in leaves]


def join_rows(lanes: list[list[np.ndarray[Any, Any]]]) -> list[np.ndarray[Any, Any]]:
    """The lanes' leaves side by side, in their order."""
    return [np.concatenate(same) if same[0].ndim else same[0] for same in zip(*lanes, strict=True)]
