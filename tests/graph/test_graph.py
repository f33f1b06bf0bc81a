"""The graph refuses what does not fit, when it is made; and takes fragments of the user's own on its streams."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from weft.core.errors import GraphError, UnknownName
from weft.graph import Fragment, Graph, Port, Stream


def test_names_are_in_the_order_of_data(loop):
    assert loop.names == ("env", "act", "learn")
    assert loop.fragment("act").output("unroll").name == "unroll"
    assert loop.fragment("act").input("params").schema is loop.stream("params").schema


def test_message_bytes_add_up_the_arrays(loop):
    assert loop.stream("timestep").message_bytes == 8 * 3 * 4 + 8 * 4
    assert loop.stream("params").message_bytes == 3 * 2 * 4 + 2 * 2


def test_a_prng_key_counts_as_two_words():
    key = jax.eval_shape(lambda: jax.random.key(0))
    assert Stream("key", "a", "b", {"key": key}).message_bytes == 8


def test_unknown_names_are_answered_with_the_nearest(loop):
    with pytest.raises(UnknownName, match=r"unknown fragment 'lern'\. Did you mean 'learn'"):
        loop.fragment("lern")
    with pytest.raises(UnknownName, match=r"unknown stream 'unrol'\. Did you mean 'unroll'"):
        loop.stream("unrol")


@pytest.mark.parametrize("name", ["act", "grad"])
def test_two_fragments_or_parts_of_one_name_are_refused(loop, name):
    with pytest.raises(GraphError, match=f"the same name: {name}"):
        Graph((*loop.fragments, Fragment(name, (), ())), ())


def test_a_stream_to_nowhere_is_refused(loop):
    with pytest.raises(
        GraphError, match=r"'unroll' from 'act' to 'lern': its target is not a fragment .*env, act, learn"
    ):
        Graph(loop.fragments, (replace(loop.stream("unroll"), target="lern"),))
    with pytest.raises(GraphError, match="its source is not a fragment"):
        Graph(loop.fragments, (replace(loop.stream("unroll"), source="actor"),))


def test_a_stream_needs_a_port_of_its_name_at_both_ends(loop):
    with pytest.raises(GraphError, match=r"fragment 'env' has no output port of that name \(output ports: timestep\)"):
        Graph(loop.fragments, (replace(loop.stream("unroll"), source="env"),))
    with pytest.raises(GraphError, match=r"fragment 'env' has no input port of that name \(input ports: action\)"):
        Graph(loop.fragments, (replace(loop.stream("unroll"), target="env"),))


def test_a_schema_of_another_shape_is_refused_with_the_place(loop):
    stream = loop.stream("timestep")
    other = {**stream.schema, "reward": jax.ShapeDtypeStruct((8,), jnp.float16)}
    with pytest.raises(GraphError, match=r"disagrees: at \['reward'\] expected float16\[8\], got float32\[8\]"):
        Graph(loop.fragments, (replace(stream, schema=other),))


def test_a_schema_of_another_structure_is_refused(loop):
    stream = loop.stream("timestep")
    with pytest.raises(GraphError, match="expected the structure"):
        Graph(loop.fragments, (replace(stream, schema={"observation": stream.schema["observation"]}),))


def relabel(state, unroll):
    return state, {**unroll, "reward": unroll["reward"] * 2}


def test_insert_sets_a_fragment_on_a_stream(loop):
    graph = loop.insert("relabel", relabel)
    assert graph.names == ("env", "act", "relabel", "learn")
    legs = [(s.source, s.target) for s in graph.streams if s.name == "unroll"]
    assert legs == [("act", "relabel"), ("relabel", "learn")]
    assert graph.on_stream("unroll") == (graph.fragment("relabel"),)
    assert graph.fragment("relabel").code.step is relabel
    assert loop.names == ("env", "act", "learn"), "the graph it was inserted into stays as it was"


def test_inserted_fragments_stand_in_the_order_of_insertion(loop):
    graph = loop.insert("first", relabel).insert("second", relabel, init=lambda key: 0)
    assert [f.name for f in graph.on_stream("unroll")] == ["first", "second"]
    legs = [(s.source, s.target) for s in graph.streams if s.name == "unroll"]
    assert legs == [("act", "first"), ("first", "second"), ("second", "learn")]


def test_insert_on_params_stands_between_learn_and_act(loop):
    graph = loop.insert("average", lambda state, params: (state, params), on="params")
    assert [(s.source, s.target) for s in graph.streams if s.name == "params"] == [
        ("learn", "average"),
        ("average", "act"),
    ]


def test_insert_refuses_what_it_cannot_use(loop):
    with pytest.raises(UnknownName, match=r"unknown stream 'unrolls'\. Did you mean 'unroll'"):
        loop.insert("relabel", relabel, on="unrolls")
    with pytest.raises(GraphError, match="step and init must be functions"):
        loop.insert("relabel", "not a function")
    with pytest.raises(GraphError, match="step and init must be functions"):
        loop.insert("relabel", relabel, init=3)
    with pytest.raises(GraphError, match="the same name: act"):
        loop.insert("act", relabel)


def test_on_stream_leaves_out_the_ends(loop):
    assert loop.on_stream("unroll") == ()


def test_ports_of_one_name_may_be_shared_by_several_readers(loop):
    port = Port("params", loop.stream("params").schema)
    evaluate = Fragment("evaluate", (port,), ())
    graph = Graph((*loop.fragments, evaluate), (*loop.streams, replace(loop.stream("params"), target="evaluate")))
    assert [s.target for s in graph.streams if s.name == "params"] == ["act", "evaluate"]
