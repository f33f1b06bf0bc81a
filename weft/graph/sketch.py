"""A graph as plain data, enough to draw it and no more: names, what is pure, and what passes along each stream.

So that a run can be drawn from its folder with nothing imported that the folder names.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft.core.errors import GraphError
from weft.graph.describe import place_of
from weft.graph.fragment import Fragment, Port, Schema
from weft.graph.graph import Graph
from weft.graph.stream import Delivery, Rhythm, Stream

_NAME = re.compile(r"[\w.<>\[\] -]{0,200}")
"""What names and dtypes may be made of when they are read: they are printed, and a terminal obeys other characters."""


@dataclass(frozen=True)
class Leaf:
    """An array of a message: all that a drawing says of it."""

    shape: tuple[int, ...]
    dtype: str


def to_sketch(graph: Graph) -> dict[str, Any]:
    """Plain JSON of a graph; loads JAX to read shapes."""
    streams = [
        {
            "name": stream.name,
            "source": stream.source,
            "target": stream.target,
            "delivery": stream.delivery.value,
            "rhythm": stream.rhythm.value,
            "arrays": _arrays(stream.schema),
        }
        for stream in graph.streams
    ]
    return {"fragments": [{"name": f.name, "pure": f.pure} for f in graph.fragments], "streams": streams}


def from_sketch(saved: Mapping[str, Any]) -> Graph:
    """A graph to draw, of what ``to_sketch`` gave; its fragments have no code. Raises GraphError for anything else."""
    try:
        streams = tuple(
            Stream(
                _name(stream["name"]),
                _name(stream["source"]),
                _name(stream["target"]),
                OrderedDict(
                    (_name(place), Leaf(_shape(shape), _name(dtype))) for place, dtype, shape in stream["arrays"]
                ),
                Delivery(stream["delivery"]),
                Rhythm(stream["rhythm"]),
            )
            for stream in saved["streams"]
        )
        fragments = tuple(
            Fragment(
                _name(fragment["name"]),
                tuple({s.name: Port(s.name, s.schema) for s in streams if s.target == fragment["name"]}.values()),
                tuple({s.name: Port(s.name, s.schema) for s in streams if s.source == fragment["name"]}.values()),
                bool(fragment["pure"]),
            )
            for fragment in saved["fragments"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise GraphError(f"cannot read a stored graph: {type(error).__name__}: {error}") from None
    return Graph(fragments, streams)


def _arrays(schema: Schema) -> list[list[Any]]:
    import jax

    leaves, _ = jax.tree_util.tree_flatten_with_path(schema)
    return [[place_of(path), str(leaf.dtype), list(leaf.shape)] for path, leaf in leaves]


def _name(said: Any) -> str:
    if not isinstance(said, str) or not _NAME.fullmatch(said):
        raise ValueError(f"{str(said)[:50]!r} is no name")
    return said


def _shape(said: Any) -> tuple[int, ...]:
    if not all(isinstance(n, int) and 0 <= n < 2**40 for n in said):
        raise ValueError(f"{said!r} is no shape")
    return tuple(said)
