"""Synchrony: what lockstep and bounded lag answer when they are asked."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.recipe import from_recipe, to_recipe
from weft.runtimes.synchrony import BoundedLag, Lockstep, synchrony

VERSIONS = st.integers(-1, 50)


def test_which_of_the_two():
    assert synchrony(True, 5) == Lockstep()
    assert synchrony(False, 5) == BoundedLag(5)
    assert synchrony(True, 5).max_lag == 0


@pytest.mark.parametrize("agreed", [Lockstep(), BoundedLag(0), BoundedLag(7)])
def test_workers_read_it_from_json(agreed):
    assert from_recipe(json.loads(json.dumps(to_recipe(agreed)))) == agreed


def test_environment_workers_ask_it_without_jax():
    code = "import sys; import weft.runtimes.synchrony; assert 'jax' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@given(VERSIONS, VERSIONS, VERSIONS)
def test_in_lockstep_an_unroll_begins_with_the_params_that_follow_the_last_and_within_what_is_granted(
    version, after, limit
):
    assert Lockstep().may_begin(version, after, limit) == (version >= after and version < limit)


def test_in_lockstep_nothing_begins_before_there_are_params():
    assert not Lockstep().may_begin(-1, 0, 10)
    assert Lockstep().may_begin(0, 0, 10)
    assert not Lockstep().may_begin(0, 1, 10), "what it sent last has been learned from, and those params have not come"
    assert not Lockstep().may_begin(10, 10, 10), "no learn step would eat it"


@given(VERSIONS, VERSIONS, VERSIONS)
def test_with_a_lag_an_unroll_begins_as_soon_as_there_are_params(version, after, limit):
    assert BoundedLag(1).may_begin(version, after, limit) == (version >= 0)


@given(st.integers(-20, 20), st.integers(0, 10))
def test_what_is_too_old(lag, max_lag):
    assert not Lockstep().too_old(lag, max_lag), "nothing runs ahead"
    kept = not BoundedLag(3).too_old(lag, max_lag)
    assert kept == (0 <= lag <= max_lag), "the bound is the wire's, and params that are gone are no good"


def test_how_far_producers_run_ahead():
    assert Lockstep().ahead == 1
    assert [BoundedLag(lag).ahead for lag in (0, 1, 5)] == [1, 2, 6]


@given(st.integers(0, 2**31 - 1), st.integers(0, 1000), st.integers(0, 20))
def test_in_lockstep_the_seed_is_always_the_runs_own(seed, resumed, life):
    assert Lockstep().seed(seed, resumed, life) == seed


def test_with_a_lag_no_life_plays_the_same_episodes_again():
    agreed = BoundedLag(1)
    assert agreed.seed(3, 0, 0) == 3
    drawn = [agreed.seed(seed, resumed, life) for seed in (3, 4) for resumed in (0, 1, 7) for life in (0, 1, 2)]
    assert len(set(drawn)) == len(drawn)
    assert drawn == [agreed.seed(seed, resumed, life) for seed in (3, 4) for resumed in (0, 1, 7) for life in (0, 1, 2)]


def test_what_else_differs():
    """Everything that lockstep promises rests on these; whoever asks is told, and asks nothing else."""
    exact = ("in_order", "whole_batches", "one_params", "still")
    assert all(getattr(Lockstep(), name) for name in exact)
    assert not any(getattr(BoundedLag(1), name) for name in exact)
    assert (Lockstep().each_gradient_counts, BoundedLag(1).each_gradient_counts) == (False, True)
