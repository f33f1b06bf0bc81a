"""Words of the account that travel between hosts, and the argument why the ledger stays exact.

Each host has an account of its own, of the same size, and in it every word still has one writer. While a worker lives
its host owns the words that it writes: those of its sides, and of its wires those that a writer or a reader writes. Its
host's agent copies them to the head, several times a second and before everything that it says of the worker, so that
the head never hears of a learn step whose samples it has not counted. While it does not live, the head owns them: it
settles them, and sends them along with the task of its next life, wherever that is.

*No count is torn.* A copy is read again until what the ledger adds up has not changed meanwhile, so that on the host
where samples end, taken = trained + dropped holds in each copy.

*Copies of two hosts are of different moments.* Of a wire between them the head may know taken > sent. A message is
numbered before it is sent, so those were sent: the ledger takes sent to be at least taken, and produced with it. In the
sum, sent cancels out; the ledger balances with copies of any age.

*A host that is gone* leaves its last copy. What it did after that is known only by what others saw:

- It sent messages of which no copy tells. Those that came are taken, beyond the number that the head knows as sent. Its
  next life begins at that number, with the next life in its stamp; the reader sees both, and counts the difference as
  EXTRA (``workers/wires.py``): sent, produced and taken. Those that did not come were never part of the run.
- It sent messages that are in its copy and never came: a gap in the numbers, which the reader counts as lost.
- It took messages after its copy. Their writer has given the slots away; its successor expects the first of them, sees
  a later one, and counts the gap as lost. What a learner trained on since its checkpoint is settled as ever.
- What a map of a lost host handed on after its copy is counted both as lost there, by its successor, and as EXTRA after
  it: the sums agree, and the two counts are too high by the same.

Only the head's own count of env steps falls behind by what nobody saw: steps that came to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from weft.core.delivery import Delivery
from weft.runtimes.workers.counting.account import DROPPED, Account, Fate, OfWire
from weft.runtimes.workers.layout.blueprint import Blueprint

OF_WRITER = (OfWire.SENT, OfWire.BEGUN, OfWire.PRODUCED, OfWire.GIVEN_UP, OfWire.VERSION)
OF_READER = (OfWire.TAKEN, OfWire.AFTER, OfWire.READER_LIFE, OfWire.EXTRA, OfWire.WRITER_LIFE)
_LEDGER = [int(fate) for fate in (Fate.TRAINED, Fate.ADDED, *DROPPED)]
_TRIES = 16


class Owned:
    """The words that some workers write: read as one array, and written from it in another account."""

    def __init__(self, blueprint: Blueprint, workers: Iterable[int]) -> None:
        mine = set(workers)
        self._sides = [side.index for side in blueprint.sides if side.worker in mine]
        writes = [wire.index for wire in blueprint.wires if blueprint.sides[wire.writer].worker in mine]
        reads = [
            wire.index
            for wire in blueprint.wires
            if wire.delivery is not Delivery.LATEST and {blueprint.sides[r].worker for r in wire.readers} & mine
        ]
        self._written = np.ix_(writes, [int(word) for word in OF_WRITER])
        self._read = np.ix_(reads, [int(word) for word in OF_READER])

    def read(self, account: Account) -> np.ndarray[Any, Any]:
        """[words] int64, as they were at one moment, as far as the ledger goes."""
        sides = account.sides[self._sides]
        counted = self._counted(account, sides)
        for _ in range(_TRIES):
            sides = account.sides[self._sides]
            again = self._counted(account, sides)
            if np.array_equal(counted, again):
                break
            counted = again
        return np.concatenate([sides.reshape(-1), counted[sides[:, _LEDGER].size :]])

    def write(self, account: Account, words: np.ndarray[Any, Any]) -> None:
        """Store what ``read`` gave elsewhere. Raises ValueError where it is not of this size."""
        shapes = (
            (len(self._sides), account.sides.shape[1]),
            account.wires[self._written].shape,
            account.wires[self._read].shape,
        )
        counts = [int(np.prod(shape)) for shape in shapes]
        if words.dtype != np.int64 or words.shape != (sum(counts),):
            raise ValueError(f"{words.dtype}{words.shape} are not the {sum(counts)} words of these workers")
        sides, written, read = np.split(words, np.cumsum(counts)[:-1])
        account.wires[self._written] = written.reshape(shapes[1])
        account.wires[self._read] = read.reshape(shapes[2])
        account.sides[self._sides] = sides.reshape(shapes[0])

    def _counted(self, account: Account, sides: Any) -> np.ndarray[Any, Any]:
        """What the ledger adds up, in the order in which it is sent after the words of the sides."""
        wires = account.wires
        parts = (sides[:, _LEDGER], wires[self._written], wires[self._read])
        return np.concatenate([np.asarray(part).reshape(-1) for part in parts])


def begun(blueprint: Blueprint) -> dict[int, dict[int, list[int]]]:
    """By the host of their writers and that of their readers, the counted wires between two hosts.

    Learners look at what is being built for them.
    """
    found: dict[int, dict[int, list[int]]] = {}
    for wire in blueprint.wires:
        source = blueprint.host_of(wire.writer)
        for host in blueprint.hosts_of(wire) - {source} if wire.samples else ():
            found.setdefault(source, {}).setdefault(host, []).append(wire.index)
    return found
