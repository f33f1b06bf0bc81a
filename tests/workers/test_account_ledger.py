"""The ledger read from the account: words by hand, one store at a time, with a kill after each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from drafts import UNROLL, drafted, loop, same, side, two_policies

from weft.graph.graph import Graph
from weft.runtimes.workers.counting import ledger as ledger_module
from weft.runtimes.workers.counting.account import Account, Fate, OfSide, OfWire
from weft.runtimes.workers.counting.ledger import AccountLedger, taken_and_not_sent
from weft.telemetry.ledger import Ledger

ENVS = 8
SAMPLES = ENVS * UNROLL  # of one unroll of every environment
MAPPED, ON_GRADIENTS = loop().insert("mine", same), loop().insert("mine", same, on="gradients")


class Books:
    """An account whose words a test writes as sides do, and the ledger over it."""

    def __init__(self, plan: str, graph: Graph | None = None, envs: int = ENVS, **manner: Any) -> None:
        self.blueprint = drafted(plan, envs, graph=graph, **manner)
        self.account = Account(len(self.blueprint.sides), len(self.blueprint.wires))
        self.ledger = AccountLedger(self.blueprint)
        self.ledger.open(self.account, {}, 0)

    def add(self, wire: str, word: OfWire, count: int = 1) -> Callable[[], None]:
        """A store into a wire's words, to be made later."""
        words = self.account.wires[self.blueprint.wire(wire).index]
        return lambda: words.__setitem__(word, words[word] + count)

    def fate(self, name: str, fate: Fate, samples: int) -> Callable[[], None]:
        words = self.account.sides[self.at(name)]
        return lambda: words.__setitem__(fate, words[fate] + samples)

    def at(self, name: str) -> int:
        return next(each.index for each in self.blueprint.sides if each.name == name)

    def make(self, *wires: str) -> None:
        """An unroll on each of these wires, sent."""
        for wire in wires:
            self.add(wire, OfWire.PRODUCED, self.blueprint.wire(wire).samples)()
            self.add(wire, OfWire.SENT)()

    # ---- what next lives do when they are made ----

    def revive_act(self) -> None:
        """What was half built is given up."""
        for wire in self.blueprint.wires:
            words = self.account.wires[wire.index]
            if words[OfWire.PRODUCED]:
                built = words[OfWire.PRODUCED] - words[OfWire.GIVEN_UP] - words[OfWire.SENT] * wire.samples
                words[OfWire.GIVEN_UP] += built

    def revive(self, name: str, fate: Fate) -> None:
        """What a side in transit had taken and not handed on is counted by its next life."""
        index = self.at(name)
        missing = taken_and_not_sent(self.account, self.blueprint, self.blueprint.sides[index])
        assert missing >= 0
        self.account.sides[index][fate] += missing

    def read(self) -> Ledger:
        return self.ledger.ledger(seconds=0.0)

    def check(self) -> Ledger:
        ledger = self.read()
        assert ledger.balanced, ledger.to_json()
        return ledger


@pytest.fixture
def books() -> Iterator[Callable[..., Books]]:
    made: list[Books] = []

    def make(*args: Any, **how: Any) -> Books:
        made.append(Books(*args, **how))
        return made[-1]

    yield make
    for one in made:
        one.account.close()


def through_a_map(b: Books) -> list[tuple[str, Callable[[], None]]]:
    """One unroll from act through a map to learn, store by store, and which side makes each of them."""
    steps = [("act", b.add("unroll/0", OfWire.PRODUCED, ENVS)) for _ in range(UNROLL)]
    return [
        *steps,
        ("act", b.add("unroll/0", OfWire.SENT)),
        ("mine", b.add("unroll/0", OfWire.TAKEN)),
        ("mine", b.add("unroll.mine/0", OfWire.SENT)),
        ("learn", b.add("unroll.mine/0", OfWire.TAKEN)),
        ("learn", b.fate("learn-0", Fate.TRAINED, SAMPLES)),
    ]


STORES = UNROLL + 5


