"""The plan language: what it reads, how it prints (as text, as JSON), and how it says that it cannot read."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.core.errors import PlanError
from weft.plans import Device, Group, Plan, diff, parse

WORDS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}(\.[A-Za-z0-9_]{1,4}){0,2}", fullmatch=True)
DEVICES = st.one_of(
    st.just(Device("cpu")),
    st.just(Device("gpu")),
    st.tuples(st.integers(0, 99), st.integers(0, 9)).map(lambda x: Device("gpu", x[0], x[0] + x[1])),
)
GROUPS = st.builds(
    Group,
    fragments=st.lists(WORDS, min_size=1, max_size=4).map(tuple),
    replicas=st.none() | st.integers(1, 999_999_999),
    device=st.none() | DEVICES,
)
PLANS = st.lists(GROUPS, min_size=1, max_size=5).map(lambda groups: Plan(tuple(groups)))


@given(PLANS)
@settings(deadline=None, database=None)
def test_what_is_printed_reads_back_the_same(plan):
    assert parse(str(plan)) == plan
    assert str(parse(str(plan))) == str(plan)


@given(PLANS)
@settings(deadline=None, database=None)
def test_json_and_back(plan):
    data = json.loads(json.dumps(plan.to_dict()))
    assert Plan.from_dict(data) == plan
    assert data["expression"] == str(plan)


@given(PLANS)
@settings(deadline=None, database=None, max_examples=30)
def test_a_plan_does_not_differ_from_itself(plan):
    assert diff(plan, plan) == []


@given(st.text(alphabet="env act+*|@()gpu:0-3N.\t,", max_size=24))
@settings(deadline=None, database=None, max_examples=300)
def test_any_text_is_read_or_refused(text):
    try:
        plan = parse(text)
    except PlanError:
        return
    assert parse(str(plan)) == plan


@given(PLANS, st.data())
@settings(deadline=None, database=None)
def test_spaces_and_parentheses_do_not_matter(plan, data):
    text = str(plan)
    gaps = [f" {c} " if c in "|+*@()" and data.draw(st.booleans()) else c for c in text]
    assert parse("".join(gaps)) == plan


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("env", Plan((Group(("env",)),))),
        ("env*4", Plan((Group(("env",), 4),))),
        ("(env)*4", Plan((Group(("env",), 4),))),
        ("((env+act))*4|learn", Plan((Group(("env", "act"), 4), Group(("learn",))))),
        ("(env+(act+learn))", Plan((Group(("env", "act", "learn")),))),
        ("(env+act)+learn", Plan((Group(("env", "act", "learn")),))),
        ("act.hiders@gpu:0-3", Plan((Group(("act.hiders",), 1, Device("gpu", 0, 3)),))),
        ("env*auto | act*N", Plan((Group(("env",), None), Group(("act",), None)))),
        ("learn*2@gpu", Plan((Group(("learn",), 2, Device("gpu")),))),
    ],
)
def test_readings(text, plan):
    assert parse(text) == plan


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("(env)*1", "env"),
        ("(env+act)*1@gpu:2-2", "(env+act)@gpu:2"),
        ("( env + act ) * 4|learn", "(env+act)*4 | learn"),
        ("env*N", "env*auto"),
    ],
)
def test_the_canonical_text(text, printed):
    assert str(parse(text)) == printed


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        ("env+act*4", 7, "Write '(env+act)*4', or 'env | act*4'."),
        ("env+act@gpu", 7, "Write '(env+act)@gpu', or 'env | act@gpu'."),
        ("env+act*4@gpu | learn", 7, "Write '(env+act)*4@gpu', or 'env | act*4@gpu'."),
        ("env*4+act | learn", 3, "Write '(env+act)*4', or 'env*4 | act'."),
        ("(env+act)+learn*2", 15, "Write '(env+act+learn)*2', or 'env+act | learn*2'."),
        ("(env*2+act)", 4, "Write '(env+act)*2', or 'env*2 | act'."),
        ("(env*2) | act", 4, "Write 'env*2'."),
        ("env++act", 4, "expected a fragment's name or '(', got '+'"),
        ("env | | act", 6, "expected a fragment's name or '(', got '|'"),
        ("| env", 0, "expected a fragment's name or '(', got '|'"),
        ("env +", 5, "expected a fragment's name or '(', got the end"),
        ("env act", 4, "expected '+', '|', '*', '@' or the end, got 'act'"),
        ("env, act", 3, "got ','"),
        ("(env+act", 8, "')' for the '(' at character 1, got the end"),
        ("env)", 3, "got ')'"),
        ("(env|act)*2", 4, "'|' inside parentheses"),
        ("env*", 4, "expected a number of replicas after '*', got the end"),
        ("env*0", 4, "at least 1 replica"),
        ("env*-1", 4, "got '-1'"),
        ("env*1.5", 4, "got '1.5'"),
        ("env*four", 4, "expected a number of replicas (or 'auto')"),
        ("env*" + "9" * 5000, 4, "expected a number of replicas"),
        ("env*2*3", 5, "got '*'"),
        ("env@gpu*4", 7, "Write 'env*4@gpu'."),
        ("env@", 4, "expected a device after '@'"),
        ("env@tpu", 4, "Did you mean 'gpu'?"),
        ("env@gpu:", 4, "cannot read the device 'gpu:'"),
        ("env@gpu:3-1", 4, "write 'gpu:1-3'"),
        ("env@cpu:0", 4, "'cpu' has no numbers"),
        ("env\t| ac~t", 8, "got '~'"),
    ],
)
def test_errors_point_at_the_place_and_say_what_next(text, at, says):
    with pytest.raises(PlanError) as caught:
        parse(text)
    message = str(caught.value)
    assert says in message
    _, line, caret, *_ = message.splitlines()
    assert line == "    " + text.replace("\t", " ")
    assert caret == "    " + " " * at + "^"
    for advice in re.findall(r"Write (.*)\.$", message):
        for suggestion in re.findall(r"'([^']+)'", advice):
            parse(suggestion)


@pytest.mark.parametrize("text", ["", "  \n "])
def test_an_empty_plan_is_answered_with_an_example(text):
    with pytest.raises(PlanError, match=r"the plan is empty.*such as"):
        parse(text)
