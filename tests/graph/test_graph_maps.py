"""Fragments of one's own on a graph's streams: what they read, what they give, and what is refused."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from weft.core.errors import GraphError, UnknownName
from weft.core.specs import Box, Discrete, EnvSpec, Spec
from weft.core.types import Acted, Gradients, TrainState
from weft.graph import Delivery, Fragment, Graph, Port, Rhythm, Role, Sharing, Stream, register_role
from weft.graph.algorithm import Algorithm
from weft.graph.split import split

SCALAR = jax.ShapeDtypeStruct((), jnp.float32)
UNROLL = {  # of the loop in conftest.py
    "observation": jax.ShapeDtypeStruct((4, 8, 3), jnp.float32),
    "reward": jax.ShapeDtypeStruct((4, 8), jnp.float32),
}


def same(state, message, *params):
    return state, message


def legs(graph, name):
    return [(s.source, s.target) for s in graph.streams if s.name == name]


@dataclass(frozen=True)
class Halves(Algorithm):
    """Comes apart: its gradients are the mean reward, for each of its weights."""

    unroll: int = 4

    def init(self, key):
        return TrainState({"w": jnp.zeros(3)}, (), jnp.int32(0), key)

    def act(self, params, carry, timestep, key):
        return Acted(jnp.int32(0), carry, {"log_prob": timestep.observation.sum()})

    def grad(self, params, batch):
        return {"w": params["w"] * 0 + batch.reward.mean()}, {"loss": batch.reward.mean(), "a": jnp.float32(0)}

    def apply(self, state, gradients):
        return state._replace(params={"w": state.params["w"] - gradients["w"]}, step=state.step + 1)


class Whole(Halves):
    """Does not."""

    def learn(self, state, batch):
        return state, {"loss": batch.reward.mean()}


def graph_of(algorithm):
    environment = EnvSpec("toys:Any", Box((2,)), Discrete(2), pure=True)
    return algorithm.bind(Spec(environment, 8, 10)).graph()


# ---- what a map reads ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reads", ["learn", ("learn",), ["learn"]])
def test_a_map_reads_the_newest_params(loop, reads):
    graph = loop.insert("reanalyse", same, reads=reads)
    assert graph.fragment("reanalyse").code.reads == ("learn",)
    assert [p.name for p in graph.fragment("reanalyse").inputs] == ["unroll", "params"]
    (news,) = [s for s in graph.into("reanalyse") if s.name == "params"]
    assert (news.source, news.delivery, news.rhythm, news.sharing) == (
        "learn",
        Delivery.LATEST,
        Rhythm.UPDATE,
        Sharing.ALL,
    )
    assert legs(graph, "params") == [("learn", "act"), ("learn", "reanalyse")]
    graph.check()


def test_what_it_reads_is_known_when_it_is_traced(loop):
    def step(state, unroll, params):
        return state, {**unroll, "reward": unroll["reward"] + params["w"].sum()}

    assert loop.insert("reads", step, reads="learn").stream("unroll").schema == UNROLL
    with pytest.raises(TypeError, match="params"):
        loop.insert("reads", step)


def test_reading_of_nobody_or_of_one_who_publishes_nothing_is_refused(loop):
    with pytest.raises(UnknownName, match=r"unknown fragment 'lern'\. Did you mean 'learn'"):
        loop.insert("reads", same, reads="lern")
    with pytest.raises(
        GraphError, match=r"'reads' reads the params of 'act', which publishes none\. Those that do: learn"
    ):
        loop.insert("reads", same, reads="act")


def test_a_reader_of_params_is_passed_by_when_a_map_is_set_on_them(loop):
    graph = loop.insert("reads", same, reads="learn").insert("average", same, on="params")
    assert legs(graph, "params") == [("learn", "average"), ("average", "act"), ("learn", "reads")]


def test_a_map_may_read_what_another_made_of_the_params(loop):
    graph = loop.insert("average", same, on="params").insert("reads", same, reads="average")
    assert ("average", "reads") in legs(graph, "params")
    graph.check()
    assert graph.order().index("reads") < graph.order().index("learn")


# ---- what a map gives ----------------------------------------------------------------------------------------------


def test_a_pure_map_may_change_the_schema_of_what_follows(loop):
    def bonus(state, unroll):
        return state, {**unroll, "bonus": unroll["reward"].astype(jnp.float16)}

    graph = loop.insert("bonus", bonus)
    into, out = (s for s in graph.streams if s.name == "unroll")
    assert into.schema == UNROLL
    assert out.schema == {**UNROLL, "bonus": jax.ShapeDtypeStruct((4, 8), jnp.float16)}
    assert graph.fragment("learn").input("unroll").schema == out.schema
    assert graph.fragment("act").output("unroll").schema == UNROLL
    later = graph.insert("later", lambda state, unroll: (state, {"only": unroll["bonus"]}))
    assert list(later.fragment("learn").input("unroll").schema) == ["only"]


def test_a_map_may_add_to_the_extras_of_an_unroll():
    def step(state, unroll):
        return state + 1, unroll._replace(extras={**unroll.extras, "novelty": unroll.observation.sum(-1)})

    graph = graph_of(Halves()).insert("novelty", step, lambda key: jnp.int32(0))
    extras = graph.fragment("learn").input("unroll").schema.extras
    assert {name: s.shape for name, s in extras.items()} == {"log_prob": (4, 8), "novelty": (4, 8)}
    graph.check()


def test_a_list_is_several_messages(loop):
    def halves(state, unroll):
        return state, [jax.tree.map(lambda x: x[:2], unroll), jax.tree.map(lambda x: x[2:], unroll)]

    graph = loop.insert("halves", halves)
    assert graph.fragment("learn").input("unroll").schema["reward"].shape == (2, 8)


def test_messages_of_one_map_have_one_schema(loop):
    def uneven(state, unroll):
        return state, [jax.tree.map(lambda x: x[:1], unroll), jax.tree.map(lambda x: x[1:], unroll)]

    with pytest.raises(GraphError, match=r"'uneven' gives messages of different shapes: at \['observation'\] expected"):
        loop.insert("uneven", uneven)


def test_a_pure_map_must_give_something(loop):
    with pytest.raises(GraphError, match=r"'none' gives no message at all.*host=True"):
        loop.insert("none", lambda state, unroll: (state, []))


def test_a_step_that_gives_no_pair_is_refused(loop):
    with pytest.raises(GraphError, match=r"step must return \(state, message\), got dict"):
        loop.insert("wrong", lambda state, unroll: unroll)
    with pytest.raises(GraphError, match=r"step must return \(state, message\), got Unroll"):
        graph_of(Halves()).insert("wrong", lambda state, unroll: unroll)


def test_a_pure_map_is_held_to_what_it_declares(loop):
    graph = loop.insert("declared", same, gives=UNROLL)
    assert graph.fragment("learn").input("unroll").schema == UNROLL
    loop.insert("declared", same, gives=lambda schema: schema)
    other = {**UNROLL, "reward": jax.ShapeDtypeStruct((4, 8), jnp.int32)}
    with pytest.raises(
        GraphError, match=r"'wrong' does not give what it declares: at \['reward'\] expected int32\[4, 8\], got float32"
    ):
        loop.insert("wrong", same, gives=other)


def test_host_code_is_not_called_and_gives_what_it_takes_unless_it_says_otherwise(loop):
    def never(state, unroll):
        pytest.fail("host code was called")

    graph = loop.insert("host", never, lambda key: pytest.fail("so was its init"), host=True)
    assert not graph.fragment("host").pure
    assert graph.fragment("host").role.name == "map"
    assert graph.fragment("learn").input("unroll").schema == UNROLL

    by_schema = loop.insert("host", never, host=True, gives={"reward": np.zeros((4, 8), np.int8)})
    by_function = loop.insert(
        "host", never, host=True, gives=lambda s: {"reward": jax.ShapeDtypeStruct(s["reward"].shape, jnp.int8)}
    )
    for graph in (by_schema, by_function):
        schema = graph.fragment("learn").input("unroll").schema
        assert schema == {"reward": jax.ShapeDtypeStruct((4, 8), jnp.int8)}
        assert isinstance(schema["reward"], jax.ShapeDtypeStruct)


# ---- where a map may be --------------------------------------------------------------------------------------------


def test_a_map_on_params_comes_after_who_publishes_them(loop):
    graph = loop.insert("average", same, on="params", init=lambda key: 0)
    assert graph.names == ("env", "act", "learn", "average")
    assert all(s.delivery is Delivery.LATEST for s in graph.streams if s.name == "params")
    graph.check()
    with pytest.raises(GraphError, match=r"'wrong' .*gives no message at all"):
        loop.insert("wrong", lambda state, params: (state, []), on="params")


def test_maps_on_params_stand_in_the_order_of_insertion(loop):
    graph = loop.insert("one", same, on="params").insert("two", same, on="params")
    assert legs(graph, "params") == [("learn", "one"), ("one", "two"), ("two", "act")]
    order = graph.order()
    assert order.index("learn") < order.index("one") < order.index("two")


@pytest.mark.parametrize("on", ["timestep", "action"])
def test_a_map_on_what_passes_at_every_step_is_refused(loop, on):
    with pytest.raises(
        GraphError, match=rf"'mine' cannot be on the stream '{on}', which passes at every step.*params, unroll"
    ):
        loop.insert("mine", same, on=on)


def test_a_map_on_gradients_parts_learn():
    graph = graph_of(Halves()).insert("clip", same, on="gradients")
    assert graph.names == ("env", "act", "grad", "clip", "apply")
    assert legs(graph, "gradients") == [("grad", "clip"), ("clip", "apply")]
    assert legs(graph, "params") == [("apply", "act"), ("apply", "grad")]
    assert {graph.fragment(n).part_of for n in ("grad", "apply")} == {"learn"}
    message = graph.stream("gradients").schema
    assert isinstance(message, Gradients)
    assert message.tree["w"].shape == (3,)
    assert list(message.metrics) == ["a", "loss"]
    assert graph.stream("gradients").rhythm is Rhythm.UPDATE
    graph.check()
    assert graph.order()[-3:] == ("grad", "clip", "apply")


def test_gradients_are_a_stream_only_where_learn_comes_apart():
    with pytest.raises(GraphError, match="'gradients' is there only where 'learn' comes apart into grad and apply"):
        graph_of(Whole()).insert("clip", same, on="gradients")


def test_a_map_on_params_leaves_grad_the_learner_s_own():
    first = graph_of(Halves()).insert("clip", same, on="gradients").insert("average", same, on="params")
    second = graph_of(Halves()).insert("average", same, on="params").insert("clip", same, on="gradients")
    for graph in (first, second):
        assert set(legs(graph, "params")) == {("apply", "average"), ("average", "act"), ("apply", "grad")}
        graph.check()


def test_a_map_on_unrolls_comes_before_grad_where_learn_is_parted():
    graph = graph_of(Halves()).insert("clip", same, on="gradients").insert("relabel", same)
    assert legs(graph, "unroll") == [("act", "relabel"), ("relabel", "grad")]


def test_splitting_keeps_the_maps():
    graph = split(graph_of(Halves()).insert("relabel", same), ["env", "act", "relabel", "grad", "apply"])
    assert graph.names == ("env", "act", "relabel", "grad", "apply")
    assert legs(graph, "unroll") == [("act", "relabel"), ("relabel", "grad")]
    graph.check()


# ---- what could never run ------------------------------------------------------------------------------------------


def test_the_usual_loop_can_run(loop):
    loop.check()
    loop.insert("one", same).insert("two", same, on="params").check()


def test_a_stream_without_a_reader_is_refused(loop):
    with pytest.raises(GraphError, match="stream 'unroll' of fragment 'act' has no reader: add a Stream"):
        Graph(loop.fragments, tuple(s for s in loop.streams if s.name != "unroll")).check()


def test_an_input_that_no_stream_brings_is_refused(loop):
    learn = replace(loop.fragment("learn"), inputs=(*loop.fragment("learn").inputs, Port("demonstration", UNROLL)))
    with pytest.raises(GraphError, match="'learn' waits for 'demonstration', and no stream brings it"):
        Graph((*loop.fragments[:2], learn), loop.streams).check()


def circle(*names, delivery=Delivery.BLOCK):
    fragments = tuple(
        Fragment(name, (Port(f"to_{name}", SCALAR),), (Port(f"to_{after}", SCALAR),))
        for name, after in zip(names, (*names[1:], names[0]), strict=True)
    )
    streams = [Stream(f"to_{b}", a, b, SCALAR) for a, b in zip(names, (*names[1:], names[0]), strict=True)]
    streams[-1] = replace(streams[-1], delivery=delivery)
    return fragments, tuple(streams)


def test_a_cycle_that_nothing_starts_is_refused(loop):
    fragments, streams = circle("a", "b", "c")
    with pytest.raises(GraphError, match="nothing starts the cycle") as refused:
        Graph((*loop.fragments, *fragments), (*loop.streams, *streams)).check()
    assert any(f"cycle {way}:" in str(refused.value) for way in ("a → b → c → a", "b → c → a → b", "c → a → b → c"))


def test_a_fragment_that_waits_for_itself_is_refused():
    fragments, streams = circle("a")
    with pytest.raises(GraphError, match="nothing starts the cycle a → a"):
        Graph(fragments, streams).check()


def test_a_cycle_that_the_newest_message_closes_can_run():
    Graph(*circle("a", "b", "c", delivery=Delivery.LATEST)).check()


def test_a_cycle_through_environments_can_run(loop):
    assert loop.order() == ("env", "act", "learn")


def test_who_only_leads_to_a_cycle_is_not_blamed():
    (a, b), streams = circle("a", "b")
    into = replace(a, inputs=(*a.inputs, Port("fed", SCALAR)))
    feeder = Fragment("feeder", (), (Port("fed", SCALAR),))
    after = Fragment("after", (Port("to_after", SCALAR),), ())
    b = replace(b, outputs=(*b.outputs, Port("to_after", SCALAR)))
    graph = Graph(
        (feeder, into, b, after),
        (*streams, Stream("fed", "feeder", "a", SCALAR), Stream("to_after", "b", "after", SCALAR)),
    )
    with pytest.raises(GraphError, match=r"cycle (a → b → a|b → a → b):"):
        graph.check()


# ---- roles ---------------------------------------------------------------------------------------------------------


def test_a_fragment_has_the_role_of_its_name_or_the_one_it_names():
    roles = {name: Fragment(name, (), ()).role_name for name in ("env", "act.red", "learn", "grad", "relabel")}
    assert roles == {"env": "step", "act.red": "act", "learn": "learn", "grad": "grad", "relabel": "map"}
    assert Fragment("second", (), (), role_name="learn").role.publishes


def test_an_unknown_role_is_refused():
    with pytest.raises(UnknownName, match=r"unknown role 'lern'\. Did you mean 'learn'"):
        Fragment("mine", (), (), role_name="lern")


def test_two_roles_of_one_name_are_refused():
    role = Role("toy.twice", "toys:A")
    assert register_role(role) is role
    register_role(Role("toy.twice", "toys:A"))  # a module that is imported again
    with pytest.raises(
        GraphError, match=r"two roles are called 'toy.twice': toys:A is registered, and toys:B came now"
    ):
        register_role(Role("toy.twice", "toys:B"))
    with pytest.raises(GraphError, match="two roles are called 'map'"):
        register_role(Role("map", "toys:Map"))
