"""Pictures of a graph: every fragment and stream is there, lines meet, and Mermaid's grammar is kept."""

import re

import jax
import jax.numpy as jnp
import pytest

from weft.core.errors import GraphError
from weft.graph import Fragment, Graph
from weft.graph.describe import Measured, describe_bytes, describe_rate, describe_schema, short_dtype
from weft.graph.draw import draw_text
from weft.graph.mermaid import draw_mermaid

SEED = {"env*4": ("env",), "act+learn": ("act", "learn")}

SEED_PICTURE = """\
╭─ env*4 ───────────────╮
│ env (host)   timestep ├──╮
│                action ◀──┼──╮
╰───────────────────────╯  │  │
╭─ act+learn ───────────╮  │  │
│ act          timestep ◀──╯  │
│                action ├─────╯
│ learn                 │
│   act ─unroll→ learn  │
│   learn ─params→ act  │
╰─ one XLA program ─────╯

stream    from → to    goes            passes        message  if full  arrays
timestep  env → act    between groups  every step      128 B  block    observation f32[8,3], reward f32[8]
action    act → env    between groups  every step       32 B  block    i32[8]
unroll    act → learn  fused           every unroll    512 B  block    observation f32[4,8,3], reward f32[4,8]
params    learn → act  fused           every update     28 B  latest   b bf16[2], w f32[3,2]"""


def test_the_picture_of_a_graph_in_two_groups(loop):
    assert draw_text(loop, SEED) == SEED_PICTURE


def test_what_was_measured_stands_beside_what_goes_between_groups(loop):
    rates = {name: Measured(1234.5, 2048) for name in ("timestep", "unroll")}
    head, timestep, action, unroll, params = draw_text(loop, SEED, rates).splitlines()[-5:]
    assert "message  messages/s     each    bytes/s  if full" in head
    assert "128 B     1,234/s  2.0 KiB  2.4 MiB/s  block" in timestep
    for line in (action, unroll, params):  # not measured; and fused, so that nothing passes there
        assert "/s" not in line
    chart = draw_mermaid(loop, SEED, rates)
    check_mermaid(chart)
    assert chart.count("measured: 1,234/s of 2.0 KiB") == 1


def test_without_groups_every_fragment_has_a_box_and_every_stream_a_line(loop):
    picture = draw_text(loop)
    assert picture.count("╭─") == 3
    assert "XLA" not in picture
    assert "goes" not in picture
    for stream in loop.streams:
        assert re.search(rf"^{stream.name} +{stream.source} → {stream.target} ", picture, re.MULTILINE)


def test_a_group_with_host_code_is_not_fused(loop):
    picture = draw_text(loop, {"all": loop.names})
    assert "one XLA program" not in picture
    assert "fused" not in picture
    assert picture.count("in memory") == 4


def test_every_lane_begins_and_ends_at_a_port(loop):
    graph = loop.insert("relabel", lambda s, u: (s, u)).insert("average", lambda s, u: (s, u), on="params")
    box = draw_text(graph).split("\n\n")[0].splitlines()
    gives, takes = sum("├─" in line for line in box), sum("◀─" in line for line in box)
    assert gives == takes == len(graph.streams)
    edge = box[0].index("╮")
    margins = [line[edge + 1 :].ljust(40) for line in box]
    for column in range(40):
        inside = False
        for margin in margins:  # a lane goes on, or is crossed, from its upper turn to its lower one
            mark = margin[column]
            assert mark != "╮" or not inside
            assert mark not in "│┼╯" or inside
            inside = (inside or mark == "╮") and mark != "╯"
            assert not inside or mark in "╮│┼"
        assert not inside


def test_groups_must_hold_each_fragment_once(loop):
    for groups in ({"a": ("env", "act")}, {"a": ("env", "act"), "b": ("act", "learn")}, {"a": (*loop.names, "x")}):
        with pytest.raises(GraphError, match="cannot draw: the groups hold"):
            draw_text(loop, groups)
        with pytest.raises(GraphError, match="cannot draw"):
            draw_mermaid(loop, groups)


def test_a_graph_without_streams_can_be_drawn():
    picture = draw_text(Graph((Fragment("alone", (), ()),), ()))
    assert "alone" in picture
    assert picture.endswith("no streams")


