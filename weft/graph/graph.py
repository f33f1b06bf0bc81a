"""The graph: fragments and streams, no hosts and no devices."""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.core.errors import GraphError, UnknownName
from weft.graph.fragment import Fragment, Port, Schema
from weft.graph.stream import Stream


@dataclass(frozen=True)
class Graph:
    """Fragments in the order in which data passes them, and the streams between them. Validated when made."""

    fragments: tuple[Fragment, ...]
    streams: tuple[Stream, ...]

    def __post_init__(self) -> None:
        names = [f.name for f in self.fragments] + [p for f in self.fragments for p in f.parts]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise GraphError(f"two fragments have the same name: {', '.join(twice)}. Rename one of them.")
        for stream in self.streams:
            self._check(stream)

    @property
    def names(self) -> tuple[str, ...]:
        """The fragments' names, in the order in which data passes them."""
        return tuple(f.name for f in self.fragments)

    def fragment(self, name: str) -> Fragment:
        """The fragment called ``name``."""
        for fragment in self.fragments:
            if fragment.name == name:
                return fragment
        raise UnknownName("fragment", name, self.names)

    def stream(self, name: str) -> Stream:
        """The first stream called ``name`` (a stream with fragments set on it has several legs)."""
        for stream in self.streams:
            if stream.name == name:
                return stream
        raise UnknownName("stream", name, {s.name for s in self.streams})

    def on_stream(self, name: str) -> tuple[Fragment, ...]:
        """The fragments that sit on a stream, in order: those that both take and give it."""
        return tuple(
            f
            for f in self.fragments
            if any(p.name == name for p in f.inputs) and any(p.name == name for p in f.outputs)
        )

    def insert(self, name: str, step: object, init: object = None, *, on: str = "unroll") -> Graph:
        """A graph with a fragment of your own on a stream, just before the stream's last reader.

        ``step(state, message) -> (state, message)`` is pure and may change the values but not the shapes of what
        passes; ``init(key)`` makes its state, and may be left out where there is none (state is then ``()``).
        """
        if not callable(step) or (init is not None and not callable(init)):
            raise GraphError(f"fragment {name!r}: step and init must be functions, got {step!r} and {init!r}")
        leg = [s for s in self.streams if s.name == on]
        if not leg:
            raise UnknownName("stream", on, {s.name for s in self.streams})
        last = leg[-1]
        port = Port(on, last.schema)
        fragment = Fragment(name, inputs=(port,), outputs=(port,), init=init, step=step)
        at = self.names.index(last.target)
        fragments = (*self.fragments[:at], fragment, *self.fragments[at:])
        into, out = replace(last, target=name), replace(last, source=name)
        index = self.streams.index(last)
        return Graph(fragments, (*self.streams[:index], into, out, *self.streams[index + 1 :]))

    def _check(self, stream: Stream) -> None:
        where = f"stream {stream.name!r} from {stream.source!r} to {stream.target!r}"
        for end, name in (("source", stream.source), ("target", stream.target)):
            if name not in self.names:
                raise GraphError(
                    f"{where}: its {end} is not a fragment of this graph (fragments: {', '.join(self.names)})"
                )
        source, target = self.fragment(stream.source), self.fragment(stream.target)
        for fragment, ports, side in ((source, source.outputs, "output"), (target, target.inputs, "input")):
            port = next((p for p in ports if p.name == stream.name), None)
            if port is None:
                known = ", ".join(p.name for p in ports) or "none"
                raise GraphError(
                    f"{where}: fragment {fragment.name!r} has no {side} port of that name ({side} ports: {known})"
                )
            difference = schema_difference(stream.schema, port.schema)
            if difference:
                raise GraphError(f"{where}: the {side} port of {fragment.name!r} disagrees: {difference}")


def schema_difference(expected: Schema, found: Schema) -> str:
    """The first place where two schemas differ, in words; empty where they agree."""
    import jax

    expected_leaves, expected_def = jax.tree_util.tree_flatten_with_path(expected)
    found_leaves, found_def = jax.tree_util.tree_flatten_with_path(found)
    if str(expected_def) != str(found_def):
        return f"expected the structure {expected_def}, got {found_def}"
    for (path, want), (_, have) in zip(expected_leaves, found_leaves, strict=True):
        if (want.shape, want.dtype) != (have.shape, have.dtype):
            place = f"at {jax.tree_util.keystr(path)} " if path else ""
            return f"{place}expected {want.dtype}{list(want.shape)}, got {have.dtype}{list(have.shape)}"
    return ""
