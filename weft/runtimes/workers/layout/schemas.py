"""What passes along each wire: found from the graph's ports for a lane's environments, as a channel needs to know it.

Unrolls leave act as blocks of T + 1 rows; everything else passes as its port says.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from weft.core.errors import ConfigError
from weft.core.types import Tree
from weft.graph.algorithm import Algorithm
from weft.graph.graph import Graph
from weft.graph.loops import acted_schema, widen
from weft.graph.role import role
from weft.graph.split import split
from weft.graph.stream import Delivery
from weft.runtimes.actors import learner_of
from weft.runtimes.hosted.blocks import block_schema
from weft.runtimes.hosted.programs import can_recall
from weft.runtimes.messages import Form, form_of
from weft.runtimes.workers.layout.blueprint import Blueprint, Side, Wire
from weft.streams.channel import ChannelSpec
from weft.streams.schema import ArraySpec, ArraySpecs


class Schemas:
    """The forms of a blueprint's wires, for a bound algorithm. ``pure_env``: environments in JAX."""

    def __init__(self, blueprint: Blueprint, algorithm: Algorithm, *, pure_env: bool) -> None:
        self.blueprint, self.algorithm, self.pure_env = blueprint, algorithm, pure_env
        self.names = [name for side in blueprint.sides for name in side.fragments]
        self.graph = split(algorithm.whole_graph(), self.names)
        self._sized: dict[int, Graph] = {}
        self._forms: dict[tuple[str, str, int, bool], Form] = {}
        self._recall: dict[str, bool] = {}  # by act: thousands of wires may come from one

    def sized(self, envs: int) -> Graph:
        """The graph for some number of environments."""
        if envs not in self._sized:
            self._sized[envs] = split(self.algorithm.graph_for(envs), self.names)
        return self._sized[envs]

    def graph_of(self, side: Side) -> Graph:
        """The graph for as many environments as one message of a side has: its code and its states are of that size.

        A side that eats whole batches has those of all its lanes together; one that takes messages as they come has
        those of a lane. Of a store with replicas it has a shard: each learner has one, or several.
        """
        graph, shards_of_one = self._sized_for(side), side.replicas // self.algorithm.spec.replicas
        if not side.shards or shards_of_one == 1:
            return graph
        shards = [replace(f, code=f.code.share(shards_of_one)) if f.role.stores else f for f in graph.fragments]
        return Graph(tuple(shards), graph.streams)

    def _sized_for(self, side: Side) -> Graph:
        if not side.lanes:
            return self.graph
        whole = self.blueprint.synchrony.whole_batches or role(side.role).computes_gradients
        lanes = [self.blueprint.lanes[i] for i in side.lanes]
        return self.sized(sum(lane.rows for lane in lanes) if whole else lanes[0].rows)

    def form(self, wire: Wire) -> Form:
        """What a message of a wire looks like."""
        rows = self.blueprint.lanes[0].rows
        extras = self.sends_extras(wire)
        key = (wire.source, wire.stream, wire.lane >= 0, extras)
        if key not in self._forms:
            if wire.lane < 0:
                schema = self._schema(self.graph, wire, 0, extras)
                schema = widen(schema, (wire.batches,)) if wire.drawn or wire.feedback else schema
                self._forms[key] = form_of(schema, schema)
            else:
                one, two = (self._schema(self.sized(n), wire, n, extras) for n in (rows, 2 * rows))
                self._forms[key] = form_of(one, two, f"stream {wire.stream!r} of {wire.source!r}")
        return self._forms[key]

    def share(self, name: str, port: str, side: Side) -> Form:
        """What a message of an output port looks like for all environments of a side's lanes together."""
        rows = sum(self.blueprint.lanes[i].rows for i in side.lanes)
        one, two = (self.sized(n).fragment(name).output(port).schema for n in (rows, 2 * rows))
        return form_of(one, two, f"stream {port!r} of {name!r}")

    def _schema(self, graph: Graph, wire: Wire, rows: int, extras: bool) -> Tree:
        fragment = graph.fragment(wire.source)
        if wire.samples and fragment.role.every_step:
            algorithm: Algorithm = fragment.code
            params = jax.eval_shape(algorithm.init, jax.eval_shape(lambda: jax.random.key(0))).params
            spec, acted = algorithm.spec.environment, acted_schema(algorithm, params)
            finals = fragment.output(wire.stream).schema.finals
            room = 0 if finals is None else finals.step.shape[0]
            return block_schema(spec, algorithm.unroll, rows, acted, extras=extras, finals=room)
        return fragment.output(wire.stream).schema

    def recalls(self, wire: Wire) -> bool:
        """Whether the reader of an act's unrolls finds their extras by itself, from params that are act's own."""
        fragment = self.graph.fragment(wire.source)
        if not wire.samples or not fragment.role.every_step or not self.blueprint.synchrony.one_params:
            return False
        writer, reader = self.blueprint.sides[wire.writer], self.blueprint.sides[wire.readers[0]]
        if wire.source not in self._recall:
            self._recall[wire.source] = can_recall(fragment.code)
        if not self._recall[wire.source] or (self.pure_env and len(writer.fragments) > 1):
            return False  # what remembers keeps its extras as it goes, and so does a compiled rollout
        head = self.graph.fragment(reader.fragments[-1])
        learner = learner_of(self.graph, wire.source)
        reads = {s.source for s in self.graph.into(head.name) if s.delivery is Delivery.LATEST}
        return head.role.computes_gradients and learner in {head.name, *reads}

    def sends_extras(self, wire: Wire) -> bool:
        """Whether messages of a wire carry act's extras."""
        return not self.recalls(wire)

    def channels(self, *, compress: bool = False) -> dict[str, ChannelSpec]:
        """The channel of every wire, by its name. ``compress``: what passes between hosts, where it pays."""
        arrays: dict[int, ArraySpecs] = {}  # by form: thousands of wires have the same
        channels = {}
        for wire in self.blueprint.wires:
            form = self.form(wire)
            if id(form) not in arrays:
                arrays[id(form)] = array_specs_of(form.schema, wire.stream)
            passes = arrays[id(form)]
            channels[wire.name] = ChannelSpec(
                wire.name, passes, wire.capacity, wire.delivery, wire.scheme, compress=compress
            )
        return channels


def array_specs_of(schema: Tree, what: str) -> ArraySpecs:
    """The arrays of a JAX tree in JAX's order."""
    found, _ = jax.tree_util.tree_flatten_with_path(schema)
    return tuple(ArraySpec(jax.tree_util.keystr(path), tuple(s.shape), _dtype(s, what)) for path, s in found)


def _dtype(schema: Any, what: str) -> str:
    if jax.numpy.issubdtype(schema.dtype, jax.dtypes.extended):
        raise ConfigError(
            f"the algorithm's {what} hold a PRNG key, which cannot pass between processes: keep its words "
            "(jax.random.key_data), or use the plan 'inline'."
        )
    return str(np.dtype(schema.dtype))