@pytest.mark.parametrize("killed", ["act", "mine", "learn", "nobody"])
@pytest.mark.parametrize("after", range(STORES + 1))
def test_act_map_learn_balances_whoever_is_killed_after_any_store(books, after, killed):
    b = books("env+act | mine | learn", MAPPED)
    for _, store in through_a_map(b):
        store()
    b.check()
    stores = through_a_map(b)
    for who, store in stores[:after]:
        store()
        if who != "learn":  # it tells of what it took in a second store
            b.check()
    {
        "act": b.revive_act,
        "mine": lambda: b.revive("mine-0", Fate.LOST),
        "learn": lambda: b.ledger.settle({"learn": SAMPLES}),
        "nobody": lambda: None,
    }[killed]()
    between = after == STORES - 1  # learn has taken, and not counted
    if between and killed != "learn":
        assert b.read().missing == SAMPLES
        return
    ledger = b.check()
    assert ledger.produced == SAMPLES + min(after, UNROLL) * ENVS
    if killed == "learn":
        assert ledger.trained == SAMPLES, "what is in the checkpoint"
        assert ledger.dropped.get("learner died", 0) == (SAMPLES if after >= STORES - 1 else 0)
    elif killed == "mine":
        assert ledger.dropped == ({"worker died": SAMPLES} if after == UNROLL + 2 else {})
    elif killed == "act":
        assert ledger.dropped == ({"worker died": after * ENVS} if 0 < after <= UNROLL else {})


@pytest.mark.parametrize("after", range(10))
def test_a_map_that_gives_more_or_less_balances_after_any_store(books, after):
    """Of one unroll two, of the next none; killed after any store, and its next life made."""
    b = books("env+act | mine | learn", MAPPED)
    b.make("unroll/0")
    stores = [
        b.add("unroll/0", OfWire.TAKEN),
        b.fate("mine-0", Fate.ADDED, SAMPLES),
        b.add("unroll.mine/0", OfWire.SENT),
        b.add("unroll.mine/0", OfWire.SENT),
        lambda: b.make("unroll/0"),
        b.add("unroll/0", OfWire.TAKEN),
        b.fate("mine-0", Fate.FILTERED, SAMPLES),
    ]
    for store in stores[:after]:
        store()
        b.check()
    b.revive("mine-0", Fate.LOST)
    ledger = b.check()
    assert b.read().in_flight == b.account.wires[b.blueprint.wire("unroll.mine/0").index][OfWire.SENT] * SAMPLES + (
        SAMPLES if after in (0, 5) else 0
    )
    if after >= 7:
        assert ledger.to_json() == {
            "produced": 3 * SAMPLES,
            "trained": 0,
            "dropped": {"filtered": SAMPLES},
            "in_flight": 2 * SAMPLES,
        }


def through_a_gradient(b: Books) -> list[tuple[str, Callable[[], None]]]:
    """A message of each of two lanes, a gradient of both, and its update."""
    half = SAMPLES // 2
    return [
        ("act", b.add("unroll/0", OfWire.PRODUCED, half)),
        ("act", b.add("unroll/0", OfWire.SENT)),
        ("act", b.add("unroll/1", OfWire.PRODUCED, half)),
        ("act", b.add("unroll/1", OfWire.SENT)),
        ("grad", b.add("unroll/0", OfWire.TAKEN)),
        ("grad", b.add("unroll/1", OfWire.TAKEN)),
        ("grad", b.add("gradients/0", OfWire.SENT)),
        ("apply", b.add("gradients/0", OfWire.TAKEN)),
        ("apply", b.fate("apply-0", Fate.TRAINED, SAMPLES)),
    ]


