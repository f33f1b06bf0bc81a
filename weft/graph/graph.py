"""The graph: fragments and streams, no hosts and no devices. It is the program: runtimes walk it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from weft.core.errors import GraphError, UnknownName, WeftError
from weft.graph.fragment import Fragment, MapCode, Port, Schema
from weft.graph.stream import Delivery, Rhythm, Stream


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

    def into(self, name: str) -> tuple[Stream, ...]:
        """The streams that end at a fragment, in the graph's order."""
        return tuple(s for s in self.streams if s.target == name)

    def out_of(self, name: str) -> tuple[Stream, ...]:
        """The streams that begin at a fragment, in the graph's order."""
        return tuple(s for s in self.streams if s.source == name)

    def on_stream(self, name: str) -> tuple[Fragment, ...]:
        """The fragments that sit on a stream, in order: those that both take and give it."""
        return tuple(
            f
            for f in self.fragments
            if any(p.name == name for p in f.inputs) and any(p.name == name for p in f.outputs)
        )

    def insert(
        self,
        name: str,
        step: object = None,
        init: object = None,
        *,
        on: str = "unroll",
        reads: str | Iterable[str] = (),
        host: bool = False,
        gives: object = None,
        role: str = "map",
        code: Any = None,
    ) -> Graph:
        """A graph with a fragment of your own on a stream, just before the stream's last reader.

        ``step(state, message, *params) -> (state, message)``; a list in place of the message is as many messages, an
        empty list is none. ``init(key)`` makes its state, and may be left out where there is none (state is then
        ``()``). ``reads`` names fragments whose newest params follow the message.

        A pure step may change the message's shapes: they are found by tracing it. With ``host`` it is any Python
        function on NumPy arrays, and ``gives`` is what it gives: a schema, or a function of the schema that it takes;
        left out, the same as it takes. A fragment of another ``role`` has ``code`` in place of step and init, and gives
        what it takes unless ``gives`` says otherwise.
        """
        read = (reads,) if isinstance(reads, str) else tuple(dict.fromkeys(reads))
        own_role = role != "map"
        if not own_role:
            if not callable(step) or (init is not None and not callable(init)):
                raise GraphError(f"fragment {name!r}: step and init must be functions, got {step!r} and {init!r}")
            code = MapCode(step, init, read)
        elif step is not None or init is not None:
            raise GraphError(f"fragment {name!r} has the role {role!r}: give it code=..., and no step or init")
        graph = self._with_stream(on)
        leg = [s for s in graph.streams if s.name == on]
        last = next((s for s in reversed(leg) if not graph._only_reads(s)), leg[-1])
        if last.rhythm is Rhythm.STEP:
            slower = sorted({s.name for s in graph.streams if s.rhythm is not Rhythm.STEP})
            raise GraphError(
                f"fragment {name!r} cannot be on the stream {on!r}, which passes at every step. Fragments of your own "
                f"sit on the slower ones: {', '.join(slower)}."
            )
        sources = [graph._publisher(name, each) for each in read]
        params = [Port(s.name, s.schema) for s in sources]
        declared = own_role or host
        schema = _given(name, code, last.schema, [p.schema for p in params], declared=declared, gives=gives)
        fragment = Fragment(
            name, (Port(on, last.schema), *params), (Port(on, schema),), not host, role_name=role, code=code
        )
        at = graph.names.index(last.target)
        if last.delivery is Delivery.LATEST:  # what learn publishes passes it before it reaches its readers
            at = graph.names.index(last.source) + 1
        target = graph.fragment(last.target)
        ports = tuple(replace(p, schema=schema) if p.name == on else p for p in target.inputs)
        changed = tuple(replace(f, inputs=ports) if f.name == last.target else f for f in graph.fragments)
        into, out = replace(last, target=name), replace(last, source=name, schema=schema)
        index = graph.streams.index(last)
        news = tuple(Stream(s.name, s.source, name, s.schema, Delivery.LATEST, Rhythm.UPDATE) for s in sources)
        return Graph(
            (*changed[:at], fragment, *changed[at:]),
            (*graph.streams[:index], into, out, *graph.streams[index + 1 :], *news),
        )

    def watch(self, name: str, code: Any, *, reads: str | Iterable[str] = (), role: str = "watch") -> Graph:
        """A graph with a fragment that looks on: it gets the newest params every so many env steps, and gives nothing.

        ``code`` has ``every``, in environment steps, and ``watcher(context)``, which gives the function that looks
        (``weft.Watcher``). ``reads`` names the fragments whose params it gets; unless told, all that publish some.
        Training does not depend on it: it may be slow, and its worker may die.
        """
        every = getattr(code, "every", None)
        if not isinstance(every, int) or isinstance(every, bool) or every < 1:
            raise GraphError(
                f"fragment {name!r} looks on every so many env steps: its code needs every, a whole number of at least "
                f"1, got {every!r} in {type(code).__name__}"
            )
        publishers = [f.name for f in self.fragments if f.role.publishes]
        read = ((reads,) if isinstance(reads, str) else tuple(dict.fromkeys(reads))) or tuple(publishers)
        sources = [self._publisher(name, each) for each in read]
        ports = tuple(Port(s.name, s.schema) for s in sources)
        news = tuple(Stream(s.name, s.source, name, s.schema, Delivery.LATEST, Rhythm.UPDATE) for s in sources)
        fragment = Fragment(name, ports, (), pure=False, role_name=role, code=code)
        return Graph((*self.fragments, fragment), (*self.streams, *news))

    def unwatched(self) -> Graph:
        """The graph without the fragments that only look on: all that training is."""
        kept = tuple(f for f in self.fragments if not f.role.watches)
        names = {f.name for f in kept}
        return Graph(kept, tuple(s for s in self.streams if s.target in names))

    def check(self) -> None:
        """Refuse what could never run: an output that nothing reads, a cycle that nothing starts."""
        for fragment in self.fragments:
            read = {s.name for s in self.out_of(fragment.name)}
            for port in fragment.outputs:
                if port.name not in read and fragment.outputs:
                    raise GraphError(
                        f"stream {port.name!r} of fragment {fragment.name!r} has no reader: add a Stream from "
                        f"{fragment.name!r} to the fragment that takes it, or remove the output port."
                    )
            fed = {s.name for s in self.into(fragment.name)}
            for port in fragment.inputs:
                if port.name not in fed:
                    raise GraphError(
                        f"fragment {fragment.name!r} waits for {port.name!r}, and no stream brings it: add a Stream "
                        f"from the fragment that gives it, or remove the input port."
                    )
        circle = self._circle()
        if circle:
            raise GraphError(
                f"nothing starts the cycle {' → '.join((*circle, circle[0]))}: each waits for a message of the one "
                "before it. Environments start by themselves, and params are there from the beginning: let one of "
                "these streams come from those."
            )

    def order(self) -> tuple[str, ...]:
        """The fragments in an order in which each comes after those whose messages it waits for."""
        waits = self._waits()
        done: list[str] = []
        while len(done) < len(self.fragments):
            ready = [n for n in self.names if n not in done and waits[n] <= set(done)]
            done.append(ready[0] if ready else next(n for n in self.names if n not in done))
        return tuple(done)

    def _waits(self) -> dict[str, set[str]]:
        """For each fragment those whose messages it cannot begin without."""
        starts = {f.name for f in self.fragments if f.role.makes_steps}
        return {
            name: {s.source for s in self.into(name) if s.delivery is Delivery.BLOCK and not s.feedback} - {name}
            if name not in starts
            else set()
            for name in self.names
        }

    def _circle(self) -> tuple[str, ...]:
        waits = self._waits()
        for name in [s.source for s in self.streams if s.source == s.target and s.delivery is Delivery.BLOCK]:
            return (name,)
        left = dict(waits)
        while free := [n for n, before in left.items() if not before & set(left)]:
            for name in free:
                del left[name]
        if not left:
            return ()
        path = [next(iter(left))]
        while True:
            following = next(n for n in waits[path[-1]] if n in left)
            if following in path:
                return tuple(reversed(path[path.index(following) :]))
            path.append(following)

    def _with_stream(self, name: str) -> Graph:
        """This graph, or the one with the fragment split whose parts have a stream called ``name`` between them."""
        if any(s.name == name for s in self.streams):
            return self
        from weft.graph.split import split_one

        for fragment in self.fragments:
            if fragment.parts and fragment.code is not None and getattr(fragment.code, "splits", True):
                parted = split_one(self, fragment)
                if any(s.name == name for s in parted.streams):
                    return parted
        for fragment in self.fragments:  # as if it came apart
            if fragment.parts and any(s.name == name for s in split_one(self, fragment).streams):
                raise GraphError(
                    f"stream {name!r} is there only where {fragment.name!r} comes apart into "
                    f"{' and '.join(fragment.parts)}. This algorithm makes several updates in one call, which do not "
                    "(A2C's and IMPALA's do)."
                )
        raise UnknownName("stream", name, {s.name for s in self.streams})

    def _publisher(self, reader: str, name: str) -> Stream:
        """The stream of newest params of a fragment, for a map that reads them."""
        self.fragment(name)
        for stream in self.out_of(name):
            if stream.delivery is Delivery.LATEST:
                return stream
        raise GraphError(
            f"fragment {reader!r} reads the params of {name!r}, which publishes none. Those that do: "
            f"{', '.join(sorted({s.source for s in self.streams if s.delivery is Delivery.LATEST})) or 'none'}."
        )

    def _only_reads(self, stream: Stream) -> bool:
        """Whether a stream's target takes it only to look at the newest params: a map that reads them, or grad."""
        source, target = self.fragment(stream.source), self.fragment(stream.target)
        if stream.delivery is not Delivery.LATEST:
            return False
        passes = any(p.name == stream.name for p in target.outputs)
        same = bool(target.part_of) and target.part_of == source.part_of
        return same or ((isinstance(target.code, MapCode) or target.role.watches) and not passes)

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


