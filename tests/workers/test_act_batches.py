"""Which lanes go through act together: the real side with channels in memory, in this process.

The environments are a script that goes on wherever the side has nothing to do and waits, so that nothing depends on
time: it says which lanes are ready next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tasks import Office

from weft.core.buffers import timestep_buffers
from weft.core.specs import Box, Discrete, EnvSpec
from weft.core.trees import tree_map, unflatten
from weft.core.types import Acted, TrainState
from weft.graph.algorithm import Algorithm
from weft.runtimes.hosted.blocks import Block
from weft.runtimes.roles import act_side
from weft.runtimes.roles.act import ACT
from weft.runtimes.roles.act_side import ActSide
from weft.runtimes.workers.layout.blueprint import Side
from weft.runtimes.workers.side import SideContext, Stopped
from weft.runtimes.workers.weights import Publisher
from weft.runtimes.workers.wiring import Task
from weft.streams.channel import Message, Stamp
from weft.streams.memory import open_slots

LANES, ROWS, UNROLL = 5, 2, 3
SPEC = EnvSpec("echo", Box((2,)), Discrete(1000))


@dataclass(frozen=True)
class Echo(Algorithm):
    """Its action is the first number of the observation, its value the second; it carries how often it has acted."""

    unroll: int = UNROLL

    def init(self, key):
        return TrainState({"none": jnp.zeros(1)}, (), jnp.int32(0), key)

    def initial_carry(self):
        return jnp.zeros((), jnp.int32)

    def act(self, params, carry, timestep, key):
        return Acted(timestep.observation[0].astype(jnp.int32), carry + 1, {"acted": carry + 1})

    def bootstrap(self, params, carry, observation):
        return observation[1]


@dataclass
class Scripted(SideContext):
    """A side's place in the run whose waiting is the script's turn; the run ends with it."""

    script: Iterator[None] = field(default_factory=lambda: iter(()))

    def wait(self, seconds: float = 0.0) -> None:
        if next(self.script, self) is self:
            raise Stopped
        self.tick()


class ScriptedTask(Task):
    """A task whose sides wait for the script."""

    def context(self, side: Side) -> SideContext:
        if side.index not in self._contexts:
            bell = self.bells[side.index]
            self._contexts[side.index] = Scripted(side.index, side.name, bell, self.account, self.link, self.life)
        return self._contexts[side.index]


class Table:
    """An act side for five lanes of two environments, and the other ends of its channels."""

    def __init__(self, *, lockstep: bool, plan: str = "act | learn") -> None:
        office = Office(f"env*{LANES} | {plan}", Echo(), SPEC, envs=LANES * ROWS, lockstep=lockstep)
        office.open()
        self.office, blueprint, lanes = office, office.blueprint, office.blueprint.lanes
        (act,), (learn,) = blueprint.sides_of("act"), blueprint.sides_of("learn")
        assert [lane.rows for lane in lanes] == [ROWS] * LANES
        task, learner = office.task(act.worker, ScriptedTask), office.task(learn.worker)
        params: Publisher = learner.publisher(learn, "learn")
        params.publish(office.algorithm.init(jax.random.key(0)).params, 0)
        self.task, self.side = task, ACT.side(task, act)
        self.acting = self.side.acting
        self.batches: list[int] = []  # how many lanes each was made for
        self.programs = self.acting.programs
        self.compiled = self.programs.act_and_value.call
        for program in (self.programs.act, self.programs.act_and_value):
            program.call = self._noting(program.call)
        self.form = office.schemas.form(blueprint.wire("unroll/0"))
        self.timesteps = [office.writer(f"timestep/{i}") for i in range(LANES)]
        self.actions = [office.reader(f"action/{i}") for i in range(LANES)]
        self.unrolls = [office.reader(f"unroll/{i}") for i in range(LANES)]
        self.sent = [0] * LANES
        self.slots = [open_slots(office.created[f"unroll/{i}"].spec) for i in range(LANES)]
        self.where = [0] * LANES  # where the last action said that its timestep goes
        self.in_place = False

    def _noting(self, program: Any) -> Any:
        def noted(params: Any, carry: Any, seen: Any, noise: Any) -> Any:
            self.batches.append(len(carry) // ROWS)
            return program(params, carry, seen, noise)

        noted.lower = program.lower
        return noted

    def send(self, lane: int, reward: float = 0.0, ended: Sequence[bool] = (False,) * ROWS) -> None:
        """The lane's environments have stepped."""
        arrays = self.timesteps[lane].reserve(0)
        assert arrays is not None
        for array in arrays:
            array[...] = 0
        seen = seen_by(lane, self.sent[lane])
        out = unflatten(timestep_buffers(SPEC, (ROWS,)), arrays)
        where = self.where[lane] if self.in_place else 0
        if where:
            place, row = divmod(where - 1, UNROLL + 1)
            out = self.form.unflatten(self.slots[lane][place % len(self.slots[lane])]).steps
            out = tree_map(lambda leaf: leaf[row], out)
        out.observation[:] = np.stack([seen, -seen], axis=-1)
        out.reward[:], out.terminated[:], out.truncated[:] = reward, ended, False
        self.timesteps[lane].commit(Stamp(lane, 0, self.sent[lane], where, ROWS, 0 if self.sent[lane] else -1))
        self.sent[lane] += 1

    def take(self, lane: int) -> list[int] | None:
        """The lane's actions, where there are any."""
        message = self.actions[lane].receive(0)
        if message is None:
            return None
        actions: list[int] = message.arrays[0].tolist()
        self.where[lane] = message.stamp.version
        self.actions[lane].release(message)
        return actions

    def unroll(self, lane: int) -> Block:
        message: Message | None = self.unrolls[lane].receive(0)
        assert message is not None
        block: Block = self.form.unflatten(message.arrays)
        return block

    def run(self, script: Iterator[None]) -> None:
        self.side.context.script = script
        with pytest.raises(Stopped):
            self.side.run()

    def close(self) -> None:
        self.office.close()


