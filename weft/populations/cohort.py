"""The members of a population while they are trained: all in one program, or one after another.

Both are driven by the same loop (``loop.py``), through the same few methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import jax

from weft.core.types import Tree
from weft.populations.member import Member, row_of
from weft.populations.rules import Decision
from weft.runtimes.compiled.engine import MAX_DISPATCH
from weft.runtimes.compiled.members import MembersEngine
from weft.runtimes.loop.counters import Counters
from weft.runtimes.loop.engine import Engine
from weft.runtimes.loop.engines import make_engine
from weft.runtimes.loop.execution import DISPATCH_SECONDS
from weft.runtimes.loop.saver import on_host

State = tuple[Tree, dict[str, Any]]
"""What an engine saves of one run: arrays, and a JSON document."""


class Cohort(Protocol):
    """Trains the members that are neither stopped nor at their end. ``warn`` is told what a user should know."""

    members: list[Member]
    warn: Callable[[str], None]

    def start(self) -> None:
        """Begin from nothing."""
        ...

    def train(self, until: int) -> Iterator[None]:
        """Train each member up to ``until`` env steps; gives control back after each dispatch."""
        ...

    def apply(self, decision: Decision) -> None:
        """Copy, change values, stop, finish, begin: what a rule decided after a round."""
        ...

    def state_of(self, member: Member) -> State:
        """A member's state as that of a run by itself, on the host; not of one that is stopped."""
        ...

    def saved(self) -> State:
        """Everything that an exact resume needs; the arrays are the cohort's until it trains again."""
        ...

    def template(self, document: dict[str, Any]) -> Tree:
        """The structure of ``saved``'s tree, by its document."""
        ...

    def resume(self, tree: Tree, document: dict[str, Any]) -> list[str]:
        """Go on from what ``saved`` gave, the members restored before; returns what could not be brought back."""
        ...

    def close(self) -> None:
        """Free what is open; may be called twice."""
        ...


class OneProgram:
    """All members as rows of one compiled program."""

    def __init__(self, members: list[Member], engine: MembersEngine) -> None:
        self.members, self._engine = members, engine
        self.warn: Callable[[str], None] = lambda text: None
        self._dispatch = 1

    @property
    def _rows(self) -> list[Member]:
        return [member for member in self.members if member.live]

    def start(self) -> None:
        """Begin from nothing."""
        self._engine.start()

    def train(self, until: int) -> Iterator[None]:
        """All rows go on together; the host waits for each dispatch."""
        rows = self._rows
        first = rows[0]
        target = first.learn_steps_at(until)
        while first.counters.learn_steps < target:
            self._dispatch = dispatch_size(self._dispatch, first)
            count = min(self._dispatch * first.prepared.calls_for_each_unroll, target - first.counters.learn_steps)
            report = self._engine.advance(count)()
            for row, member in enumerate(rows):
                member.take(row_of(report, row, len(rows)))
            yield

    def apply(self, decision: Decision) -> None:
        """Rows are gathered on the device; new values compile nothing, fewer rows do."""
        rows = self._rows
        place = {member.index: row for row, member in enumerate(rows)}
        if decision.copies:
            self._engine.copy_learners([place[decision.copies.get(member.index, member.index)] for member in rows])
        change_members(self.members, decision)
        if decision.begins:
            begun = self._rows
            self._engine.begin(begun[0].prepared.seed, values_of(begun))
        elif left := self._rows:
            if len(left) < len(rows):
                self._engine.keep([place[member.index] for member in left])
            self._engine.vary(values_of(left))

    def state_of(self, member: Member) -> State:
        """One row of the state."""
        tree, document = self._engine.saved()
        row = self._rows.index(member)
        return on_host(jax.tree.map(lambda x: x[row], tree)), document

    def saved(self) -> State:
        """The rows together."""
        tree, document = self._engine.saved()
        return tree, {"engine": document, "rows": len(self._rows)}

    def template(self, document: dict[str, Any]) -> Tree:
        """So many rows."""
        return self._engine.template_of(int(document["rows"]))

    def resume(self, tree: Tree, document: dict[str, Any]) -> list[str]:
        """Always exact."""
        rows = self._rows
        self._engine.begin_with(tree, values_of(rows), len(rows))
        return []

    def close(self) -> None:
        """The arrays go with the engine."""
        self._engine.close()


