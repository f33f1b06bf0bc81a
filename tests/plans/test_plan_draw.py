"""A graph drawn under a plan: its groups, its streams, and learn in two where the plan parts it."""

import pytest

from weft.graph import Rhythm
from weft.graph.split import split
from weft.plans import Machine, catalogue, draw_mermaid, draw_text, parse, resolve

MACHINE = Machine(cores=8)


def plan_for(text, graph):
    return resolve(text, graph, MACHINE, envs=12, pure_env=graph.fragment("env").pure)


def test_groups_are_boxes_with_replicas_and_device(host_loop):
    picture = draw_text(host_loop, plan_for("env*4 | (act+learn)@cpu", host_loop))
    assert "╭─ env*4 ─" in picture
    assert "╭─ (act+learn)@cpu ─" in picture
    assert picture.count("one XLA program") == 1
    assert picture.count("between groups") == 2
    assert picture.count("fused") == 2


def test_a_pure_loop_is_one_program(loop, host_loop):
    assert draw_text(loop, plan_for("inline", loop)).count("fused") == 4
    assert "fused" not in draw_text(host_loop, plan_for("inline", host_loop))


def test_without_a_plan_the_graph_alone(loop):
    assert draw_text(loop).count("╭─") == 3
    assert "subgraph" not in draw_mermaid(loop)


@pytest.mark.parametrize("name", [name for name, *_ in catalogue() if name not in ("auto", "apex")])
def test_every_named_plan_can_be_drawn(loop, name):
    plan = plan_for(name, loop)
    picture, chart = draw_text(loop, plan), draw_mermaid(loop, plan)
    for group in plan.groups:
        assert f"╭─ {group} ─" in picture
        assert f'["{group}"]' in chart
    assert chart.count("subgraph") == len(plan.groups)


APEX = """\
╭─ (env+act)*6 ─────────╮
│ env                   │
│ act            unroll ├──╮
│                params ◀──┼──╮
│   env ─timestep→ act  │  │  │
│   act ─action→ env    │  │  │
╰─ one XLA program ─────╯  │  │
╭─ replay ──────────────╮  │  │
│ replay         unroll ◀──╯  │
│                 batch ├──╮  │
╰───────────────────────╯  │  │
╭─ learn ───────────────╮  │  │
│ learn           batch ◀──╯  │
│                params ├─────╯
╰───────────────────────╯
"""


def test_short_lanes_stay_near_the_boxes(replay_loop):
    assert draw_text(replay_loop, plan_for("apex", replay_loop)).startswith(APEX)


def test_learn_in_two_parts(loop):
    graph = split(loop, plan_for("central", loop).fragments)
    assert graph.names == ("env", "act", "grad", "apply")
    edges = [(s.name, s.source, s.target) for s in graph.streams]
    assert edges == [
        ("timestep", "env", "act"),
        ("action", "act", "env"),
        ("unroll", "act", "grad"),
        ("params", "apply", "act"),
        ("gradients", "grad", "apply"),
        ("params", "apply", "grad"),
    ]
    gradients = graph.stream("gradients")
    assert gradients.rhythm is Rhythm.UPDATE
    assert gradients.schema == graph.stream("params").schema
    assert graph.streams[-1].delivery is loop.stream("params").delivery


def test_each_policy_has_its_own_gradients(two_policies):
    plan = plan_for("(env+act+grad)*2 | apply", two_policies)
    graph = split(two_policies, plan.fragments)
    crossing = {(s.source, s.target) for s in graph.streams if s.name.startswith("gradients")}
    assert crossing == {("grad.hiders", "apply.hiders"), ("grad.seekers", "apply.seekers")}
    draw_text(two_policies, plan)


def test_a_graph_whose_learn_is_whole_stays_the_same(loop):
    assert split(loop, parse("env | act | learn").fragments) is loop
