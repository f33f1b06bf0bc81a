"""Cells of the matrix that every run of the tests tries; ``docs/generate.py`` tries them all.

Each plan, each algorithm, each kind of environment and channel is here at least once. Workers take seconds to start,
so that what else is to be seen of a cell is looked at in the same test.
"""

from __future__ import annotations

import dataclasses

import gymnasium as gym
import jax
import pytest
from cells import (
    ALGORITHMS,
    COUNTED,
    ENVIRONMENTS,
    ENVS,
    GROUPS,
    PLANS,
    STORES,
    TOLERANCE,
    counted,
    in_one_process,
    learned,
    learners,
    prepare_cell,
    reference,
)
from toys import farthest, same

from weft.algorithms import registry
from weft.core.errors import ConfigError, PlanError
from weft.envs.native import NativeFactory
from weft.envs.vectoriser import VectoriserFactory
from weft.ops.statistics import RunningStatistics
from weft.plans import catalogue, parse
from weft.runtimes.prepare.config import RunConfig, prepare

# Bit for bit: as many learners, each with the same batch, in the same program. Otherwise act or learn work on batches
# of other shapes, or learn is compiled with other things beside it, and XLA takes sums in another order (TOLERANCE says
# how much that may be). A learner apart from its replay is such, and one beside its act: whether their bits are the
# same depends on the algorithm and on the CPU.
TRIED = [
    ("ppo", "replicated", "gymnasium", "shm", True),
    ("ppo", "seed", "jax", "shm", False),
    ("ppo recurrent", "srl", "gymnasium", "shm", True),
    ("impala", "actors", "jax", "shm", False),
    ("impala", "environments", "gymnasium", "shm", False),
    ("a2c", "central", "gymnasium", "shm", True),
    ("a2c", "actors", "gymnasium", "tcp", False),
    ("ppo", "srl", "gymnasium", "tcp", True),
    ("dqn", "actors", "gymnasium", "shm", True),
    ("dqn", "seed", "jax", "tcp", False),
    ("dqn", "apex", "gymnasium", "shm", False),
    ("dqn", "(env+act)*2 | replay*2 | learn*2", "gymnasium", "shm", True),
    ("dqn", "(env+act)*2 | replay | learn*2", "gymnasium", "tcp", True),
    ("dqn", "srl", "gymnasium", "shm", True),
    ("sac", "replicated", "jax", "shm", False),
    ("sac", "actors", "jax", "shm", False),
    ("td3", "seed", "gymnasium", "shm", True),
    ("pqn", "actors", "gymnasium", "shm", False),
    ("r2d2", "actors", "gymnasium", "shm", False),
    ("ippo", "srl", "gymnasium", "shm", False),
    ("mappo", "actors", "jax", "tcp", False),
    ("vdn", "seed", "jax", "tcp", False),
    ("qmix", "actors", "gymnasium", "shm", False),
    ("qmix", "apex", "gymnasium", "shm", False),
    ("bc", "seed", "gymnasium", "shm", True),
    ("iql", "actors", "jax", "shm", False),
]


REFUSED = [
    (a, p)
    for a in ALGORITHMS
    for p in PLANS
    if p not in (set(COUNTED) - {"central"} if a in STORES else set(COUNTED) - {"apex"})
    or (p == "central" and a.startswith(("ppo", "ippo", "mappo", "pqn")))
]
AT_LENGTH = {
    ("a2c", "actors"),
    ("ippo", "srl"),
    ("ppo", "seed"),
    ("dqn", "seed"),
    ("dqn", "actors"),
    ("sac", "actors"),
    ("iql", "actors"),
    ("vdn", "seed"),
    ("qmix", "actors"),
    ("qmix", "apex"),
    ("impala", "environments"),
    ("r2d2", "actors"),
    ("td3", "seed"),
    ("pqn", "actors"),
    ("bc", "seed"),
    ("dqn", "(env+act)*2 | replay | learn*2"),
    ("dqn", "(env+act)*2 | replay*2 | learn*2"),
    ("ppo recurrent", "srl"),
    ("dqn", "srl"),
    ("sac", "replicated"),
}  # in make slow


@pytest.mark.parametrize(
    ("algorithm", "plan", "environment", "channel", "exactly"),
    [pytest.param(*cell, marks=[pytest.mark.slow] if cell[:2] in AT_LENGTH else []) for cell in TRIED],
)
def test_a_plan_learns_in_lockstep_what_one_process_learns(algorithm, plan, environment, channel, exactly):
    prepared = prepare_cell(algorithm, plan, environment)
    one_process = in_one_process(algorithm, environment, learners(prepared))
    cell = learned(algorithm, plan, environment, channel=channel)
    assert farthest(cell.params, one_process.params) < TOLERANCE
    if exactly:
        assert same(cell.params, one_process.params)
    exact = 1e-6 if algorithm in GROUPS else 0.0  # the mean over agents is taken in another precision on the host
    assert cell.episodes == pytest.approx(one_process.episodes, rel=exact, abs=0)
    assert cell.return_mean == pytest.approx(one_process.return_mean, rel=exact, abs=0, nan_ok=True)
    assert cell.samples.balanced
    assert cell.samples.trained == prepared.steps
    assert cell.samples.dropped == {}


