"""Other counts for a plan: read, applied to groups, and as many as fit."""

from __future__ import annotations

import pytest

from weft.core.errors import PlanError, UnknownName
from weft.plans import Plan, parse
from weft.plans.scale import Bounds, filled, read_bounds, read_counts, rescaled


def test_counts_name_a_group_by_any_fragment_in_it() -> None:
    plan = parse("(env+act)*4 | relabel*2 | learn")
    assert str(rescaled(plan, {"act": 8})) == "(env+act)*8 | relabel*2 | learn"
    assert str(rescaled(plan, {"env": 2, "relabel": 1})) == "(env+act)*2 | relabel | learn"
    assert rescaled(plan, {"env": 4, "act": 4}) == plan


def test_what_a_plan_has_not_is_refused_with_the_nearest() -> None:
    plan = parse("(env+act)*4 | learn")
    with pytest.raises(UnknownName, match=r"unknown fragment 'evn'. Did you mean 'env'\?"):
        rescaled(plan, {"evn": 8})
    with pytest.raises(PlanError, match=r"env and act are one group, '\(env\+act\)\*4'.*8 and 2"):
        rescaled(plan, {"env": 8, "act": 2})


def test_words_are_read() -> None:
    assert read_counts(["env=64", "act.red=2"]) == {"env": 64, "act.red": 2}
    assert read_bounds("env=2:64, act=1:8") == {"env": Bounds(2, 64), "act": Bounds(1, 8)}
    assert read_bounds("") == {}


@pytest.mark.parametrize("words", [["env"], ["env=0"], ["env=-1"], ["env=2.5"], ["env=auto"], ["env=1", "env=2"]])
def test_what_is_no_count_is_refused(words: list[str]) -> None:
    with pytest.raises(PlanError):
        read_counts(words)


@pytest.mark.parametrize("text", ["env", "env=2", "env=0:4", "env=4:2", "env=1:2,env=2:3", "=1:2"])
def test_what_are_no_bounds_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        read_bounds(text)


def test_as_many_as_fit_and_the_first_gets_room_first() -> None:
    plan = parse("env*2 | act | learn")

    def room(cores: int, plan: Plan) -> bool:
        replicas = [group.replicas or 1 for group in plan.groups]
        return sum(replicas) <= cores and 16 % replicas[0] == 0

    bounds = {"env": Bounds(2, 8), "act": Bounds(1, 4)}
    for cores, expected in [(20, "env*8 | act*4 | learn"), (10, "env*8 | act | learn"), (8, "env*4 | act*3 | learn")]:
        assert str(filled(plan, bounds, lambda p, n=cores: room(n, p))) == expected  # type: ignore[misc]
    assert filled(plan, bounds, lambda p: room(3, p)) is None
