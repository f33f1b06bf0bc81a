"""Growth decides what plan a run should have, by the hosts that there are: without hosts, and without a run."""

from __future__ import annotations

from typing import Any

import pytest

from weft.core.errors import ConfigError, PlanError, UnknownName
from weft.plans import Machine
from weft.plans.scale import read_bounds
from weft.runtimes.loop.growing import AGAIN_SECONDS, LOOK_SECONDS, STEADY_SECONDS, Growth, growth_of
from weft.runtimes.prepare.config import Prepared, RunConfig, Settings, prepare
from weft.runtimes.prepare.replanned import replanned
from weft.runtimes.workers.layout.blueprint import Host


class Hosts:
    """As many hosts as ``there``, of four cores each."""

    must_fit = False

    def __init__(self, there: int) -> None:
        self.there = there

    def renew(self) -> None:
        """They are as they are."""

    @property
    def usable(self) -> list[Host]:
        return [Host(k, f"host-{k}", 4) for k in range(self.there)]

    @property
    def machine(self) -> Machine:
        return Machine(cores=4 * self.there, hosts=self.there)


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    config = RunConfig("ppo", "CartPole-v1", plan="env*2 | act | learn", envs=16, fields={"hidden": (8,)})
    return prepare(config, cluster=Machine(cores=4, hosts=1))


class Clocked:
    """Growth with a clock of its own."""

    def __init__(self, prepared: Prepared, hosts: Hosts, grow: str) -> None:
        self.prepared, self.now, self.said = prepared, 100.0, list[str]()
        settings, cluster = Settings(grow=grow), hosts
        self.growth = Growth(read_bounds(grow), prepared, settings, cluster, clock=lambda: self.now)  # type: ignore[arg-type]
        self.growth.warn = self.said.append

    def after(self, seconds: float) -> str | None:
        """What is wanted at some time in the next ``seconds``, looking again and again; the run goes over to it."""
        end = self.now + seconds
        while self.now < end:
            self.now += LOOK_SECONDS / 2
            if (plan := self.growth.wanted(self.prepared)) is not None:
                self.prepared = replanned(self.prepared, plan, Machine(cores=64, hosts=9))
                return str(plan)
        return None


def test_it_waits_until_the_hosts_stay_and_takes_what_room_there_is(prepared: Prepared) -> None:
    hosts = Hosts(1)
    clocked = Clocked(prepared, hosts, "env=2:8")
    assert clocked.after(30.0) is None, "two are what four cores have room for"
    hosts.there = 2
    assert clocked.after(STEADY_SECONDS) is None, "others may be about to join"
    hosts.there = 3
    assert clocked.after(STEADY_SECONDS) is None
    assert clocked.after(10.0) == "env*8 | act | learn", "the most, although there are twelve cores"
    assert clocked.after(30.0) is None
    hosts.there = 2
    assert clocked.after(10.0) == "env*4 | act | learn", "eight cores, and five do not divide sixteen environments"
    hosts.there = 1
    assert clocked.after(10.0) == "env*2 | act | learn"
    assert clocked.said == []


def test_where_nothing_fits_it_says_so_once_and_stays(prepared: Prepared) -> None:
    clocked = Clocked(prepared, Hosts(1), "env=4:8")
    assert clocked.after(60.0) is None
    assert len(clocked.said) == 1
    assert "nothing within that fits 4 cores" in clocked.said[0]


def test_what_could_not_be_had_is_tried_again_later(prepared: Prepared) -> None:
    clocked = Clocked(prepared, Hosts(3), "env=2:8")
    assert clocked.after(10.0) == "env*8 | act | learn"
    clocked.prepared = prepared
    clocked.growth.failed()
    assert clocked.after(AGAIN_SECONDS - 5.0) is None
    assert clocked.after(10.0) == "env*8 | act | learn"


def test_bounds_that_cannot_be_are_refused_before_anything_begins(prepared: Prepared) -> None:
    cluster: Any = Hosts(1)
    with pytest.raises(UnknownName, match="Did you mean 'env'"):
        growth_of(prepared, Settings(grow="evn=2:8"), cluster)
    with pytest.raises(PlanError, match=r"'learn' has the same number of replicas throughout"):
        growth_of(prepared, Settings(grow="learn=1:2"), cluster)
    with pytest.raises(ConfigError, match=r"add --on ray"):
        growth_of(prepared, Settings(grow="env=2:8"), None)
    assert growth_of(prepared, Settings(), None) is None


def test_a_plan_that_would_change_the_batches_is_refused(prepared: Prepared) -> None:
    machine = Machine(cores=8)
    with pytest.raises(PlanError, match="has 2 of what learns, and the run under way has 1"):
        replanned(prepared, "env*2 | act | learn*2", machine)
    with pytest.raises(PlanError, match="cannot share 16 environments evenly"):
        replanned(prepared, "env*3 | act | learn", machine)
    with pytest.raises(PlanError, match="in one process has no replicas"):
        replanned(prepared, "inline", machine)
