"""What a checkpoint of a run in workers holds, and how it is put together from what sides say."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from weft.core.types import Tree
from weft.graph.role import role
from weft.runtimes.actors import actors_of
from weft.runtimes.compiled.rollout import make_rollout
from weft.runtimes.flow import Flow
from weft.runtimes.prepare.config import Prepared
from weft.runtimes.stage import States
from weft.runtimes.workers.control.link import LinkMessage
from weft.runtimes.workers.lane_checkpoint import from_words, join_rows, lane_schema, to_words
from weft.runtimes.workers.layout.blueprint import Blueprint
from weft.runtimes.workers.layout.schemas import Schemas

Words = list["np.ndarray[Any, Any]"]


class WorkerState(NamedTuple):
    """The states of fragments, and in lockstep where the lanes stand, side by side."""

    fragments: States  # by name; of a fragment that the plan splits, by the name of the whole
    lanes: dict[str, Tree]  # by act; one for all, called "", where environments are rolled out by one program


class Saving:
    """What a run in workers saves."""

    def __init__(self, prepared: Prepared, blueprint: Blueprint) -> None:
        self._prepared, self._blueprint = prepared, blueprint
        schemas = Schemas(blueprint, prepared.algorithm, pure_env=prepared.source.pure is not None)
        self._graph = schemas.graph
        # Of the first replica, or of each shard, and for as many environments as its messages have.
        saved = [s for s in blueprint.sides if s.index not in blueprint.watching and not role(s.role).every_step]
        self._flows = {
            side: Flow(schemas.graph_of(side), side.fragments if side.rank == 0 else side.shards)
            for side in saved
            if side.rank == 0 or side.shards
        }
        self._whole = {  # by the name that its side gives a state, the name that it is kept under
            side.state_name(name): side.state_name(self.kept_as(name))
            for side, flow in self._flows.items()
            for name in flow.names
        }

    def kept_as(self, name: str) -> str:
        """The name that a fragment's state is kept under: params do not depend on how the plan splits learn."""
        fragment = self._graph.fragment(name)
        by_plan = fragment.part_of in self._prepared.graph.names  # else a map between them has parted them before
        return fragment.part_of if by_plan and fragment.role.publishes else name

    def template(self) -> WorkerState:
        """Structure, shapes and dtypes."""
        kept = {
            self._whole[side.state_name(name)]: state
            for side, flow in self._flows.items()
            for name, state in flow.template().items()
        }
        if not self._blueprint.synchrony.still:
            return WorkerState(kept, {})
        envs, source = self._prepared.envs, self._prepared.source
        together = any(len(side.fragments) > 1 and role(side.role).makes_steps for side in self._blueprint.sides)
        if together and source.pure is not None:
            rollout = make_rollout(actors_of(self._graph), source.pure)
            arguments = jax.ShapeDtypeStruct((), np.int32), jax.ShapeDtypeStruct((envs,), np.int32)
            return WorkerState(kept, {"": jax.eval_shape(rollout.init, *arguments)})
        return WorkerState(kept, {actor.name: lane_schema(actor.algorithm, envs) for actor in actors_of(self._graph)})

    def put_together(self, messages: list[LinkMessage]) -> tuple[WorkerState, dict[str, Any]]:
        """The state and the environments' snapshots, from what sides have sent."""
        like = self.template()
        states: dict[str, Tree] = {}
        lanes: dict[str, dict[int, Words]] = {}
        snapshots: dict[str, Any] = {}
        for part in messages:
            snapshots |= part.body.get("snapshots", {})
            at = 0
            for name, count in part.body.get("states", []):
                states[self._whole[name]] = from_words(part.arrays[at : at + count], like.fragments[self._whole[name]])
                at += count
            for key, lane, count in part.body.get("lanes", []):
                lanes.setdefault(key, {})[lane] = part.arrays[at : at + count]
                at += count
        stands = {key: from_words(join_rows([of[k] for k in sorted(of)]), like.lanes[key]) for key, of in lanes.items()}
        return WorkerState(states, stands), snapshots

    def states_words(self, state: WorkerState) -> dict[str, Words]:
        """What sides begin from: the arrays of each fragment's state, by the name that it has in this plan."""
        return {name: to_words(state.fragments[kept]) for name, kept in self._whole.items() if kept in state.fragments}


def lanes_words(state: WorkerState) -> dict[str, Words]:
    """Where lanes stand, as arrays."""
    return {key: to_words(stands) for key, stands in state.lanes.items()}