class OneByOne:
    """Each member with an engine of its own; a round trains one after another."""

    def __init__(self, members: list[Member]) -> None:
        self.members = members
        self.warn: Callable[[str], None] = lambda text: None
        self._engines: dict[int, Engine] = {}
        self._parked: dict[int, State] = {}  # of members that have begun and have no engine now

    def start(self) -> None:
        """Nothing: an engine is made when its member's turn comes."""

    def train(self, until: int) -> Iterator[None]:
        """One member after another; one that is at its end gives its memory back."""
        for member in [m for m in self.members if m.live]:
            target, dispatch = member.learn_steps_at(until), 1
            while member.counters.learn_steps < target and not member.failed:
                dispatch = dispatch_size(dispatch, member)
                calls = member.prepared.calls_for_each_unroll
                count = min(dispatch * calls, target - member.counters.learn_steps)
                member.take(self._engine(member).advance(count)())
                yield
            if target >= member.prepared.learn_steps and member.index in self._engines:
                self._park(member)

    def apply(self, decision: Decision) -> None:
        """A member whose values change gets a new engine, which is compiled when its turn comes."""
        learned = {source: self.state_of(self.members[source]) for source in set(decision.copies.values())}
        for index, source in decision.copies.items():
            tree, document = self.state_of(self.members[index])
            fragments = dict(tree.fragments)
            for name in self._published(self.members[index]):
                best = learned[source][0].fragments[name]
                fragments[name] = fragments[name]._replace(params=best.params, optimizer=best.optimizer)
            self._close(index)
            self._parked[index] = tree._replace(fragments=fragments), document
        for index in (*decision.stops, *decision.finishes):
            self._close(index)
            self._parked.pop(index, None)
        change_members(self.members, decision)

    def state_of(self, member: Member) -> State:
        """As its engine saves it, or has saved it."""
        if member.index in self._parked:
            return self._parked[member.index]
        tree, document = self._engine(member).saved()
        return on_host(tree), document

    def saved(self) -> State:
        """The states of those that have begun, by name."""
        begun = [m for m in self.members if m.index in self._parked or m.index in self._engines]
        states = {member.name: self.state_of(member) for member in begun}
        trees = {name: tree for name, (tree, _) in states.items()}
        return trees, {"engines": {name: document for name, (_, document) in states.items()}}

    def template(self, document: dict[str, Any]) -> Tree:
        """As the engines of those that had begun say."""
        begun = [member for member in self.members if member.name in document["engines"]]
        found = {}
        for member in begun:
            engine = make_engine(member.prepared)
            found[member.name] = engine.template()
            engine.close()
        return found

    def resume(self, tree: Tree, document: dict[str, Any]) -> list[str]:
        """Each is brought back when its turn comes; what could not be, is warned of then."""
        for member in self.members:
            if member.name in tree:
                self._parked[member.index] = tree[member.name], document["engines"][member.name]
        return []

    def close(self) -> None:
        """Close every member's environments."""
        for index in list(self._engines):
            self._close(index)

    def _engine(self, member: Member) -> Engine:
        """The member's engine, begun or brought back where it has none."""
        if member.index not in self._engines:
            engine = make_engine(member.prepared)
            engine.warn = self.warn
            self._engines[member.index] = engine
            parked = self._parked.pop(member.index, None)
            if parked is None:
                engine.start()
            elif lost := engine.resume(*parked):
                self.warn(f"{member.name}: {len(lost)} environments begin a fresh episode: they cannot be brought back")
        return self._engines[member.index]

    def _published(self, member: Member) -> Sequence[str]:
        return [f.name for f in member.prepared.graph.fragments if f.role.publishes]

    def _park(self, member: Member) -> None:
        tree, document = self._engines[member.index].saved()
        self._parked[member.index] = on_host(tree), document
        self._close(member.index)

    def _close(self, index: int) -> None:
        if index in self._engines:
            self._engines.pop(index).close()


def change_members(members: list[Member], decision: Decision) -> None:
    """Note in the members what was decided; what they copy has the values of before."""
    for index, values in decision.values.items():
        source = decision.copies.get(index)
        members[index].become(None if source is None else members[source], values)
    for index in decision.stops:
        members[index].stopped = True
    for index in decision.finishes:
        members[index].finished = True
    for index, values in decision.begins.items():
        members[index].begin(values)


def values_of(members: Sequence[Member]) -> dict[str, list[Any]]:
    """The values of some members by field, in their order."""
    return {name: [member.values[name] for member in members] for name in members[0].values}


def dispatch_size(before: int, member: Member) -> int:
    """Unrolls to dispatch at a time: about DISPATCH_SECONDS' worth, and not more than twice as many as before."""
    counters: Counters = member.counters
    seconds = counters.seconds_per_learn * member.prepared.calls_for_each_unroll
    wanted = 1 if seconds == 0 else max(1, min(MAX_DISPATCH, int(DISPATCH_SECONDS / seconds)))
    return min(wanted, 2 * before)
