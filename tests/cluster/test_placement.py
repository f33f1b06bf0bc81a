"""Which worker goes to which host, and what that makes of the wires."""

from __future__ import annotations

import pytest
from drafts import drafted

from weft.core.errors import PlanError
from weft.plans import Machine
from weft.runtimes.workers.layout.blueprint import Blueprint, Host
from weft.runtimes.workers.layout.placement import crossing, move, place


def hosts(count: int, cores: int = 8, gpus: int = 0) -> list[Host]:
    return [Host(i, f"h{i}", cores, gpus) for i in range(count)]


def homes(blueprint: Blueprint) -> dict[str, int]:
    return {worker.name: worker.host for worker in blueprint.workers}


def test_environments_are_with_what_acts_for_them_and_learners_apart() -> None:
    placed = place(drafted("env*4 | act*2 | learn"), hosts(3))
    assert homes(placed) == {"env-0": 1, "env-1": 1, "env-2": 2, "env-3": 2, "act-0": 1, "act-1": 2, "learn-0": 0}
    assert {wire.stream for wire in crossing(placed)} == {"unroll", "params"}


def test_a_wire_within_a_host_shares_memory_and_one_that_crosses_is_a_socket() -> None:
    placed = place(drafted("env*2@node:h0 | act@node:h1 | learn@node:h1"), hosts(2))
    schemes = {wire.stream: wire.scheme for wire in placed.wires}
    assert schemes == {"timestep": "tcp", "action": "tcp", "unroll": "shm", "params": "shm"}
    assert {wire.slab for wire in placed.wires} == {-1}, "timesteps of another host are not written in place"


def test_params_are_handed_on_within_each_host() -> None:
    placed = place(drafted("(env+act)*2 | learn"), hosts(3))
    (params,) = [wire for wire in placed.wires if wire.stream == "params"]
    assert params.scheme == "shm"
    assert params in crossing(placed)


def test_all_on_one_host_is_as_drafted() -> None:
    blueprint = drafted("env*2 | act | learn")
    assert place(blueprint, hosts(1)).wires == blueprint.wires


def test_each_gpu_is_used_once_and_numbered_by_its_host() -> None:
    blueprint = drafted("env*2 | act@gpu | learn*3@gpu:0-2", 12, machine=Machine(cores=8, gpus=4))
    placed = place(blueprint, hosts(2, gpus=2))
    devices = sorted((w.host, w.device) for w in placed.workers if w.device != "cpu")
    assert devices == [(0, "gpu:0"), (0, "gpu:1"), (1, "gpu:0"), (1, "gpu:1")]


@pytest.mark.parametrize(
    ("plan", "of", "said"),
    [
        ("env*4 | act | learn", hosts(2, cores=2), "6 workers, a core each, and the cluster has 4: h0 (2 cores)"),
        ("env*2@node:sim | act | learn", hosts(2), "worker env-0 wants a node 'sim'"),
    ],
)
def test_what_the_cluster_can_never_give_is_refused_with_what_it_has(plan: str, of: list[Host], said: str) -> None:
    with pytest.raises(PlanError, match="the cluster has") as caught:
        place(drafted(plan), of)
    assert said in str(caught.value)


def test_workers_of_a_lost_host_go_to_the_others_and_those_that_run_stay() -> None:
    blueprint = drafted("env*4 | act*2 | learn")
    placed = place(blueprint, hosts(3))
    stay = {w.index for w in placed.workers if w.host != 1}
    moved, without = move(blueprint, placed, {1}, stay)
    assert without == []
    assert {w.index for w in moved.workers if w.host == placed.workers[w.index].host} == stay
    at = homes(moved)
    assert at["env-0"] == at["env-1"] == at["act-0"] != 1
    for before, after in zip(placed.wires, moved.wires, strict=True):
        ends = {blueprint.sides[s].worker for s in (before.writer, *before.readers)}
        if ends & stay:
            assert after.scheme == before.scheme, "one end of it is open: it must stay what it is"


def test_where_there_is_no_room_it_is_said() -> None:
    blueprint = drafted("(env+act)*4 | learn")
    placed = place(blueprint, hosts(5, cores=1))
    lost = placed.workers[1].host
    moved, without = move(blueprint, placed, {lost}, set(range(5)) - {1})
    assert without == [1]
    assert homes(moved) == homes(placed)