def seen_by(lane: int, step: int) -> np.ndarray:
    """``[ROWS]`` a number that only these environments see, at this step only."""
    return 100 * lane + 10 * step + np.arange(ROWS)


@pytest.fixture
def table():
    made = []

    def make(**how):
        made.append(Table(**how))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_whoever_is_ready_goes_at_once_in_one_of_a_few_sizes_and_each_gets_its_own(table):
    t = table(lockstep=False)
    turns = [{0}, {1, 3}, {0, 2, 4}, {0, 1, 2, 3}, {0, 1, 2, 3, 4}, {4}, {3, 2}, {1, 3, 4}, {1}, {2, 4}]
    assert t.side._sizes == [1, 2, 4, 5]

    def environments() -> Iterator[None]:
        yield
        for ready in turns:
            before = len(t.batches)
            step = list(t.sent)
            for lane in ready:
                t.send(lane)
            valued = any(t.sent[lane] == UNROLL + 1 for lane in ready)
            yield  # until the side has nothing left to do
            size = {1: 1, 2: 2, 3: 4, 4: 4, 5: 5}[len(ready)]
            assert t.batches[before] == size, "all that were ready, and padding"
            assert len(t.batches) - before == 1 + valued, "nobody waits for more lanes, nor for a second batch"
            for lane in range(LANES):
                expected = seen_by(lane, step[lane]).tolist() if lane in ready else None
                assert t.take(lane) == expected

    t.run(environments())
    assert min(t.sent) == UNROLL + 1, "each has made an unroll, and begun the next"
    for lane in range(LANES):
        block = t.unroll(lane)
        steps = np.stack([seen_by(lane, step) for step in range(UNROLL + 1)])
        np.testing.assert_array_equal(block.steps.observation[..., 0], steps)
        np.testing.assert_array_equal(block.action, steps[:-1])
        np.testing.assert_array_equal(block.extras["acted"], np.arange(1, UNROLL + 1)[:, None].repeat(ROWS, 1))
        np.testing.assert_array_equal(block.bootstrap[-1], -steps[-1])
    assert set(t.batches) == {1, 2, 4, 5}
    assert t.compiled._cache_size() == 4, "compiled once for each size, whatever came"


