"""A store in a worker of its own: unrolls in, batches out to the learner, what it tells of them back in.

Credit is chained through it, as through a map: the slot of an unroll goes back to act when the batches that it allows
have been learned from. So act is as far ahead of learn as if the store were not there, and learn, which gets only what
is drawn, is never ahead of act: samples for each insert are bounded both ways.

What it has taken counts as trained on, as in a learner's own store. A life that is killed takes what it held with it:
its next goes on from what was saved last, or fills anew, and what that lacks is counted as lost (``AccountLedger``).
Batches that were drawn by another life are learned from, but what is told of them is dropped, and counted: their steps
may lie elsewhere by now.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from weft.core.keys import fragment_key
from weft.core.types import Tree
from weft.graph.store import Home, Store
from weft.runtimes.hosted.blocks import as_message
from weft.runtimes.messages import join_on_host
from weft.runtimes.roles.store_home import home_of, tells_lanes_apart
from weft.runtimes.roles.store_pace import StorePace
from weft.runtimes.workers.counting.account import Fate
from weft.runtimes.workers.lane_checkpoint import from_words, to_words
from weft.runtimes.workers.layout.blueprint import Side
from weft.runtimes.workers.side import Saved
from weft.runtimes.workers.wires import WireReader, WireWriter
from weft.streams.channel import Message

if TYPE_CHECKING:
    from weft.runtimes.workers.wiring import Task

TELL_SECONDS = 0.25
"""How often its figures are told."""


class _Owed(NamedTuple):
    """Messages whose slots go back when so many of this life's batches have been learned from."""

    taken: list[tuple[WireReader, Message]]
    until: int


