"""Plans as data: stored plans that are not, differences in words, and what cannot be a plan."""

import re

import pytest

from weft.core.errors import PlanError
from weft.plans import Device, Group, Plan, diff, parse


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"groups": 3},
        {"groups": [{"fragments": ["env"]}]},
        {"groups": [{"fragments": ["env"], "replicas": "x", "device": None}]},
        {"groups": [{"fragments": ["env"], "replicas": 1, "device": 3}]},
    ],
)
def test_a_stored_plan_that_is_not_one(data):
    with pytest.raises(PlanError, match=r"cannot read a stored plan.*Expected"):
        Plan.from_dict(data)


def test_what_cannot_be_a_plan():
    with pytest.raises(PlanError, match="at least one group"):
        Plan(())
    with pytest.raises(PlanError, match="at least one fragment"):
        Group(())
    with pytest.raises(PlanError, match="at least 1 replica, got 0"):
        Group(("env",), 0)
    with pytest.raises(PlanError, match="'my-env' cannot be a fragment's name"):
        Group(("my-env",))
    with pytest.raises(PlanError, match="needs a first one"):
        Device("gpu", None, 3)


def test_a_device_knows_its_numbers():
    assert Device("gpu", 2) == Device("gpu", 2, 2) == Device.from_text("gpu:2")
    assert Device.from_text("gpu:1-3").indices == range(1, 4)
    assert Device("gpu").indices is None


def test_group_of_says_what_the_plan_lacks():
    plan = parse("(env+act)*4 | learn")
    assert plan.group_of("act") is plan.groups[0]
    with pytest.raises(PlanError, match=re.escape("plan '(env+act)*4 | learn' has no fragment 'replay'")):
        plan.group_of("replay")


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ("env+act | learn", "learn | act+env", []),
        ("env*4 | act", "env*8 | act", ["env: from 4 replicas to 8 replicas"]),
        ("(env+act)*N", "env+act", ["env+act: from as many replicas as suit the machine to 1 replica"]),
        ("env | learn", "env | learn@gpu:0", ["learn: from the default device to gpu:0"]),
        (
            "(env+act)*4 | learn",
            "env*4 | act+learn",
            [
                "env: moves from '(env+act)*4' to 'env*4'",
                "act: moves from '(env+act)*4' to 'act+learn'",
                "learn: moves from 'learn' to 'act+learn'",
            ],
        ),
        ("env | replay", "env | act", ["replay: no longer in the plan (was in 'replay')", "act: new, in 'act'"]),
    ],
)
def test_differences_in_words(before, after, changes):
    assert diff(parse(before), parse(after)) == changes
