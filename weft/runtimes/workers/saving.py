"""What a checkpoint of a run in workers holds, and how it is put together from what they say."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from weft.core.types import TrainState, Tree
from weft.runtimes.compiled.rollout import make_rollout
from weft.runtimes.loop.engine import Stages
from weft.runtimes.prepare.config import Prepared
from weft.runtimes.workers.control.link import LinkMessage
from weft.runtimes.workers.lane_checkpoint import from_words, joined, lane_schema


class ProcessState(NamedTuple):
    """The learner's state, and in lockstep where the lanes stand, side by side."""

    train: TrainState
    fragments: tuple[Tree, ...]
    lanes: Tree  # a LaneCheckpoint, or a LoopState where actors roll a JAX environment out; else ()


def state_schema(prepared: Prepared, stages: Stages, *, lockstep: bool, compiled: bool) -> ProcessState:
    """Structure, shapes and dtypes. ``compiled``: actors roll a JAX environment out in one program."""
    train, fragments = jax.eval_shape(stages.init, jax.ShapeDtypeStruct((), np.int32))
    if not lockstep:
        return ProcessState(train, fragments, ())
    if not compiled:
        return ProcessState(train, fragments, lane_schema(prepared.algorithm, prepared.envs))
    assert prepared.source.pure is not None
    rollout = make_rollout(prepared.algorithm, prepared.source.pure)
    indices = jax.ShapeDtypeStruct((prepared.envs,), np.int32)
    return ProcessState(train, fragments, jax.eval_shape(rollout.init, jax.ShapeDtypeStruct((), np.int32), indices))


def put_together(said: list[LinkMessage], holder: int, like: ProcessState) -> tuple[ProcessState, dict[str, Any]]:
    """The state and the environments' snapshots, from what sides have said; ``holder`` is the learner's side."""
    (learner,) = (part.arrays for part in said if part.body["side"] == holder)
    train, fragments = from_words(learner, (like.train, like.fragments))
    lanes: dict[int, list[np.ndarray[Any, Any]]] = {}
    snapshots: dict[str, Any] = {}
    for part in said:
        snapshots |= part.body.get("snapshots", {})
        mine = part.body.get("lanes", ())
        size = len(part.arrays) // max(len(mine), 1)
        lanes |= {lane: part.arrays[k * size : (k + 1) * size] for k, lane in enumerate(mine)}
    standing = from_words(joined([lanes[k] for k in sorted(lanes)]), like.lanes) if lanes else ()
    return ProcessState(train, fragments, standing), snapshots
