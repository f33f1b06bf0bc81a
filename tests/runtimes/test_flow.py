"""A flow walks fragments in the order of their messages, whatever the order in which they were written."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import Counter, Probe, bound

from weft.core.errors import GraphError
from weft.core.keys import fragment_key
from weft.graph import Delivery, Fragment, Graph, Port, Rhythm, Role, Stream, register_role
from weft.graph.fragment import MapCode
from weft.graph.loops import on_policy
from weft.runtimes.flow import Flow, all_finite, flat_metrics, message_inputs
from weft.runtimes.roles.role import MessageRole

NUMBER = jax.ShapeDtypeStruct((), jnp.float32)
SEED = jnp.int32(3)


class SumRole(MessageRole):
    """A learner by hand: its state is the sum of what it got, which it publishes."""

    def stage(self, fragment, graph):
        from weft.runtimes.stage import Ran, Stage

        def run(state, inputs, params, given):
            total = state["sum"] + sum(inputs.values())
            return Ran({"sum": total}, metrics={"sum": total, "given": given})

        return Stage(lambda key: {"sum": jnp.float32(0)}, run, lambda state: state["sum"])


class NoRole:
    """Has no form for one process."""


SUM = SumRole()
register_role(Role("toy.sum", f"{__name__}:SUM", publishes=True))
register_role(Role("toy.none", f"{__name__}:NoRole"))


def chain(*maps, reads=None):
    """source → maps → sum, numbers all the way; ``reads``: maps that get the sum's params. Written back to front."""
    reads = reads or {}
    numbers, params = Port("number", NUMBER), Port("params", NUMBER)
    names = ["source", *(name for name, _, _ in maps), "sum"]
    fragments = [Fragment("sum", (numbers,), (params,), role_name="toy.sum")]
    streams = []
    for name, step, init in reversed(maps):
        inputs = (numbers, params) if name in reads else (numbers,)
        code = MapCode(step, init, ("sum",) if name in reads else ())
        fragments.append(Fragment(name, inputs, (numbers,), role_name="map", code=code))
        if name in reads:
            streams.append(Stream("params", "sum", name, NUMBER, Delivery.LATEST, Rhythm.UPDATE))
    fragments.append(Fragment("source", (), (numbers,), role_name="map", code=MapCode(lambda s, m: (s, m))))
    streams += [Stream("number", a, b, NUMBER) for a, b in pairwise(names)]
    return Graph(tuple(fragments), tuple(streams))


def below(graph):
    return Flow(graph, [n for n in graph.names if n != "source"])


def run(graph, *numbers, states=None):
    flow = below(graph)
    states = flow.init(SEED) if states is None else states
    states, newest = flow.publish(states)
    return flow.run(states, {("source", "number"): [jnp.float32(n) for n in numbers]}, newest)


def test_fragments_run_in_the_order_of_messages_and_not_of_the_graph():
    graph = chain(
        ("plus", lambda s, m: (s, m + 1), None),
        ("times", lambda s, m: (s, m * 10), None),
    )
    assert graph.names == ("sum", "times", "plus", "source")
    assert below(graph).names == ("plus", "times", "sum")
    flowed = run(graph, 1.0)
    assert float(flowed.states["sum"]["sum"]) == 20.0
    assert flowed.out == {}


def test_every_message_is_taken_in_turn_and_states_pass_from_one_to_the_next():
    graph = chain(("index", lambda s, m: (s + 1, m + 100 * s), lambda key: jnp.float32(1)))
    flowed = run(graph, 1.0, 2.0, 3.0)
    assert float(flowed.states["index"]) == 4.0
    assert [float(m["sum"]) for m in flowed.metrics["sum"]] == [101.0, 303.0, 606.0]


def test_one_message_may_become_several_or_none():
    graph = chain(
        ("twice", lambda s, m: (s, [m, -m * 2]), None),
        ("none", lambda s, m: (s + 1, [m] if int(s) % 2 else []), lambda key: jnp.int32(0)),
    )
    flowed = run(graph, 1.0, 5.0)
    assert [float(m["sum"]) for m in flowed.metrics["sum"]] == [-2.0, -12.0], "the second of each"
    assert int(flowed.states["none"]) == 4


def test_without_messages_nothing_runs():
    flowed = run(chain(("plus", lambda s, m: pytest.fail("called"), None)))
    assert flowed.metrics == {}
    assert float(flowed.states["sum"]["sum"]) == 0.0


def test_what_nobody_in_the_flow_takes_goes_out():
    graph = chain(("plus", lambda s, m: (s, m + 1), None))
    flow = Flow(graph, ["plus"])
    flowed = flow.run(flow.init(SEED), {("source", "number"): [jnp.float32(1), jnp.float32(2)]}, {})
    assert [float(m) for m in flowed.out["plus", "number"]] == [2.0, 3.0]
    assert set(flowed.states) == {"plus"}


def test_a_map_reads_params_of_the_flow_as_they_are_now():
    graph = chain(("reads", lambda s, m, total: (s, m + total), None), reads={"reads"})
    first = run(graph, 1.0)
    second = run(graph, 1.0, states=first.states)
    assert float(second.states["sum"]["sum"]) == 1 + (1 + 1)


