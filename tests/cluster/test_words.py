"""Words of the account that travel between hosts: copied whole; the ledger is exact whatever a lost host had told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from drafts import drafted

from weft.runtimes.cluster.words import Owned
from weft.runtimes.workers.counting.account import Account, Fate, OfSide, OfWire
from weft.runtimes.workers.counting.ledger import AccountLedger
from weft.runtimes.workers.wires import WireReader
from weft.streams.channel import Message, Stamp

PLAN = "(env+act)*2 | learn"


@pytest.fixture
def account() -> Iterator[Account]:
    made = account_of(drafted(PLAN))
    yield made
    made.close()


def account_of(blueprint: Any) -> Account:
    return Account(len(blueprint.sides), len(blueprint.wires))


def test_the_words_of_all_workers_together_are_all_words(account: Account) -> None:
    """Every word that a side writes belongs to one worker, and is written where it was read."""
    blueprint, copy = drafted(PLAN), account_of(drafted(PLAN))
    rng = np.random.default_rng(0)
    account.sides[:] = rng.integers(1, 100, account.sides.shape)
    account.wires[:, : max(OfWire) + 1] = rng.integers(1, 100, (len(blueprint.wires), max(OfWire) + 1))
    for worker in blueprint.workers:
        owned = Owned(blueprint, [worker.index])
        owned.write(copy, owned.read(account))
    np.testing.assert_array_equal(copy.sides, account.sides)
    counted = [wire.index for wire in blueprint.wires if wire.samples]
    np.testing.assert_array_equal(copy.wires[counted], account.wires[counted])
    copy.close()


def test_words_of_another_size_are_refused(account: Account) -> None:
    owned = Owned(drafted(PLAN), [0])
    with pytest.raises(ValueError, match="are not the"):
        owned.write(account, np.zeros(3, np.int64))


class Inbox:
    """A reader's end by hand."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.noted = -1

    def send(self, life: int, sequence: int) -> None:
        self.messages.append(Message(Stamp(0, life, sequence, 0, 0, 0), [], len(self.messages)))

    def receive(self, timeout: float | None = None) -> Message | None:
        return self.messages.pop(0) if self.messages else None

    def release(self, message: Message) -> None:
        pass

    def note(self, number: int) -> None:
        self.noted = number


def reader_of(wire: Any, inbox: Inbox, account: Account, side: int) -> WireReader:
    reader: Any = inbox
    return WireReader(wire, reader, account, side)


@pytest.mark.parametrize("told", range(5))
@pytest.mark.parametrize("came", range(5))
@pytest.mark.parametrize("reader_dies", [False, True])
def test_a_host_that_is_lost_leaves_the_ledger_exact(told: int, came: int, reader_dies: bool) -> None:
    """Of the unrolls that a host sent it had told of ``told``, and ``came`` came before its next life is made."""
    blueprint = drafted(PLAN)
    head = account_of(blueprint)
    head.copied = True
    ledger = AccountLedger(blueprint)
    ledger.open(head, {}, 0)
    wire = next(w for w in blueprint.wires if w.samples)
    words, inbox, side = head.wires[wire.index], Inbox(), wire.readers[0]
    words[OfWire.SENT], words[OfWire.PRODUCED] = told, told * wire.samples + 3  # and three steps half built
    reader = reader_of(wire, inbox, head, side)

    def train() -> None:
        while (message := reader.receive()) is not None:
            reader.take(message, Fate.TRAINED)

    for sequence in range(came):
        inbox.send(0, sequence)
    train()
    assert ledger.ledger().balanced
    assert ledger.ledger().in_flight >= 0
    # Its next life, elsewhere, goes on from what the head knows: as UnrollWriter and WireWriter do.
    words[OfWire.GIVEN_UP] += words[OfWire.PRODUCED] - words[OfWire.GIVEN_UP] - words[OfWire.SENT] * wire.samples
    assert ledger.ledger().balanced
    if reader_dies:
        reader = reader_of(wire, inbox, head, side)
    first = int(words[OfWire.SENT])
    for sequence in range(first, first + 2):
        words[OfWire.PRODUCED] += wire.samples
        words[OfWire.SENT] += 1
        inbox.send(1, sequence)
    inbox.send(0, 4)  # of the life that is gone: late
    train()
    found = ledger.ledger()
    assert found.balanced
    assert found.in_flight == 0
    assert found.trained == (came + 2) * wire.samples, "each that came is trained on once, and none that is late"
    assert found.dropped.get("worker died", 0) == max(told - came, 0) * wire.samples + 3
    assert reader_of(wire, inbox, head, side).expected == first + 2
    head.close()


def test_copies_of_different_moments_balance(account: Account) -> None:
    """A learner's host has told more than the hosts that sent to it."""
    blueprint = drafted(PLAN)
    account.copied = True
    ledger = AccountLedger(blueprint)
    ledger.open(account, {}, 0)
    wire = next(w for w in blueprint.wires if w.samples)
    account.wires[wire.index][OfWire.TAKEN] = 2
    account.sides[wire.readers[0]][Fate.TRAINED] = 2 * wire.samples
    found = ledger.ledger()
    assert found.balanced
    assert (found.produced, found.in_flight) == (2 * wire.samples, 0)
    assert int(account.sides[:, OfSide.STEPS].sum()) == 0


def test_on_one_host_more_taken_than_sent_is_a_mistake_that_shows(account: Account) -> None:
    blueprint = drafted(PLAN)
    ledger = AccountLedger(blueprint)
    ledger.open(account, {}, 0)
    wire = next(w for w in blueprint.wires if w.samples)
    account.wires[wire.index][OfWire.TAKEN] = 2
    account.sides[wire.readers[0]][Fate.TRAINED] = 2 * wire.samples
    assert ledger.ledger().in_flight < 0
