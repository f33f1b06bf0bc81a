"""Where a plan puts what only looks on: out of the way, and training is laid out as it would be without it."""

from types import SimpleNamespace

import pytest

from weft.core.errors import PlanError
from weft.graph import Graph
from weft.plans import Machine, executable, needs_workers, resolve
from weft.plans.fit import unwatched

ENVS = 12
GPUS = Machine(cores=8, gpus=2)


@pytest.fixture
def watched(loop: Graph) -> Graph:
    return loop.watch("looks", SimpleNamespace(every=100))


@pytest.mark.parametrize(
    ("plan", "machine", "found"),
    [
        ("inline", Machine(cores=2), "env+act+learn+looks"),
        ("env*2 | act | learn", Machine(cores=2), "env*2 | act | learn | looks"),
        ("srl", Machine(cores=8), "env*6 | act | learn | looks"),
        ("(env+act+learn)*2", Machine(cores=2), "(env+act+learn)*2 | looks"),
        ("(env+act+learn)*2", GPUS, "(env+act+learn+looks)*2"),
        ("env+act+learn | looks", Machine(cores=2), "env+act+learn | looks"),
        ("env | act | looks+learn", Machine(cores=2), "env | act | learn+looks"),
        ("(env+act+learn+looks)@gpu", GPUS, "(env+act+learn+looks)@gpu"),
        ("env+act+learn | looks@gpu:1", GPUS, "env+act+learn | looks@gpu:1"),
    ],
)
def test_it_has_a_group_of_its_own_in_workers_and_stays_in_one_process(watched, loop, plan, machine, found):
    resolved = resolve(plan, watched, machine, envs=ENVS, pure_env=True)
    assert str(resolved) == found
    executable(resolved, watched, machine, envs=ENVS)
    training = unwatched(resolved, watched)
    if "looks" not in plan:
        assert training == resolve(plan, loop, machine, envs=ENVS, pure_env=True), "counts are as without it"
        assert needs_workers(resolved, watched, machine) == needs_workers(training, loop, machine)


def test_one_of_it_is_enough(watched):
    with pytest.raises(PlanError, match=r"replicates 'looks': there is one of it at most.*'env\+act\+learn \| looks'"):
        resolve("env+act+learn | looks*2", watched, Machine(cores=2), envs=ENVS, pure_env=True)


def test_a_graph_without_it_is_what_it_was(watched, loop):
    assert watched.unwatched() == loop
    assert [s.target for s in watched.streams if s.name == "params"] == ["act", "looks"]