def test_a_map_reads_params_from_outside_the_flow():
    graph = chain(("reads", lambda s, m, total: (s, m + total), None), reads={"reads"})
    flow = Flow(graph, ["reads"])
    flowed = flow.run(flow.init(SEED), {("source", "number"): [jnp.float32(1)]}, {("sum", "params"): jnp.float32(50)})
    assert float(flowed.out["reads", "number"][0]) == 51.0


def test_publish_takes_params_through_the_maps_on_them():
    algorithm, _ = bound(Probe(), Counter())
    graph = on_policy(algorithm)
    graph = graph.insert("one", lambda s, p: (s + 1, {"weight": p["weight"] * 10}), lambda key: 0, on="params")
    graph = graph.insert("two", lambda s, p: (s, {"weight": p["weight"] + 1}), on="params")
    flow = Flow(graph, graph.names)
    states, newest = flow.publish(flow.init(SEED))
    assert {leg: float(params["weight"]) for leg, params in newest.items()} == {
        ("learn", "params"): 2.0,
        ("one", "params"): 20.0,
        ("two", "params"): 21.0,
    }
    assert int(states["one"]) == 1
    assert float(flow.params(states, "learn")["weight"]) == 2.0
    assert message_inputs(graph, "one") == []


def test_a_map_on_params_is_not_run_by_messages():
    algorithm, _ = bound(Probe(), Counter())
    graph = on_policy(algorithm).insert("count", lambda s, p: (s + 1, p), lambda key: jnp.int32(0), on="params")
    flow = Flow(graph, graph.names)
    states, newest = flow.publish(flow.init(SEED))
    unroll = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), graph.stream("unroll").schema)
    flowed = flow.run(states, {("act", "unroll"): [unroll, unroll]}, newest)
    assert int(flowed.states["count"]) == 1
    assert len(flowed.metrics["learn"]) == len(flowed.finite["learn"]) == 2
    assert float(flowed.states["learn"].params["weight"]) == 4.0


def test_rewards_as_given_are_added_up_before_maps_change_them():
    algorithm, _ = bound(Probe(), Counter())
    graph = on_policy(algorithm).insert("repair", lambda s, u: (s, u._replace(reward=jnp.nan_to_num(u.reward))))
    flow = Flow(graph, graph.names)
    unroll = jax.tree.map(lambda s: jnp.ones(s.shape, s.dtype), graph.stream("unroll").schema)
    bad = unroll._replace(reward=unroll.reward.at[0, 0].set(jnp.nan))
    for message, given, good in ((unroll, None, True), (bad, None, False), (unroll, jnp.float32(jnp.inf), False)):
        flowed = flow.run(flow.init(SEED), {("act", "unroll"): [message]}, {}, given)
        (finite,) = flowed.finite["learn"]
        assert bool(finite.rewards) is bool(finite.learned) is good
        assert float(flowed.states["learn"].params["weight"]) == (3.0 if good else 2.0), "bad ones change nothing"


def test_states_are_drawn_from_the_seed_and_the_fragment_s_name():
    def draw(key):
        return jax.random.uniform(key)

    graph = chain(("a", lambda s, m: (s, m), draw), ("b", lambda s, m: (s, m), draw))
    states = below(graph).init(SEED)
    assert float(states["a"]) == float(draw(fragment_key(SEED, "a")))
    assert float(states["a"]) != float(states["b"])


def test_host_code_has_its_state_in_numpy():
    algorithm, _ = bound(Probe(), Counter())
    graph = on_policy(algorithm).insert("mine", lambda s, u: (s, u), lambda key: {"n": 1, "x": 0.1}, host=True)
    flow = Flow(graph, graph.names)
    states = flow.init_host(SEED)
    assert set(states) == {"mine"}
    assert states["mine"]["n"].dtype == np.int64
    assert states["mine"]["x"].dtype == np.float64
    assert set(flow.init_pure(SEED)) == {"learn"}
    assert set(flow.init(SEED)) == {"mine", "learn"}
    template = flow.template()
    assert template["mine"]["x"].dtype == np.float64
    assert isinstance(template["learn"].params["weight"], jax.ShapeDtypeStruct)


def test_a_role_without_a_form_for_one_process_is_refused():
    graph = Graph((Fragment("odd", (), (), role_name="toy.none"),), ())
    with pytest.raises(GraphError, match=r"'odd' has the role 'toy.none', which has no form for one process"):
        Flow(graph, graph.names)


def test_a_role_must_say_what_it_does():
    with pytest.raises(GraphError, match=r"must define stage"):
        MessageRole().stage(Fragment("odd", (), ()), Graph((), ()))


def test_metrics_are_named_by_policy_only_where_there_are_several():
    assert flat_metrics(["learn"], {"learn": {"loss": 1}}) == {"loss": 1}
    several = {"learn.red": {"loss": 1}, "learn.blue": {"loss": 2}}
    assert flat_metrics(several, several) == {"red/loss": 1, "blue/loss": 2}


def test_all_finite_looks_at_floating_numbers_only():
    assert bool(all_finite({"a": jnp.ones(2), "b": jnp.arange(3)}))
    assert not bool(all_finite({"a": jnp.array([1.0, jnp.inf]), "b": jnp.arange(3)}))
    assert bool(all_finite({"b": jnp.arange(3)}))