def _given(name: str, code: Any, schema: Schema, params: list[Schema], *, declared: bool, gives: object) -> Schema:
    """The schema of what a fragment gives: as ``declared``, or else by tracing a map's step."""
    import jax

    if declared:
        said = gives(schema) if callable(gives) else schema if gives is None else gives
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(tuple(x.shape), x.dtype), said)
    key = jax.eval_shape(lambda: jax.random.key(0))
    with naming(name):
        state = () if code.init is None else jax.eval_shape(code.init, key)
        result = jax.eval_shape(lambda *x: step_messages(name, code.step(*x))[1], state, schema, *params)
    if not result:
        raise GraphError(
            f"fragment {name!r} gives no message at all: a pure step gives at least one. Only host code (host=True) "
            "may give none, as it likes."
        )
    for other in result[1:]:
        difference = schema_difference(result[0], other)
        if difference:
            raise GraphError(f"fragment {name!r} gives messages of different shapes: {difference}")
    if gives is not None:
        difference = schema_difference(gives(schema) if callable(gives) else gives, result[0])
        if difference:
            raise GraphError(f"fragment {name!r} does not give what it declares: {difference}")
    return result[0]


@contextmanager
def naming(name: str) -> Iterator[None]:
    """What the code of a fragment raises within it says, in a note, which fragment it was."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, WeftError):
            error.add_note(f"raised in fragment {name!r}")
        raise


def step_messages(name: str, result: Any) -> tuple[Any, list[Any]]:
    """What a map's step returned, as (state, messages); refused where it is no such pair."""
    if not isinstance(result, tuple) or len(result) != 2 or hasattr(result, "_fields"):
        raise GraphError(
            f"fragment {name!r}: step must return (state, message), got {type(result).__name__}. Without a state, "
            "return ((), message)."
        )
    state, message = result
    return state, message if isinstance(message, list) else [message]


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