@pytest.mark.parametrize("killed", ["act", "grad", "apply", "nobody"])
@pytest.mark.parametrize("after", range(10))
def test_act_grad_apply_balances_whoever_is_killed_after_any_store(books, after, killed):
    b = books("(env+act)*2 | grad | apply")
    for _, store in through_a_gradient(b):
        store()
    for who, store in through_a_gradient(b)[:after]:
        store()
        if who != "apply":
            b.check()
    {
        "act": b.revive_act,
        "grad": lambda: b.revive("grad-0", Fate.DIED),
        "apply": lambda: b.ledger.settle({"apply": SAMPLES}),
        "nobody": lambda: None,
    }[killed]()
    if after == 8 and killed != "apply":
        assert b.read().missing == SAMPLES
        return
    ledger = b.check()
    if killed == "grad":
        taken = {5: SAMPLES // 2, 6: SAMPLES}.get(after, 0)
        assert ledger.dropped == ({"learner died": taken} if taken else {})
    elif killed == "apply":
        assert ledger.trained == SAMPLES
        assert ledger.dropped == ({"learner died": SAMPLES} if after >= 8 else {})


def test_what_grad_drops_on_arrival_does_not_stay_in_it(books):
    b = books("(env+act)*2 | grad | apply")
    b.make("unroll/0", "unroll/1")
    b.add("unroll/0", OfWire.TAKEN)()
    assert b.check().in_flight == SAMPLES
    b.fate("grad-0", Fate.STALE, SAMPLES // 2)()
    ledger = b.check()
    assert (ledger.in_flight, ledger.dropped) == (SAMPLES // 2, {"stale": SAMPLES // 2})


def test_gradients_through_a_map_carry_their_samples(books):
    b = books("(env+act+grad)*2 | mine | apply", ON_GRADIENTS)
    for rank in range(2):
        b.make(f"unroll/{rank}")
        b.add(f"unroll/{rank}", OfWire.TAKEN)()
        b.add(f"gradients/{rank}", OfWire.SENT)()
        b.add(f"gradients/{rank}", OfWire.TAKEN)()
        assert b.check().in_flight == (rank + 1) * SAMPLES // 2
    b.add("gradients.mine/0", OfWire.SENT)()
    b.check()
    b.revive("mine-0", Fate.LOST)
    assert b.check().dropped == {"worker died": SAMPLES // 2}


def test_a_gap_is_lost_and_counted_by_the_reader(books):
    b = books("env+act | learn")
    b.make("unroll/0", "unroll/0")
    b.add("unroll/0", OfWire.TAKEN)()
    b.fate("learn-0", Fate.LOST, SAMPLES)()
    b.add("unroll/0", OfWire.TAKEN)()
    b.fate("learn-0", Fate.TRAINED, SAMPLES)()
    assert b.check().to_json() == {
        "produced": 2 * SAMPLES,
        "trained": SAMPLES,
        "dropped": {"worker died": SAMPLES},
        "in_flight": 0,
    }


def test_a_mistake_is_seen(books):
    """Nothing is derived from the balance, so that it can fail."""
    b = books("env+act | mine | learn", MAPPED)
    b.make("unroll/0")
    b.add("unroll.mine/0", OfWire.SENT)()  # of nothing
    assert not b.read().balanced
    b = books("env+act | learn")
    b.make("unroll/0")
    b.add("unroll/0", OfWire.TAKEN)()
    b.fate("learn-0", Fate.TRAINED, 2 * SAMPLES)()
    assert b.read().missing == -SAMPLES


# ---- learners that die ----------------------------------------------------------------------------------------------


def test_when_two_learners_die_what_both_took_since_the_checkpoint_is_gone(books):
    b = books("env*2 | act | learn*2", ring=1)
    for lane, rank, messages in ((0, 0, 5), (1, 1, 4)):  # the second was killed before it had taken its fifth
        for _ in range(5):
            b.make(f"unroll/{lane}")
        for _ in range(messages):
            b.add(f"unroll/{lane}", OfWire.TAKEN)()
        b.fate(f"learn-{rank}", Fate.TRAINED, 4 * SAMPLES // 2)()
    b.fate("learn-0", Fate.STALE, SAMPLES // 2)()
    assert b.check().trained == 4 * SAMPLES
    assert b.ledger.trained() == {"learn": 4 * SAMPLES}
    b.ledger.settle({"learn": 3 * SAMPLES})
    ledger = b.check()
    assert ledger.to_json() == {
        "produced": 5 * SAMPLES,
        "trained": 3 * SAMPLES,
        "dropped": {"learner died": SAMPLES, "stale": SAMPLES // 2},
        "in_flight": SAMPLES // 2,
    }
    assert b.ledger.trained() == {"learn": 3 * SAMPLES}
    b.ledger.settle({"learn": 3 * SAMPLES})
    assert b.check() == ledger, "died again before anything was learned"
    b.ledger.settle({"learn": 2 * SAMPLES})
    assert b.check().dropped["learner died"] == 2 * SAMPLES, "and an older checkpoint was the last that is good"


def test_each_policys_learner_is_settled_by_its_own_checkpoint(books):
    b = books("env+act | learn.red | learn.blue", two_policies())
    for team, times in (("red", 3), ("blue", 2)):
        for _ in range(times):
            b.make(f"unroll.{team}/0")
            b.add(f"unroll.{team}/0", OfWire.TAKEN)()
            b.fate(f"learn.{team}-0", Fate.TRAINED, SAMPLES)()
    assert b.ledger.trained() == {"learn.red": 3 * SAMPLES, "learn.blue": 2 * SAMPLES}
    b.ledger.settle({"learn.red": 2 * SAMPLES, "learn.blue": 2 * SAMPLES})
    assert b.check().dropped == {"learner died": SAMPLES}
    assert b.ledger.trained() == {"learn.red": 2 * SAMPLES, "learn.blue": 2 * SAMPLES}


def test_what_came_before_these_workers_stays_counted(books):
    b = books("env+act | learn")
    b.ledger.go_back(Ledger(10 * SAMPLES, 7 * SAMPLES, {"stale": SAMPLES}, 2 * SAMPLES), {"learn": 7 * SAMPLES}, 1000)
    assert b.check().to_json() == {
        "produced": 10 * SAMPLES,
        "trained": 7 * SAMPLES,
        "dropped": {"interrupted": 2 * SAMPLES, "stale": SAMPLES},
        "in_flight": 0,
    }
    for _ in range(2):
        b.make("unroll/0")
        b.add("unroll/0", OfWire.TAKEN)()
        b.fate("learn-0", Fate.TRAINED, SAMPLES)()
    b.account.sides[b.at("env+act-0")][OfSide.STEPS] = 2 * SAMPLES
    assert b.ledger.env_steps() == 1000 + 2 * SAMPLES
    assert b.ledger.trained() == {"learn": 9 * SAMPLES}
    b.ledger.settle({"learn": 8 * SAMPLES})
    ledger = b.check()
    assert (ledger.trained, ledger.dropped["learner died"]) == (8 * SAMPLES, SAMPLES)


# ---- going on exactly -----------------------------------------------------------------------------------------------


def test_new_workers_go_on_from_the_steps_of_each_environment(books):
    first = books("env*2 | act | learn", lockstep=True)
    for lane in first.blueprint.lanes:
        for _ in range(3):
            first.make(f"unroll/{lane.index}")
            first.add(f"unroll/{lane.index}", OfWire.TAKEN)()
    steps = first.ledger.steps()
    assert steps == {"act": [3 * UNROLL] * ENVS}
    for plan in ("env*2 | act | learn", "env*4 | act*2 | learn*2", "(env+act)*2 | learn"):
        after = books(plan, lockstep=True)
        after.ledger.open(after.account, steps, version=3)
        for wire in after.blueprint.wires:
            if wire.samples:
                words = after.account.wires[wire.index]
                assert words[OfWire.SENT] == words[OfWire.TAKEN] == 3, "numbers go on, and with them the noise"
                assert words[OfWire.PRODUCED] == 3 * wire.samples
                assert words[OfWire.AFTER] == 3
        assert after.check() == Ledger(), "what was before is in the ledger that was saved"
        assert after.ledger.steps() == steps
        after.make(*(f"unroll/{lane.index}" for lane in after.blueprint.lanes))
        assert after.check().to_json() == {"produced": SAMPLES, "trained": 0, "dropped": {}, "in_flight": SAMPLES}
        assert after.ledger.steps() == {"act": [4 * UNROLL] * ENVS}


@pytest.mark.parametrize("late", [0, 1])
def test_environments_that_have_made_nothing_keep_their_places(books, late):
    first = books("env*2 | act | learn", lockstep=True)
    lane = first.blueprint.lanes[1 - late]
    first.make(f"unroll/{lane.index}")
    steps = first.ledger.steps()["act"]
    assert len(steps) == ENVS
    assert [bool(made) for made in steps] == [lane.first <= env < lane.first + lane.rows for env in range(ENVS)]


def test_of_a_stream_with_a_map_only_acts_steps_go_on(books):
    """A map may give more or less than it takes: its numbers begin anew, and its samples are even with what it took."""
    first = books("env*2 | act | mine | learn", MAPPED, lockstep=True)
    for lane in first.blueprint.lanes:
        first.make(f"unroll/{lane.index}")
    steps = first.ledger.steps()
    assert steps == {"act": [UNROLL] * ENVS}
    after = books("(env+act)*2 | mine | learn", MAPPED, lockstep=True)
    after.ledger.open(after.account, steps, version=1)
    assert after.check() == Ledger()
    for lane in after.blueprint.lanes:
        after.make(f"unroll/{lane.index}")
        after.add(f"unroll/{lane.index}", OfWire.TAKEN)()
    assert after.check().in_flight == SAMPLES
    for lane in after.blueprint.lanes:
        after.add(f"unroll.mine/{lane.index}", OfWire.SENT)()
    assert after.check().in_flight == SAMPLES


def test_each_policys_environments_have_their_own_steps(books):
    first = books("env+act | learn", two_policies(), lockstep=True)
    for team in ("red", "blue"):
        first.make(f"unroll.{team}/0")
    assert first.ledger.steps() == {"act.red": [UNROLL] * ENVS, "act.blue": [UNROLL] * ENVS}


def test_before_anything_was_made_there_is_nothing_to_go_on_from(books):
    assert books("env+act | learn", lockstep=True).ledger.steps() == {}


# ---- reading while workers count ------------------------------------------------------------------------------------


def test_what_was_read_between_two_words_is_read_again(books, monkeypatch):
    b = books("env+act | learn")
    b.make("unroll/0")
    b.add("unroll/0", OfWire.TAKEN)()
    left = [b.fate("learn-0", Fate.TRAINED, SAMPLES)]
    monkeypatch.setattr(ledger_module.time, "sleep", lambda seconds: left.pop()())
    assert not b.read().balanced
    assert b.ledger.ledger(seconds=60.0).balanced
    assert not left


def test_it_waits_for_the_learner_that_is_about_to_count(books, monkeypatch):
    b = books("env*2 | act | learn*2", ring=1)
    half, left = SAMPLES // 2, []
    for rank in range(2):
        b.make(f"unroll/{rank}")
    b.add("unroll/0", OfWire.TAKEN)()
    b.fate("learn-0", Fate.TRAINED, half)()
    left += [b.fate("learn-1", Fate.TRAINED, half), b.add("unroll/1", OfWire.TAKEN)]
    monkeypatch.setattr(ledger_module.time, "sleep", lambda seconds: left.pop()())
    assert b.ledger.ledger(trained=half, seconds=60.0).trained == half
    assert b.ledger.ledger(trained=SAMPLES, seconds=60.0).trained == SAMPLES
    assert b.ledger.ledger(trained=2 * SAMPLES, seconds=-1.0).trained == SAMPLES, "but not for ever"


def test_sides_that_meet_no_samples_hold_none(books):
    b = books("env*2 | act | learn", ring=1)
    for lane in range(2):
        b.make(f"unroll/{lane}")
    assert b.blueprint.transit == ()
    assert taken_and_not_sent(b.account, b.blueprint, side(b.blueprint, "env")) == 0
    assert b.check().in_flight == SAMPLES
