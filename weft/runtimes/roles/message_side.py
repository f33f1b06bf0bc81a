"""A side that makes messages of messages: a map, or a role of the user's, in a worker.

It takes a message, runs its stage, and sends what that gives. The slot of what it took goes back when all that came of
it has been released further down: so what runs ahead of the learner is bounded as if the side were not there, and in
lockstep the version that follows is known when the slot comes back.

Where synchrony wants whole batches, the messages of all its lanes are taken together, side by side, as in one process;
otherwise each as it comes, and no lane waits for another: one that has no room further down would keep the rest from
the learner, which waits for them before it makes room.

A side of params has no lanes: it takes what is published, and publishes what it gives.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from weft.core.errors import GraphError
from weft.core.types import Metrics, Tree
from weft.graph.stream import Delivery
from weft.runtimes.flow import Flow
from weft.runtimes.hosted.blocks import as_message
from weft.runtimes.messages import Form, cut, join, join_on_host
from weft.runtimes.stage import Leg, States
from weft.runtimes.workers.counting.account import Fate, OfWire
from weft.runtimes.workers.counting.ledger import taken_and_not_sent
from weft.runtimes.workers.lane_checkpoint import from_words, to_words
from weft.runtimes.workers.layout.blueprint import Side, Wire
from weft.runtimes.workers.side import Saved
from weft.runtimes.workers.weights import Publisher, Weights
from weft.runtimes.workers.wires import WireReader, WireWriter
from weft.streams.channel import Message

if TYPE_CHECKING:
    from weft.runtimes.workers.wiring import Task


class _Owed(NamedTuple):
    """Messages whose slots go back when what came of them has been released."""

    taken: list[tuple[WireReader, Message]]
    until: list[tuple[WireWriter, int]]  # of each wire, the number that must have been released


class _Made(NamedTuple):
    """What the stage made of what it was given."""

    states: States
    out: dict[Leg, list[Tree]]
    metrics: Metrics


class _Outgoing(NamedTuple):
    """A message that is accounted for, and sent as soon as there is room."""

    leaves: list[Any]
    version: int


class MessageSide:
    """Runs one fragment; ``run`` returns only by an exception."""

    def __init__(self, task: Task, side: Side) -> None:
        self.context, self._task, self._side = task.context(side), task, side
        (self.name,) = side.fragments
        self._blueprint, graph = task.blueprint, task.schemas.graph_of(side)
        self.flow = Flow(graph, side.fragments)
        self._pure = self.flow.stages[self.name].pure
        into = [w for w in self._blueprint.into(side.index) if w.samples]
        outof = [w for w in self._blueprint.out_of(side.index) if w.samples]
        if task.life and into:
            self.context.words[Fate.LOST] += taken_and_not_sent(task.account, self._blueprint, side)
        self._readers = [WireReader(w, task.reader(w, side), task.account, side.index, task.life) for w in into]
        self._writers = [WireWriter(w, task.writer(w), task.account, task.life) for w in outof]
        self._forms: dict[str, Form] = {wire.name: task.schemas.form(wire) for wire in (*into, *outof)}
        self._ports = sorted({w.stream for w in into})
        self._whole = self._blueprint.synchrony.whole_batches and all(w.lane >= 0 for w in into)
        self._shares = {
            w.stream: task.schemas.share(self.name, w.stream, side) for w in outof if self._whole and w.lane >= 0
        }
        latest = [s for s in graph.into(self.name) if s.delivery is Delivery.LATEST]
        self._weights: dict[Leg, Weights] = {
            (s.source, s.name): task.weights_of(side, s.source, s.name) for s in latest
        }
        self._publishers: list[tuple[Publisher, Wire]] = [
            (Publisher(w, task.writer(w), task.account), w)
            for w in self._blueprint.out_of(side.index)
            if w.delivery is Delivery.LATEST
        ]
        self._owed: dict[int, deque[_Owed]] = {}  # by lane; all lanes under one number where they are taken together
        self._outgoing: dict[int, deque[_Outgoing]] = {writer.wire.index: deque() for writer in self._writers}
        self._held: dict[tuple[str, int], tuple[WireReader, Message]] = {}  # received, and not yet used
        self._run = jax.jit(self._traced) if self._pure else self._on_host
        self.states: States = {}
        self._before: States = {}  # of a map on params: its states before the newest
        self.context.saves = self._saved

    # ---- starting and saving ----------------------------------------------------------------------------------------

    def start(self) -> dict[str, Any]:
        """A fresh state, or the saved one."""
        self.states = jax.jit(self.flow.init)(np.int32(self._task.body["seed"])) if self._pure else self._fresh()
        saved = self._task.saved_states(self.flow.names)
        if saved is not None:
            self.states = {n: from_words(saved[n], self.states[n]) for n in self.flow.names}
        self._before = self.states
        return {}

    def _fresh(self) -> States:
        return jax.device_get(self.flow.init(np.int32(self._task.body["seed"])))  # type: ignore[no-any-return]

    def close(self) -> None:
        """Nothing to free."""

    def _saved(self) -> Saved | None:
        if self._blueprint.synchrony.still and (any(self._owed.values()) or self._held):
            return None
        if not self._readers and any(weights.version < weights.published for weights in self._weights.values()):
            return None
        if self._side.rank:
            return {}, []
        # The newest params will be published again to the next life: its state is that from before them.
        words = {name: to_words(state) for name, state in (self.states if self._readers else self._before).items()}
        states = [[name, len(leaves)] for name, leaves in words.items()]
        return {"states": states}, [leaf for leaves in words.values() for leaf in leaves]

    # ---- the loop ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Take, run, send, for ever; raises Stopped at the run's end and what the user's code raises."""
        while True:
            moved = self._send()
            moved |= self._give_back()
            moved |= self._publish() if not self._readers else self._take()
            if moved:
                self.context.tick()
            else:
                self.context.wait()

    def _publish(self) -> bool:
        """New params have come: what the stage makes of them is published under the same version."""
        fresh = [weights.refresh() for weights in self._weights.values()]
        version = max((weights.version for weights in self._weights.values()), default=-1)
        if not any(fresh) or version < 0:
            return False
        inputs = {leg: [weights.params] for leg, weights in self._weights.items()}
        self._before = self.states if self._pure else jax.tree.map(np.array, self.states)  # host code may write into it
        self.states, out, _ = self._run(self.states, inputs, {})
        for publisher, wire in self._publishers:
            for params in out.get((self.name, wire.stream), []):
                publisher.publish(params, version)
        return True

    def _take(self) -> bool:
        """Receive what there is; use it as soon as it is enough."""
        for weights in self._weights.values():
            weights.refresh()
        for reader in self._readers:
            key = (reader.wire.stream, reader.wire.index)
            if key not in self._held and (message := reader.receive()) is not None:
                self._held[key] = (reader, message)
                self._mark_begun(reader, message)
        if self._whole:
            held = list(self._held.values())
            if len(held) < len(self._readers) or not self._has_params(held) or not self._has_room(self._writers):
                return False
            self._use_all()
            return True
        return self._use_each()

    def _has_params(self, held: list[tuple[WireReader, Message]]) -> bool:
        """Whether the params that it reads are at least as new as those that made the messages."""
        newest = max(message.stamp.version for _, message in held)
        wanted = newest if self._blueprint.synchrony.one_params else 0
        return all(weights.version >= wanted for weights in self._weights.values())

    def _has_room(self, writers: list[WireWriter]) -> bool:
        """Whether all has been sent and the next can be: what is accounted for is soon sent."""
        return all(not self._outgoing[w.wire.index] and w.reserve() is not None for w in writers)

    def _use_each(self) -> bool:
        """The messages of one lane, one of each input stream."""
        by_lane: dict[int, list[tuple[WireReader, Message]]] = {}
        for reader, message in self._held.values():
            by_lane.setdefault(_place(reader.wire), []).append((reader, message))
        used = False
        for held in by_lane.values():
            lane = held[0][0].wire.lane
            room = self._has_room([w for w in self._writers if w.wire.lane in (lane, -1)])
            if len(held) == len(self._ports) and self._has_params(held) and room:
                inputs = {}
                for reader, message in held:
                    form = self._forms[reader.wire.name]
                    inputs[reader.wire.source, reader.wire.stream] = [as_message(form.unflatten(message.arrays))]
                self._handle(held, inputs, held[0][0].wire)
                used = True
        return used

    def _use_all(self) -> None:
        """The messages of all lanes side by side."""
        joining = join if self._pure else join_on_host
        inputs: dict[Leg, list[Tree]] = {}
        for port in self._ports:
            of_port = [(r, m) for r, m in self._held.values() if r.wire.stream == port]
            of_port.sort(key=lambda each: each[0].wire.lane)
            form = self._forms[of_port[0][0].wire.name]
            blocks = [form.unflatten(message.arrays) for _, message in of_port]
            inputs[of_port[0][0].wire.source, port] = [as_message(joining(blocks, form.axes))]
        self._handle(list(self._held.values()), inputs, None)

    def _handle(self, held: list[tuple[WireReader, Message]], inputs: dict[Leg, list[Tree]], only: Wire | None) -> None:
        """Run the stage, and send what it gives: on the wires of the lane of ``only``, or cut into all lanes."""
        newest = {leg: weights.params for leg, weights in self._weights.items()}
        states, out, metrics = self._run(self.states, inputs, newest if self._pure else jax.device_get(newest))
        if metrics:
            figures = {f"{self.name}/{key}": float(np.mean(value)) for key, value in jax.device_get(metrics).items()}
            self.context.link.say("figures", figures)
        version = min(message.stamp.version for _, message in held)
        parcels = self._parcels(out, only)
        self.states = jax.tree.map(np.array, states) if not self._pure else states
        self._account(held, parcels)
        until = []
        for writer, messages in parcels:
            outgoing = self._outgoing[writer.wire.index]
            outgoing.extend(_Outgoing(jax.tree.leaves(message), version) for message in messages)
            if messages:
                until.append((writer, writer.sequence + len(outgoing)))
            else:
                writer.words[OfWire.BEGUN] = 0
        self._send()
        for reader, _ in held:
            del self._held[reader.wire.stream, reader.wire.index]
        place = _place(only) if only is not None else -1
        self._owed.setdefault(place, deque()).append(_Owed(held, until))

    def _send(self) -> bool:
        """Send what there is room for; whether there was any."""
        moved = False
        for writer in self._writers:
            outgoing = self._outgoing[writer.wire.index]
            while outgoing and (places := writer.reserve()) is not None:
                for place, leaf in zip(places, outgoing[0].leaves, strict=True):
                    np.copyto(place, np.asarray(leaf))
                writer.commit(outgoing.popleft().version)
                moved = True
        return moved

    def _parcels(self, out: dict[Leg, list[Tree]], only: Wire | None) -> list[tuple[WireWriter, list[Tree]]]:
        """For each wire out what goes there."""
        parcels = []
        for writer in self._writers:
            messages = out.get((self.name, writer.wire.stream), [])
            if only is None and writer.wire.lane >= 0:
                lane, first = self._blueprint.lanes[writer.wire.lane], self._blueprint.lanes[self._side.lanes[0]].first
                axes = self._shares[writer.wire.stream].axes
                messages = [
                    cut(jax.tree.map(np.asarray, message), axes, lane.first - first, lane.rows) for message in messages
                ]
            elif only is not None and writer.wire.lane not in (only.lane, -1):
                continue
            parcels.append((writer, messages))
        return parcels

    def _account(self, held: list[tuple[WireReader, Message]], parcels: list[tuple[WireWriter, list[Tree]]]) -> None:
        """What was taken is accounted for, and by how much more or less will be sent."""
        took = sum(reader.wire.samples for reader, _ in held)
        gives = sum(writer.wire.samples * len(messages) for writer, messages in parcels)
        for reader, _ in held:
            reader.account()
        if gives > took:
            self.context.words[Fate.ADDED] += gives - took
        elif took > gives:
            self.context.words[Fate.FILTERED] += took - gives

    def _give_back(self) -> bool:
        """Release what a lane has taken, in order, once all that came of it has been released; whether any was."""
        moved = False
        for waiting in self._owed.values():
            while waiting and all(writer.released >= number for writer, number in waiting[0].until):
                owed = waiting.popleft()
                after = max((writer.after for writer, _ in owed.until), default=None)
                for reader, message in owed.taken:
                    if after is not None:
                        reader.tell(after)
                    reader.release(message)
                moved = True
        return moved

    def _mark_begun(self, reader: WireReader, message: Message) -> None:
        """Further down it can be seen that a message of this version is on its way."""
        for writer in self._writers:
            if writer.wire.lane == reader.wire.lane:
                writer.begin(message.stamp.version)

    # ---- the stage --------------------------------------------------------------------------------------------------

    def _traced(self, states: States, inputs: dict[Leg, list[Tree]], newest: dict[Leg, Tree]) -> _Made:
        if not self._readers:
            return self._of_params(states, inputs)
        flowed = self.flow.run(states, inputs, newest)
        metrics = flowed.metrics.get(self.name)
        return _Made(flowed.states, flowed.out, metrics[-1] if metrics else {})

    def _on_host(self, states: States, inputs: dict[Leg, list[Tree]], newest: dict[Leg, Tree]) -> _Made:
        return self._traced(states, inputs if self._readers else jax.device_get(inputs), newest)

    def _of_params(self, states: States, inputs: dict[Leg, list[Tree]]) -> _Made:
        stage = self.flow.stages[self.name]
        ran = stage.run(states[self.name], {leg[1]: found[0] for leg, found in inputs.items()}, {}, np.zeros(()))
        if any(len(found) != 1 for found in ran.messages.values()):
            raise GraphError(f"fragment {self.name!r} is on a stream of params, and must give one message for each")
        return _Made({self.name: ran.state}, {(self.name, port): found for port, found in ran.messages.items()}, {})


def _place(wire: Wire) -> int:
    """What a wire's messages are told apart by: its lane, or itself where it belongs to none."""
    return wire.lane if wire.lane >= 0 else wire.index