def test_in_lockstep_environments_are_batched_so_that_every_plan_plays_the_same_episodes():
    """CartPole-v1 has a native batch, which is seeded as a whole: ``auto`` takes it only where that is no matter."""
    asked = {"plan": "env*2 | act | learn", "envs": ENVS, "steps": 1000}
    prepared = prepare(RunConfig("ppo", "CartPole-v1", lockstep=True, **asked))
    assert prepared.vector == "each"
    assert prepared.config()["vector"] == "each"
    assert isinstance(prepared.source.host, VectoriserFactory)
    assert isinstance(prepare(RunConfig("ppo", "CartPole-v1", **asked)).source.host, NativeFactory)
    with pytest.raises(ConfigError, match=r"vector='native'.*seeded as a whole.*Use vector='each'"):
        prepare(RunConfig("ppo", "CartPole-v1", vector="native", lockstep=True, **asked))
    with pytest.raises(ConfigError, match=r"makes whole batches.*In lockstep.*Make single environments"):
        prepare(RunConfig("ppo", whole_batches, lockstep=True, **asked))


def whole_batches(num_envs: int):
    return gym.make_vec("CartPole-v1", num_envs, "vector_entry_point")


def test_one_lane_is_the_same_batches_and_so_the_same_bits():
    """With one slice of all environments, act and learn work on what they work on in one process."""
    cell = learned("ppo", "env | act | learn", "gymnasium", ring=1)
    assert same(cell.params, reference("ppo", "gymnasium", 1))


@pytest.mark.slow
def test_what_a_large_network_learns_does_not_depend_on_how_many_environments_an_act_has(monkeypatch):
    """The values of such a network differ in their last bits between calls of 4 and of 8 environments."""
    monkeypatch.setitem(ALGORITHMS, "large", dataclasses.replace(ALGORITHMS["ppo"], hidden=(256, 256)))
    apart, together = (learned("large", plan, "gymnasium") for plan in ("env*2 | act | learn", "(env+act)*2 | learn"))
    assert same(apart.params, together.params)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(name, marks=[] if name in ("ppo", "ppo recurrent", "mappo") else [pytest.mark.slow])
        for name in ALGORITHMS
        if (name, "replicated") not in REFUSED and name not in STORES  # their shards draw other batches than one replay
    ],
)
def test_replicas_in_one_process_learn_what_one_learns(algorithm, environment):
    two, one = (without_counts(reference(algorithm, environment, replicas)) for replicas in (2, 1))
    assert farthest(two, one) < TOLERANCE


def without_counts(params):
    """Running statistics count the records of one replica."""
    return jax.tree.map(
        lambda x: x._replace(seen=0) if isinstance(x, RunningStatistics) else x,
        params,
        is_leaf=lambda x: isinstance(x, RunningStatistics),
    )


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize(("algorithm", "plan"), REFUSED)
def test_a_plan_that_does_not_run_is_refused_with_a_reason(algorithm, plan, environment):
    with pytest.raises(PlanError) as caught:
        prepare_cell(algorithm, plan, environment)
    message = str(caught.value)
    named = (plan, counted(algorithm, plan), " | ")  # a plan of several groups may be told with other counts
    assert any(words in message for words in named), "it does not say which plan"
    assert "Nearest plan" in message, "it does not say what to do instead"


def test_every_named_plan_that_runs_has_its_counts_here():
    for name, expression, _, runs_now in catalogue():
        assert (name in COUNTED) == runs_now
        if runs_now:
            with_counts = parse(COUNTED[name])
            assert [g.fragments for g in with_counts.groups] == [g.fragments for g in parse(expression).groups]
    assert {plan for _, plan, *_ in TRIED if " " not in plan} | {"inline"} == set(COUNTED)
    assert {algorithm for algorithm, *_ in TRIED} == set(ALGORITHMS)
    assert {environment for _, _, environment, *_ in TRIED} == set(ENVIRONMENTS)


def test_the_cells_are_not_all_alike():
    """The comparison above can fail: other settings learn something else."""
    assert farthest(reference("ppo", "jax", 1), reference("ppo", "gymnasium", 1)) > 100 * TOLERANCE
    assert not same(reference("impala", "jax", 1), reference("a2c", "jax", 1))


def test_every_algorithm_has_a_row():
    others = {"random", "policies", "selfplay"}  # no learning of their own: tests/algorithms has them under plans
    assert {name.split()[0] for name in ALGORITHMS} - {"ippo"} == set(registry.ALGORITHMS) - others