class StoreSide:
    """Runs one store, or one shard of it; ``run`` returns only by an exception."""

    def __init__(self, task: Task, side: Side) -> None:
        self.context, self._task, self._side = task.context(side), task, side
        (self.name,) = side.fragments
        blueprint = task.blueprint
        self._synchrony = blueprint.synchrony
        into, outof = blueprint.into(side.index), blueprint.out_of(side.index)
        make = (task.account, side.index, task.life)
        self._readers = [WireReader(w, task.reader(w, side), *make) for w in into if w.samples]
        self._back = [WireReader(w, task.reader(w, side), *make) for w in into if w.feedback]
        (drawn,) = [w for w in outof if w.drawn]
        self._writer = WireWriter(drawn, task.writer(drawn), task.account, task.life)
        self._before = self._writer.sequence  # what earlier lives have drawn
        self._forms = {reader.wire.name: task.schemas.form(reader.wire) for reader in (*self._readers, *self._back)}
        self._drawn_form = task.schemas.form(drawn)
        self._held: dict[int, Message] = {}  # received and not yet kept, by lane
        self._came: dict[int, tuple[int, int]] = {}  # the life and the number of what was kept last, by lane
        self._rows = blueprint.lanes[0].rows
        self._owed: deque[_Owed] = deque()
        self._newest = 0  # the version of the params that made the newest unroll
        self._told = 0  # batches of this life that were told of
        self._outlived = 0  # what was told of batches of earlier lives, in steps
        self._next_figures = 0.0
        self.home: Home | None = None
        self.pace = StorePace(1, 1, 0)
        self.context.saves = self._saved

    # ---- starting and saving ----------------------------------------------------------------------------------------

    def start(self) -> dict[str, Any]:
        """Empty, or as it was saved."""
        task, side = self._task, self._side
        fragment = task.schemas.graph_of(side).fragment(self.name)
        store: Store = fragment.code
        if not self._synchrony.whole_batches and tells_lanes_apart(store):
            store = fragment.code.of_lanes(len(self._readers))
        unroll = fragment.input(self._readers[0].wire.stream).schema
        key = fragment_key(int(task.body["seed"]), self.name)
        if side.shards:  # else all shards would draw the same places
            key = jax.random.fold_in(key, side.rank)
        called = side.state_name(self.name)
        saved, held = task.saved_states((called,)), None
        if saved is not None:
            like = jax.eval_shape(lambda key: store.init(unroll, key), key)
            held = from_words(saved[called], like)
        self.home = home_of(store, unroll, key, held)
        whole = task.schemas.graph.fragment(self.name)
        draws = whole.code.draws(whole.input(self._readers[0].wire.stream).schema)
        # Each learner has its part of the lanes, whose unrolls allow it its part of every batch.
        parts = 1 if self._synchrony.whole_batches else len(task.blueprint.lanes) // task.algorithm.spec.replicas
        self.pace = StorePace(draws, parts, self.home.waits())
        return {}

    def close(self) -> None:
        """Nothing to free."""

    def _saved(self) -> Saved | None:
        """Its state, and how many samples are in it; where lanes stand still, when nothing is under way."""
        assert self.home is not None
        if self._synchrony.still and (self._held or self._owed or not self._is_told):
            return None
        words = to_words(self.home.state)
        body = {"states": [[self._side.state_name(self.name), len(words)]]}
        return {**body, "delivered": {str(self._side.index): int(self.context.words[Fate.TRAINED])}}, words

    # ---- the loop ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Keep, draw, hear, for ever; raises Stopped at the run's end."""
        while True:
            moved = self._hear()
            moved |= self._keep()
            moved |= self._draw()
            moved |= self._give_back()
            self._tell_figures()
            if moved:
                self.context.tick()
            else:
                self.context.wait()

    def _hear(self) -> bool:
        """Take in what was told of batches; whether anything was."""
        assert self.home is not None
        heard = False
        for reader in self._back:
            while (message := reader.receive()) is not None:
                if message.stamp.tag == self._task.life:
                    self.home.feedback(self._forms[reader.wire.name].unflatten(message.arrays))
                    self._told += reader.wire.batches
                else:
                    self._outlived += message.stamp.count
                reader.take(message, None)
                heard = True
        return heard

    def _keep(self) -> bool:
        """Keep unrolls as they come; where synchrony wants whole ones, when all lanes have sent theirs."""
        for reader in self._readers:
            if reader.wire.lane not in self._held and (message := reader.receive()) is not None:
                self._held[reader.wire.lane] = message
        if not self._held:
            return False
        taken = [(reader, self._held[reader.wire.lane]) for reader in self._readers if reader.wire.lane in self._held]
        if not self._synchrony.whole_batches:
            for each in taken:
                self._insert([each])
        elif len(taken) < len(self._readers):
            return False
        else:
            self._insert(taken)
        return True

    def _insert(self, taken: list[tuple[WireReader, Message]]) -> None:
        assert self.home is not None
        form = self._forms[taken[0][0].wire.name]
        blocks = [form.unflatten(message.arrays) for _, message in taken]
        same = np.repeat([self._follows(reader, message) for reader, message in taken], self._rows)
        lane = 0 if self._synchrony.whole_batches else self._readers.index(taken[0][0])
        self.home.insert(as_message(join_on_host(blocks, form.axes)), lane, same)
        for reader, _ in taken:
            reader.account(Fate.TRAINED)
            del self._held[reader.wire.lane]
        self._newest = max(message.stamp.version for _, message in taken)
        self.pace.kept += 1
        self._owed.append(_Owed(taken, self.pace.allowed))

    def _follows(self, reader: WireReader, message: Message) -> bool:
        """Whether a message may go on where the one before it on its wire ended; False: something lies between them.

        What is observed may look alike by chance: the environments of another life have begun anew, and a message that
        is missing had steps. A life of the store that has seen none of a wire goes by what is observed only where lanes
        stand still while it is saved.
        """
        stamp = message.stamp
        now = (stamp.incarnation, stamp.sequence)
        before = self._came.get(reader.wire.lane)
        self._came[reader.wire.lane] = now
        return self._synchrony.still if before is None else now == (before[0], before[1] + 1)

    @property
    def _is_told(self) -> bool:
        return not self._back or self._told == self.pace.drawn

    def _draw(self) -> bool:
        """Draw the batches of a message, where that is allowed and there is room for it; whether any were drawn."""
        assert self.home is not None
        count = self._writer.wire.batches
        if not self.pace.may_draw(count) or (self._synchrony.told_first and not self._is_told):
            return False
        places = self._writer.reserve()
        if places is None:
            return False
        into: Tree = self._drawn_form.unflatten(places)
        self.home.draw(into)
        self.pace.drawn += count
        self._writer.commit(self._newest)
        return True

    def _give_back(self) -> bool:
        """Release unrolls whose batches have been learned from; whether any was."""
        moved, learned = False, (self._writer.released - self._before) * self._writer.wire.batches
        # The last batches that an unroll allows may be fewer than a message has: they are drawn with those of the next.
        while self._owed and learned > self._owed[0].until - self._writer.wire.batches:
            owed = self._owed.popleft()
            for reader, message in owed.taken:
                if owed.until:  # a version follows from it
                    reader.tell(self._writer.after)
                reader.release(message)
            moved = True
        return moved

    def _tell_figures(self) -> None:
        assert self.home is not None
        now = time.monotonic()
        if now < self._next_figures:
            return
        self._next_figures = now + TELL_SECONDS
        figures = self.home.figures()
        if "refused" in figures:
            figures["refused"] += self._outlived
        called = self._side.state_name(self.name)
        self.context.link.say("figures", {f"{called}/{key}": value for key, value in figures.items()})
