"""A fragment as its parts: learn as grad and apply, joined by a stream of gradients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

from weft.core.types import Gradients
from weft.graph.fragment import Fragment, Port, Schema
from weft.graph.graph import Graph
from weft.graph.stream import Rhythm, Sharing, Stream


def split(graph: Graph, named: Iterable[str]) -> Graph:
    """The graph in which a fragment that ``named`` knows only by its parts is those parts.

    The first part takes what the fragment took, the last gives what it gave. Gradients pass from part to part, and the
    params go back to the first part.
    """
    names = set(named)
    for fragment in graph.fragments:
        if fragment.parts and fragment.name not in names:
            graph = split_one(graph, fragment)
    return graph


def split_one(graph: Graph, fragment: Fragment) -> Graph:
    """The graph with one fragment as its parts."""
    parts = fragment.parts
    params = fragment.outputs[0]
    suffix = fragment.name.partition(".")[2]
    gradients = Port(f"gradients.{suffix}" if suffix else "gradients", _gradients(fragment))
    pieces = []
    for index, part in enumerate(parts):
        first, last = index == 0, index == len(parts) - 1
        inputs = (*fragment.inputs, params) if first else (gradients,)
        outputs = fragment.outputs if last else (gradients,)
        piece = Fragment(part, inputs, outputs, fragment.pure, code=fragment.code, part_of=fragment.name)
        pieces.append(piece)
    rewired = [
        replace(
            stream,
            source=parts[-1] if stream.source == fragment.name else stream.source,
            target=parts[0] if stream.target == fragment.name else stream.target,
        )
        for stream in graph.streams
    ]
    chain = [
        Stream(gradients.name, a, b, gradients.schema, rhythm=Rhythm.UPDATE, sharing=Sharing.ANY)
        for a, b in pairwise(parts)
    ]
    delivery = next((s.delivery for s in graph.streams if s.source == fragment.name and s.name == params.name), None)
    back = Stream(params.name, parts[-1], parts[0], params.schema, rhythm=Rhythm.UPDATE)
    chain.append(replace(back, delivery=delivery, sharing=None) if delivery else back)
    at = graph.names.index(fragment.name)
    return Graph((*graph.fragments[:at], *pieces, *graph.fragments[at + 1 :]), (*rewired, *chain))


def _gradients(fragment: Fragment) -> Schema:
    """What grad gives for one batch; of the params' shapes where it does not come apart."""
    import jax
    import jax.numpy as jnp

    if not getattr(fragment.code, "splits", False):
        return fragment.outputs[0].schema
    tree, metrics = jax.eval_shape(fragment.code.grad, fragment.outputs[0].schema, fragment.inputs[0].schema)
    scalar: Any = jax.ShapeDtypeStruct((), jnp.float32)
    return Gradients(tree, dict.fromkeys(sorted(metrics), scalar), scalar, scalar)
