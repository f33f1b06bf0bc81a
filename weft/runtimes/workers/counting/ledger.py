"""The ledger of a run in workers, read from the account by rule: each count from where it happens, whatever was killed.

on a wire       sent + extra - taken, in messages of so many samples; extra: see ``cluster/words.py``, 0 on one host
where unrolls   produced - given up - sent: half built
are made
in transit      taken + added - dropped - sent: what a map or a gradient has taken and not yet handed on
where they end  taken = trained + dropped; nothing is derived there, so that the ledger can fail to balance. They end in
                a learner, or in a store in a worker of its own: how often it is drawn from there is not the ledger's
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from weft.graph.role import role
from weft.runtimes.workers.counting.account import DROPPED, Account, Fate, OfSide, OfWire
from weft.runtimes.workers.layout.blueprint import Blueprint, Side, Wire
from weft.telemetry.ledger import Ledger

GLANCE_SECONDS, PATIENCE_SECONDS = 0.05, 2.0
"""For how long the account is read again until it adds up: workers go on counting, one word after another."""


class AccountLedger:
    """Keeps the ledger over the lives of workers; ``base`` and ``env_steps`` are what came before these workers."""

    def __init__(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self.base = Ledger()
        self.base_trained: dict[str, int] = {}  # by the fragment that trained
        self.base_steps = 0
        self._counted = [wire for wire in blueprint.wires if wire.samples]
        self.stores = [side for side in blueprint.sides if role(side.role).stores]
        self._account: Account | None = None
        self._before: dict[int, tuple[int, int, int]] = {}  # by wire: sent, taken, produced, as these workers began

    def open(self, account: Account, steps: Mapping[str, list[int]], version: int) -> None:
        """New workers count in ``account``.

        ``steps``, where they go on: of each fragment that makes unrolls, the steps that its environments have made, by
        environment. The numbers of messages go on from there, and with them the noise and the step that act is told.
        Where nothing stood still there may be half an unroll among them, which is gone.
        """
        self._account = account
        for wire in self._counted:
            words = account.wires[wire.index]
            made = steps.get(wire.source)
            if made is not None and wire.lane >= 0:
                lane = self.blueprint.lanes[wire.lane]
                words[OfWire.SENT] = words[OfWire.TAKEN] = made[lane.first] * lane.rows // wire.samples
                words[OfWire.PRODUCED] = words[OfWire.SENT] * wire.samples
            words[OfWire.AFTER] = version
            now = (int(words[OfWire.SENT]), int(words[OfWire.TAKEN]), int(words[OfWire.PRODUCED]))
            self._before[wire.index] = now

    def steps(self) -> dict[str, list[int]]:
        """What ``open`` wants of the fragments that make unrolls: the steps of each environment, now."""
        assert self._account is not None
        made: dict[str, list[int]] = {}
        for wire in self._counted:
            if wire.lane >= 0:
                rows = self.blueprint.lanes[wire.lane].rows
                produced = int(self._account.wires[wire.index][OfWire.PRODUCED])
                made.setdefault(wire.source, []).extend([produced // rows] * rows)
        return {source: steps for source, steps in made.items() if any(steps)}

    def go_back(self, ledger: Ledger, trained: Mapping[str, int], env_steps: int) -> None:
        """Go on from a ledger that was saved, with new workers: what was in flight then is gone."""
        self.base, self.base_trained, self.base_steps = ledger, dict(trained), env_steps
        self.base.drop("interrupted", ledger.in_flight)
        self.base.in_flight = 0

    def settle(self, trained: Mapping[str, int]) -> None:
        """The learners died: so many steps, by fragment, are in the checkpoint; all else that they took is lost."""
        assert self._account is not None
        for name in self.blueprint.publishers:
            sides = self.blueprint.sides_of(name)
            words = self._account.sides[[side.index for side in sides]]
            words[:, [Fate.TRAINED, Fate.DIED]] = 0
            words[-1, Fate.TRAINED] = trained.get(name, 0) - self.base_trained.get(name, 0)
            fates = words[:, [Fate.TRAINED, *DROPPED]].sum()
            had = sum(self._taken(side) for side in sides) + int(words[:, Fate.ADDED].sum())
            words[-1, Fate.DIED] = had - int(fates)
            self._account.sides[[side.index for side in sides]] = words

    def settle_store(self, side: Side, delivered: int) -> None:
        """A store's worker died, and goes on from a state to which so many steps had come: the others are lost."""
        assert self._account is not None
        words = self._account.sides[side.index]
        words[Fate.TRAINED] = delivered
        others = sum(int(words[fate]) for fate in DROPPED if fate is not Fate.LOST)
        words[Fate.LOST] = self._taken(side) - delivered - others

    def delivered_until(self, trained: Mapping[str, int]) -> dict[int, int]:
        """What ``settle_store`` wants, by side, of a store whose state was saved with ``trained``."""
        return {s.index: trained.get(s.name, 0) - self.base_trained.get(s.name, 0) for s in self.stores}

    def trained(self, delivered: Mapping[int, int] | None = None) -> dict[str, int]:
        """Environment steps trained on in the whole run, by the fragment that did; of stores by side.

        ``delivered``: what had come to each store when its state was saved.
        """
        assert self._account is not None
        now = {
            name: sum(int(self._account.sides[side.index][Fate.TRAINED]) for side in self.blueprint.sides_of(name))
            for name in self.blueprint.publishers
        }
        words = self._account.sides
        now |= {s.name: int(words[s.index][Fate.TRAINED]) for s in self.stores}
        now |= {s.name: delivered[s.index] for s in self.stores if delivered and s.index in delivered}
        return {name: count + self.base_trained.get(name, 0) for name, count in now.items()}

    def env_steps(self) -> int:
        """Environment steps made in the whole run, counted where they are made."""
        assert self._account is not None
        return self.base_steps + int(self._account.sides[:, OfSide.STEPS].sum())

    def ledger(
        self, trained: int = 0, seconds: float = GLANCE_SECONDS, delivered: Mapping[int, int] | None = None
    ) -> Ledger:
        """The whole run's. What was read while workers were counting is read again, for up to ``seconds``.

        At least ``trained`` steps were trained on: the first learner tells, and the others may be about to count. What
        came to stores beyond ``delivered`` is in flight: it is not in the states that were saved.
        """
        deadline = time.monotonic() + seconds
        while True:
            ledger = self._read(delivered or {})
            if (ledger.balanced and ledger.trained >= trained) or time.monotonic() > deadline:
                return ledger
            time.sleep(0.001)

    def _read(self, delivered: Mapping[int, int]) -> Ledger:
        assert self._account is not None
        wires, sides = self._account.wires, self._account.sides
        produced = in_flight = given_up = 0
        for wire in self._counted:
            words = wires[wire.index]
            made = int(words[OfWire.PRODUCED]) - self._before[wire.index][2]
            sent, taken = self._sent(wire), self._since(wire, OfWire.TAKEN) * wire.samples
            # What was taken was sent and made, also where a host that is lost, or late, has not said so.
            extra = max(int(words[OfWire.EXTRA]) * wire.samples, taken - sent if self._account.copied else 0)
            in_flight += sent + extra - taken
            produced += extra
            if made or int(words[OfWire.GIVEN_UP]):  # an unroll's first leg
                produced, given_up = produced + made, given_up + int(words[OfWire.GIVEN_UP])
                in_flight += made - int(words[OfWire.GIVEN_UP]) - sent
        for index in self.blueprint.transit:
            in_flight += self._inside(self.blueprint.sides[index])
        added = int(sides[:, Fate.ADDED].sum())
        trained = sides[:, Fate.TRAINED].copy()
        late = sum(int(trained[side]) - until for side, until in delivered.items())
        ledger = Ledger(produced + added, int(trained.sum()) - late)
        ledger.in_flight = in_flight + late
        ledger.drop("worker died", given_up + int(sides[:, Fate.LOST].sum()))
        ledger.drop("stale", int(sides[:, Fate.STALE].sum()))
        ledger.drop("learner died", int(sides[:, Fate.DIED].sum()))
        ledger.drop("filtered", int(sides[:, Fate.FILTERED].sum()))
        ledger.merge(self.base)
        return ledger

    def _inside(self, side: Side) -> int:
        """Samples that a side has taken and not yet handed on, or that were lost with its last life.

        Its next life counts those as lost; until then they are in flight. A count below 0 would be a mistake: it is
        left out, so that the ledger does not balance.
        """
        return max(0, taken_and_not_sent(self._account, self.blueprint, side, self._before))

    def _taken(self, side: Side) -> int:
        into = [wire for wire in self._counted if side.index in wire.readers]
        return sum(self._since(wire, OfWire.TAKEN) * wire.samples for wire in into)

    def _sent(self, wire: Wire) -> int:
        return self._since(wire, OfWire.SENT) * wire.samples

    def _since(self, wire: Wire, word: OfWire) -> int:
        assert self._account is not None
        return int(self._account.wires[wire.index][word]) - self._before[wire.index][int(word)]


def taken_and_not_sent(
    account: Account | None, blueprint: Blueprint, side: Side, before: Mapping[int, tuple[int, int, int]] | None = None
) -> int:
    """Samples that a side in transit has taken from its wires and neither handed on nor dropped.

    ``before``: the counts with which its wires began; unless given, equal numbers on both sides of it.
    """
    assert account is not None
    began = before or {}
    inside = 0
    for wire in blueprint.wires:
        if not wire.samples:
            continue
        words = account.wires[wire.index]
        first = began.get(wire.index, (0, 0, 0))
        if side.index in wire.readers:
            inside += (int(words[OfWire.TAKEN]) - first[1]) * wire.samples
        if wire.writer == side.index:
            inside -= (int(words[OfWire.SENT]) - first[0]) * wire.samples
    fates = account.sides[side.index]
    return inside + int(fates[Fate.ADDED]) - sum(int(fates[fate]) for fate in (Fate.TRAINED, *DROPPED))