def check_mermaid(source: str) -> tuple[list[str], list[tuple[str, str, str]]]:
    """The nodes and edges of a flowchart, after a check of every line against the grammar used."""
    text = r'"[^"`<>]*(?:<br/>[^"`<>]*)*"'
    nodes, edges, depth = [], [], 0
    first, *lines = source.splitlines()
    assert first == "flowchart LR"
    for line in lines:
        if re.fullmatch(rf" +subgraph group\d+\[{text}\]", line):
            depth += 1
        elif line.strip() == "end":
            depth -= 1
        elif match := re.fullmatch(rf" +(f_\w+)(?:\[{text}\]|\[\[{text}\]\])", line):
            nodes.append(match[1])
        else:
            match = re.fullmatch(rf" +(f_\w+) (-->|==>)\|{text}\| (f_\w+)", line)
            assert match, f"not a line of the flowchart: {line!r}"
            edges.append((match[1], match[2], match[3]))
        assert 0 <= depth <= 1
    assert depth == 0
    assert len(set(nodes)) == len(nodes)
    assert {end for a, _, b in edges for end in (a, b)} <= set(nodes)
    return nodes, edges


def test_mermaid_of_a_graph_in_groups(loop):
    source = draw_mermaid(loop, SEED)
    nodes, edges = check_mermaid(source)
    assert nodes == ["f_env", "f_act", "f_learn"]
    assert edges == [
        ("f_env", "==>", "f_act"),
        ("f_act", "==>", "f_env"),
        ("f_act", "-->", "f_learn"),
        ("f_learn", "-->", "f_act"),
    ]
    assert 'subgraph group0["env*4"]' in source
    assert 'f_env[["env<br/>host"]]' in source
    assert '"unroll<br/>observation f32[4,8,3], reward f32[4,8]<br/>512 B every unroll"' in source


def test_mermaid_without_groups_has_no_subgraphs(loop):
    source = draw_mermaid(loop)
    _, edges = check_mermaid(source)
    assert "subgraph" not in source
    assert {arrow for _, arrow, _ in edges} == {"-->"}


def test_mermaid_escapes_and_keeps_names_apart(loop):
    graph = Graph((Fragment("act.x", (), ()), Fragment("act_x", (), ()), Fragment("end", (), ())), ())
    source = draw_mermaid(graph, {'say "<hi>" `#1`': graph.names})
    nodes, _ = check_mermaid(source)
    assert nodes == ["f_act_x", "f_act_x_", "f_end"]
    assert 'group0["say #quot;#lt;hi#gt;#quot; #96;#35;1#96;"]' in source


def test_schemas_in_words():
    leaf = jax.ShapeDtypeStruct((2, 3), jnp.uint8)
    key = jax.eval_shape(lambda: jax.random.key(0))
    assert describe_schema(leaf) == "u8[2,3]"
    assert describe_schema(()) == "nothing"
    assert describe_schema({"camera": (leaf, leaf)}) == "camera.0 u8[2,3], camera.1 u8[2,3]"
    assert describe_schema([key, jax.ShapeDtypeStruct((), jnp.bool_)]) == "0 key, 1 bool"
    assert describe_schema([leaf] * 4).count(",") == 7
    assert describe_schema([leaf] * 5, limit=3) == "0 u8[2,3], 1 u8[2,3], +3 more arrays"


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (20 * 1024, "20 KiB"),
        (3 * 2**20, "3.0 MiB"),
        (2**50, "1024 TiB"),
    ],
)
def test_bytes_in_words(count, words):
    assert describe_bytes(count) == words


def test_dtypes_are_shortened():
    names = [short_dtype(jnp.dtype(d)) for d in ("float32", "bfloat16", "int64", "bool", "complex64")]
    assert names == ["f32", "bf16", "i64", "bool", "c64"]


def test_rates_are_short():
    assert [describe_rate(x) for x in (0.0, 3.14, 99.94, 100.0, 12345.6)] == [
        "0.0/s",
        "3.1/s",
        "99.9/s",
        "100/s",
        "12,346/s",
    ]
    assert Measured.from_json({"messages_per_second": 2, "bytes_per_message": 3.0, "environments": 4}) == Measured(
        2.0, 3
    )
    assert Measured(2.0, 3).bytes_per_second == 6.0
