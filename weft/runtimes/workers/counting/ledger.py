"""The ledger of a run in workers, read from the account: each count from where it happens, whoever was killed."""

from __future__ import annotations

import time

from weft.runtimes.workers.counting.account import Account, OfGrad, OfLane, OfLearner
from weft.runtimes.workers.layout.blueprint import Blueprint
from weft.telemetry.ledger import Ledger

GLANCE_SECONDS, PATIENCE_SECONDS = 0.05, 2.0
"""For how long the account is read again until it adds up: workers go on counting, one word after another."""


class AccountLedger:
    """Keeps the ledger over the lives of workers. ``unroll`` is T; ``base`` what came before these workers."""

    def __init__(self, blueprint: Blueprint, unroll: int) -> None:
        self.blueprint = blueprint
        self.base = Ledger()
        self._steps = blueprint.lanes[0].rows * unroll  # of one unroll
        self._first = 0
        self._account: Account | None = None

    def open(self, account: Account, first: int) -> None:
        """New workers count in ``account``; their lanes begin with unroll ``first``.

        In lockstep its number says which params make it, and its noise.
        """
        self._account, self._first = account, first
        lanes = account.lanes
        lanes[:, OfLane.COMMITTED] = lanes[:, OfLane.RELEASED] = first
        lanes[:, OfLane.PRODUCED] = first * self._steps
        account.learners[:, list(OfGrad)] = first

    def go_back(self, ledger: Ledger) -> None:
        """Go on from a ledger that was saved, with new workers: what was in flight then is gone."""
        self.base = ledger
        self.base.drop("interrupted", ledger.in_flight)
        self.base.in_flight = 0

    def settle(self, trained: int) -> None:
        """The learners died: ``trained`` steps are in the checkpoint they go on from, all else they took is lost."""
        assert self._account is not None
        words = self._account.learners
        taken = int(self._account.lanes[:, OfLane.RELEASED].sum())
        if self.blueprint.central:  # the rows before the last are of grad sides, which are alive and count on
            words, taken = words[-1:], int(words[:, OfGrad.TAKEN].sum()) * self.blueprint.pieces
        words[:, [OfLearner.TRAINED, OfLearner.DIED]] = 0
        words[-1, OfLearner.TRAINED] = trained - self.base.trained
        words[-1, OfLearner.DIED] = taken * self._steps - int(words[:, list(OfLearner)].sum())

    def ledger(self, trained: int = 0, seconds: float = GLANCE_SECONDS) -> Ledger:
        """The whole run's. What was read while workers were counting is read again, for up to ``seconds``.

        At least ``trained`` steps were trained on: the first learner tells, and the others may be about to count.
        """
        deadline = time.monotonic() + seconds
        while True:
            ledger = self._read()
            if (ledger.balanced and ledger.trained >= trained) or time.monotonic() > deadline:
                return ledger
            time.sleep(0.001)

    def _read(self) -> Ledger:
        assert self._account is not None
        lanes, learners, steps = self._account.lanes, self._account.learners, self._steps
        before = self._first * len(lanes) * steps  # numbered, and made by workers that are gone
        produced, lost = int(lanes[:, OfLane.PRODUCED].sum()) - before, int(lanes[:, OfLane.LOST].sum())
        committed = int(lanes[:, OfLane.COMMITTED].sum()) * steps - before
        released = int(lanes[:, OfLane.RELEASED].sum()) * steps - before
        ledger = Ledger(produced, int(learners[:, OfLearner.TRAINED].sum()))
        ledger.in_flight = (produced - lost - committed) + (committed - released)  # half built, and on their way
        ledger.in_flight += self._in_gradients()
        ledger.drop("worker died", lost + int(learners[:, OfLearner.LOST].sum()))
        ledger.drop("stale", int(learners[:, OfLearner.STALE].sum()))
        ledger.drop("learner died", int(learners[:, OfLearner.DIED].sum()))
        ledger.merge(self.base)
        return ledger

    def _in_gradients(self) -> int:
        """Environment steps of gradients that apply has not taken, or that were never sent by who was killed.

        A grad side releases a gradient's unrolls before it sends it. Its next life counts what came of that; until
        then, and while it is doing so, they are on their way.
        """
        assert self._account is not None
        lanes, learners, pieces = self._account.lanes, self._account.learners, self.blueprint.pieces
        on_their_way = 0
        for side in self.blueprint.kind("grad"):
            words = learners[side.rank]
            dropped = int(words[list(OfLearner)].sum()) // self._steps
            released, sent = int(lanes[list(side.lanes), OfLane.RELEASED].sum()), int(words[OfGrad.SENT])
            on_their_way += (sent - int(words[OfGrad.TAKEN])) * pieces
            on_their_way += max(0, released - dropped - sent * pieces)  # below 0 would be a mistake: let it be seen
        return on_their_way * self._steps
