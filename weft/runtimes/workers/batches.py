"""The batches of a side that learns: the messages of its lanes, by stream, and the noise of acts that are recalled.

Several streams into one side are collected side by side: a batch is complete when each of them is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import numpy as np

from weft.core.keys import env_keys, fragment_key
from weft.core.types import Array, Tree
from weft.runtimes.actors import goes_unmarked
from weft.runtimes.compiled.replicas import Layout
from weft.runtimes.hosted.blocks import Block, all_valid, unmarked
from weft.runtimes.hosted.programs import ActPrograms, act_programs
from weft.runtimes.messages import Form, join
from weft.runtimes.stage import Leg
from weft.runtimes.workers.brought import Brought
from weft.runtimes.workers.collector import Collector
from weft.runtimes.workers.layout.blueprint import Side, Wire
from weft.runtimes.workers.wires import WireReader
from weft.streams.channel import Message

if TYPE_CHECKING:
    from weft.runtimes.workers.wiring import Task


class Batches:
    """Collects for one side; with ``bring`` what has come is sent to this process's device ahead of its batch.

    ``newest`` is as ``Collector`` has it.
    """

    def __init__(self, task: Task, side: Side, *, bring: bool = False, newest: Callable[[], int] | None = None) -> None:
        self._brought = Brought() if bring else None
        graph, synchrony = task.schemas.graph, task.blueprint.synchrony
        wires: dict[Leg, list[Wire]] = {}
        for wire in task.blueprint.into(side.index):
            if wire.samples:
                wires.setdefault((wire.source, wire.stream), []).append(wire)
        self.forms: dict[Leg, Form] = {leg: task.schemas.form(found[0]) for leg, found in wires.items()}
        self._collectors = {
            leg: Collector(
                [WireReader(w, task.reader(w, side), task.account, side.index, task.life) for w in found],
                synchrony,
                newest,
            )
            for leg, found in wires.items()
        }
        self._batch: dict[Leg, list[Message]] = {}
        self._left = task.left
        self._unmarked = {leg for leg in wires if goes_unmarked(graph, leg[0])}
        self.acts: dict[str, ActPrograms] = {}
        self._keys: dict[str, Array] = {}
        first = task.blueprint.lanes[side.lanes[0]].first
        envs = sum(task.blueprint.lanes[lane].rows for lane in side.lanes)
        for leg, found in wires.items():
            if task.schemas.recalls(found[0]):
                name, layout = leg[0], Layout((jax.local_devices()[0],))
                self.acts[name] = act_programs(graph.fragment(name).code, layout)
                indices, seed = np.arange(first, first + envs, dtype=np.int32), int(task.body["seed"])
                draw = jax.jit(lambda i, name=name, seed=seed: env_keys(fragment_key(seed, name), i))
                self._keys[name] = draw(indices)
        self._unroll = {name: graph.fragment(name).code.unroll for name in self.acts}

    def collect(self, version: int) -> bool:
        """Whether the batch for an update of params of ``version`` is complete. Does not wait."""
        for leg, collector in self._collectors.items():
            if leg not in self._batch:
                found = collector.collect(version)
                if self._brought is not None:
                    self._bring(self._brought, leg, collector.held)
                if found is not None:
                    self._batch[leg] = found
        return len(self._batch) == len(self._collectors)

    def look_ahead(self) -> None:
        """Send what there is for the next batch on its way, while the device is busy with the one that is complete."""
        if self._brought is not None:
            for leg, collector in self._collectors.items():
                self._bring(self._brought, leg, collector.look())

    def _bring(self, brought: Brought, leg: Leg, messages: list[Message]) -> None:
        if not self._left.has_any(leg[0]):  # act has left them on the device
            brought.bring(leg, messages)

    def messages(self, agreed: Callable[[bool], bool] = bool) -> dict[Leg, tuple[Tree, ...]]:
        """The batch that is complete: of each stream one message for each lane. Views of the slots.

        Where all records are valid their marks are left out (``goes_unmarked``); ``agreed`` tells whether the replicas
        of one program all may.
        """
        found = {leg: tuple(self._message(leg, m) for m in self._batch[leg]) for leg in self._collectors}
        if self._unmarked and agreed(all(map(self._all_valid, self._unmarked))):
            found |= {leg: tuple(unmarked(block) for block in found[leg]) for leg in self._unmarked}
        return found

    def _all_valid(self, leg: Leg) -> bool:
        """Looked at where they came, which no device has to be waited for."""
        return all(all_valid(self.forms[leg].unflatten(message.arrays)) for message in self._batch[leg])

    def _message(self, leg: Leg, message: Message) -> Tree:
        """As it is in its slot; its observations where act has left them on this device, if it has."""
        arrays = message.arrays if self._brought is None else self._brought.arrays(leg, message)
        block = self.forms[leg].unflatten(arrays)
        left = self._left.take(leg[0], message.stamp.producer, message.stamp.sequence)
        if left is None:
            return block
        return block._replace(steps=block.steps._replace(observation=left))

    def shapes(self) -> tuple[dict[Leg, tuple[Tree, ...]], dict[str, Tree]]:
        """The shapes of a batch as ``messages`` gives it, and some noise: to compile with before the first has come."""
        batches = {
            leg: (unmarked(form.schema) if leg in self._unmarked else form.schema,) * self._collectors[leg].pieces
            for leg, form in self.forms.items()
        }
        return batches, {name: self.acts[name].noise(keys, np.int32(1)) for name, keys in self._keys.items()}

    def joined(self, leg: Leg, messages: tuple[Tree, ...]) -> Tree:
        """The messages of a stream, as ``messages`` gives them, side by side. To be traced."""
        return join(messages, self._like(self.forms[leg].axes, messages[0]))

    @property
    def oldest(self) -> int:
        """The oldest version of the params that made the batch."""
        return min(message.stamp.version for found in self._batch.values() for message in found)

    @property
    def samples(self) -> int:
        """Environment steps in a batch."""
        return sum(reader.wire.samples for collector in self._collectors.values() for reader in collector.readers)

    def noise(self) -> dict[str, Tree]:
        """What act was handed in the batch, ``[T, B, ...]``, drawn again for those whose extras are recalled."""
        drawn: dict[str, Tree] = {}
        for (name, _), found in self._batch.items():
            if name in self.acts:
                step = np.int32(found[0].stamp.sequence * self._unroll[name] + 1)
                drawn[name] = self.acts[name].noise(self._keys[name], step)
        return drawn

    def spreads(self) -> dict[Leg, tuple[Tree, ...]]:
        """How the messages of a batch lie over several learners' devices."""
        return {leg: (form.spreads(),) * self._collectors[leg].pieces for leg, form in self.forms.items()}

    def leaf_spreads(self, batches: dict[Leg, tuple[Tree, ...]]) -> dict[Leg, tuple[Tree, ...]]:
        """The same, a leaf for each of ``batches``."""
        return {
            leg: tuple(self._like(spread, message) for spread, message in zip(found, batches[leg], strict=True))
            for leg, found in self.spreads().items()
        }

    @staticmethod
    def _like(form: Tree, message: Tree) -> Tree:
        """A tree in the form of a stream's messages, without marks where ``message`` has none."""
        bare = isinstance(message, Block) and message.steps.valid is None
        return unmarked(form) if bare else form

    def count_lags(self, version: int) -> None:
        """Count the lags of the batch that is about to be trained on."""
        for collector in self._collectors.values():
            collector.count_lags(version)

    def take_lags(self) -> list[tuple[int, int]]:
        """The lags that were counted since this was asked last, and how often each."""
        lags: dict[int, int] = {}
        for collector in self._collectors.values():
            for lag, count in collector.lags.items():
                lags[lag] = lags.get(lag, 0) + count
            collector.lags = {}
        return sorted(lags.items())

    def trained(self, after: int, *, count: bool = True) -> None:
        """The batch was used; params of version ``after`` follow. ``count`` False: another side counts it."""
        for collector in self._collectors.values():
            collector.trained(after, count=count)
        self._batch = {}
        if self._brought is not None:
            self._brought.keep((leg, m.stamp) for leg, collector in self._collectors.items() for m in collector.look())