@pytest.mark.parametrize("pins", [True, False])
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("plan", ["act | learn", "act+learn"])
def test_on_an_accelerator_as_on_a_cpu_and_observations_stay_there_for_a_learner_beside_act(
    table, monkeypatch, in_place, plan, pins
):
    monkeypatch.setattr(act_side, "on_accelerator", lambda: True)
    monkeypatch.setattr(act_side, "can_pin", lambda device: pins)  # JAX's CPU has such memory too
    t = table(lockstep=False, plan=plan)
    t.in_place = in_place
    t.side.start()
    t.side._ahead.wait()
    assert t.side._compiled == [2, 3, 5]
    turns = [{0}, {1, 3}, {0, 2, 4}, {0, 1, 2, 3}, {0, 1, 2, 3, 4}, {4}, {3, 2}, {1, 3, 4}, {1}, {2, 4}, {0, 1}]

    def environments() -> Iterator[None]:
        for ready in turns:
            step = list(t.sent)
            for lane in ready:
                t.send(lane)
            while not all(t.actions[lane].unread for lane in ready):
                yield
            for lane in ready:
                assert t.take(lane) == seen_by(lane, step[lane]).tolist()

    t.run(environments())
    kinds = {room.seen[0].sharding.memory_kind if pins else type(room.seen[0]) for room in t.side._rooms[5]}
    assert kinds == ({"pinned_host"} if pins else {np.ndarray})
    for lane in range(LANES):
        steps = np.stack([seen_by(lane, step) for step in range(UNROLL + 1)])
        block = t.unroll(lane)
        np.testing.assert_array_equal(block.steps.observation, np.stack([steps, -steps], axis=-1))
        np.testing.assert_array_equal(block.action, steps[:-1])
        np.testing.assert_array_equal(block.extras["acted"], np.arange(1, UNROLL + 1)[:, None].repeat(ROWS, 1))
        np.testing.assert_array_equal(block.bootstrap[-1], -steps[-1])
        left = t.task.left.take("act", lane, 0)
        if plan == "act | learn":
            assert left is None, "a learner elsewhere has nothing of it"
        else:
            np.testing.assert_array_equal(left, block.steps.observation)
            assert t.task.left.take("act", lane, 0) is None, "it is left once"


def test_the_sizes_grow_with_the_logarithm_of_the_lanes(table):
    t = table(lockstep=False)
    for lanes in (1, 2, 3, 8, 100, 1000):
        sizes = ActSide(t.acting, (t.side.lanes * lanes)[:lanes], t.side._reports)._sizes
        assert sizes[-1] == lanes, "all of them fit into one"
        assert len(sizes) <= np.log2(lanes) + 2
        assert all(size < after <= 2 * size for size, after in pairwise(sizes)), "padding is less than half"


def test_in_lockstep_act_waits_for_all(table):
    t = table(lockstep=True)

    def environments() -> Iterator[None]:
        yield
        for lane in (3, 0, 4):
            t.send(lane)
        yield
        assert t.batches == []
        for lane in (2, 1):
            t.send(lane)
        yield
        assert t.batches == [LANES]
        assert [t.take(lane) for lane in range(LANES)] == [seen_by(lane, 0).tolist() for lane in range(LANES)]

    t.run(environments())
    assert t.batches == [LANES]


@pytest.mark.parametrize(("sent", "told"), [(0, [(3.0, 3), (2.0, 2), (1.0, 1)]), (7, [(3.0, 3), (1.0, 1)])])
def test_a_new_act_tells_of_no_episode_whose_beginning_it_has_not_seen(table, sent, told):
    """Row 1 begins an episode as the first timestep comes; so does row 0, unless its environment has stepped before."""
    t = table(lockstep=False)
    t.sent[0] = sent
    said: list[tuple[float, int]] = []
    t.side._reports.tell = lambda act, lane, until, told: said.extend((one.return_sum, one.length_sum) for one in told)

    def environments() -> Iterator[None]:
        yield
        for ended in [(False, True), (False, False), (True, False), (True, True)]:
            t.send(0, 1.0, ended)
            yield
            t.take(0)

    t.run(environments())
    assert sorted(said, reverse=True) == told
