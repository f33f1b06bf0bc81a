"""The environment variables that workers are started with: their device, and how many threads they may have."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from drafts import drafted, loop, same, two_policies

from weft.graph.graph import Graph
from weft.plans import Machine
from weft.runtimes.workers.control.variables import worker_variables

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")
OURS = (*THREADS, "CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS", "XLA_PYTHON_CLIENT_PREALLOCATE")


@pytest.fixture
def variables(monkeypatch) -> Callable[..., dict[str, dict[str, str]]]:
    """By worker's name, the variables of a plan's workers, none of which is started; on a machine of eight cores."""
    for name in OURS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)

    def of(plan: str, gpus: int = 0, graph: Graph | None = None, **outside: str) -> dict[str, dict[str, str]]:
        for name, value in outside.items():
            monkeypatch.setenv(name, value)
        blueprint = drafted(plan, machine=Machine(cores=8, gpus=gpus), graph=graph)
        return {worker.name: worker_variables(blueprint, worker.index) for worker in blueprint.workers}

    return of


def threads(of: dict[str, dict[str, str]]) -> dict[str, int]:
    """One number for each worker, on which all of the libraries' variables agree."""
    found = {}
    for worker, variables in of.items():
        (found[worker],) = {int(variables[name]) for name in THREADS}
    return found


@pytest.mark.parametrize(
    ("plan", "budget"),
    [
        ("env*2 | act | learn", {"env-0": 1, "env-1": 1, "act-0": 1, "learn-0": 8}),
        ("env*2 | act | learn*2", {"env-0": 1, "env-1": 1, "act-0": 1, "learn-0": 4, "learn-1": 4}),
        ("(env+act)*2 | learn", {"env+act-0": 1, "env+act-1": 1, "learn-0": 8}),
        ("env*2 | act+learn", {"env-0": 1, "env-1": 1, "act+learn-0": 8}),
        ("(env+act+grad)*2 | apply", {"env+act+grad-0": 4, "env+act+grad-1": 4, "apply-0": 4}),
    ],
)
def test_who_learns_shares_the_cores_and_others_have_one_thread(variables, plan, budget):
    assert threads(variables(plan)) == budget


def test_a_map_has_one_thread_where_nothing_learns_beside_it(variables):
    graph = loop().insert("mine", same)
    assert threads(variables("(env+act)*2 | mine | learn", graph=graph)) == {
        "env+act-0": 1,
        "env+act-1": 1,
        "mine-0": 1,
        "learn-0": 8,
    }
    assert threads(variables("env+act | mine+learn", graph=graph)) == {"env+act-0": 1, "mine+learn-0": 8}


def test_learners_of_several_policies_share_the_cores(variables):
    budget = threads(variables("env*2 | act | learn.red*2 | learn.blue*2", graph=two_policies()))
    learners = {f"learn.{team}-{rank}": 2 for team in ("red", "blue") for rank in (0, 1)}
    assert budget == {"env-0": 1, "env-1": 1, "act.red+act.blue-0": 1} | learners
    assert threads(variables("env+act | learn", graph=two_policies()))["learn.red+learn.blue-0"] == 8


def test_more_learners_than_cores_have_a_thread_each(variables, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
    assert set(threads(variables("env*2 | act | learn*2")).values()) == {1}


def test_what_the_user_has_set_is_kept(variables):
    of = variables("env*2 | act | learn", gpus=1, OMP_NUM_THREADS="3", XLA_PYTHON_CLIENT_PREALLOCATE="true")
    assert {v["OMP_NUM_THREADS"] for v in of.values()} == {"3"}
    assert of["env-0"]["MKL_NUM_THREADS"] == "1"
    assert of["learn-0"]["XLA_PYTHON_CLIENT_PREALLOCATE"] == "true"


def test_workers_of_the_cpu_see_no_accelerator(variables):
    of = variables("env*2 | act@cpu | learn", gpus=1, CUDA_VISIBLE_DEVICES="0")
    for worker in ("env-0", "env-1", "act-0"):
        assert (of[worker]["JAX_PLATFORMS"], of[worker]["CUDA_VISIBLE_DEVICES"]) == ("cpu", "")
        assert "XLA_PYTHON_CLIENT_PREALLOCATE" not in of[worker]
    assert "JAX_PLATFORMS" not in of["learn-0"]


@pytest.mark.parametrize(
    ("outside", "seen"),
    [
        ({}, {"act-0": "1", "learn-0": "0"}),
        ({"CUDA_VISIBLE_DEVICES": "3,5"}, {"act-0": "5", "learn-0": "3"}),
        ({"CUDA_VISIBLE_DEVICES": "GPU-aa,GPU-bb"}, {"act-0": "GPU-bb", "learn-0": "GPU-aa"}),
    ],
)
def test_workers_of_a_gpu_see_that_one_of_those_visible_here(variables, outside, seen):
    of = variables("env*2 | act@gpu:1 | learn@gpu:0", gpus=2, **outside)
    assert {worker: of[worker]["CUDA_VISIBLE_DEVICES"] for worker in seen} == seen
    for worker in seen:
        assert of[worker]["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
        assert "JAX_PLATFORMS" not in of[worker]
    assert of["env-0"]["CUDA_VISIBLE_DEVICES"] == ""


def test_what_else_is_set_here_reaches_them(variables):
    of = variables("env*2 | act | learn", MUJOCO_GL="egl")
    assert {v["MUJOCO_GL"] for v in of.values()} == {"egl"}
    assert "OMP_NUM_THREADS" not in os.environ, "the launcher's own are left alone"
