"""Messages: which axis is the environments', several side by side, and one cut into lanes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drafts import ALGORITHM, UNROLL
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.core.errors import GraphError
from weft.core.specs import Box, Discrete, EnvSpec, Spec
from weft.graph.loops import acted_schema
from weft.runtimes.compiled.replicas import Spread
from weft.runtimes.hosted.blocks import block_schema
from weft.runtimes.messages import NO_AXIS, Form, cut, form_of, join, join_on_host

SPEC = EnvSpec("messages:Env", Box((2, 5)), Discrete(3), action_mask=True)


def of(shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def unroll_of(rows: int) -> Any:
    return ALGORITHM.with_spec(Spec(SPEC, rows, 10)).graph().stream("unroll").schema


def block_of(rows: int, algorithm: Any = ALGORITHM) -> Any:
    bound = algorithm.with_spec(Spec(SPEC, rows, 10))
    params = jax.eval_shape(bound.init, jax.eval_shape(lambda: jax.random.key(0))).params
    return block_schema(SPEC, UNROLL, rows, acted_schema(bound, params), extras=True)


def tree_of(rows: int) -> Any:
    return {"priority": of((rows,)), "time": of((7, rows, 2)), "mean": of((4,)), "count": of((), jnp.int32)}


MESSAGES = {
    "unroll": unroll_of,
    "block": block_of,
    "recurrent block": lambda rows: block_of(rows, weft.A2C(unroll=UNROLL, hidden=(8,), recurrent="gru")),
    "tree": tree_of,
}
kinds = pytest.mark.parametrize("kind", MESSAGES)


def filled(schema: Any, seed: int = 0) -> Any:
    """Different numbers everywhere."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda s: rng.integers(0, 2 if s.dtype == bool else 1000, s.shape).astype(s.dtype), schema)


def test_the_axis_of_an_unroll_is_the_second_after_time_and_the_first_without():
    axes = form_of(unroll_of(2), unroll_of(4)).axes
    timed = (axes.observation, axes.action, axes.reward, axes.terminated, axes.bootstrap, axes.action_mask)
    assert set(jax.tree.leaves(timed)) == {1}
    assert set(jax.tree.leaves((axes.last_observation, axes.last_first))) == {0}


def test_the_axis_of_a_blocks_carry_is_the_first():
    recurrent = MESSAGES["recurrent block"]
    axes = form_of(recurrent(2), recurrent(4)).axes
    assert set(jax.tree.leaves(axes.carry)) == {0}
    assert set(jax.tree.leaves((axes.steps, axes.action, axes.bootstrap))) == {1}


def test_a_tree_may_have_arrays_of_no_environment():
    form = form_of(tree_of(2), tree_of(6))
    assert form.axes == {"priority": 0, "time": 1, "mean": NO_AXIS, "count": NO_AXIS}
    assert form.spreads() == {
        "priority": Spread.SPLIT,
        "time": Spread.SPLIT_TIME,
        "mean": Spread.SHARED,
        "count": Spread.SHARED,
    }


def test_params_have_no_environments():
    params = ALGORITHM.with_spec(Spec(SPEC, 4, 10)).graph().stream("params").schema
    assert set(jax.tree.leaves(form_of(params, params).axes)) == {NO_AXIS}


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [((3, 2, 4), (3, 2, 8)), ((4, 4), (8, 8)), ((4, 3, 4), (8, 3, 8))],
    ids=["third", "both", "first and third"],
)
def test_an_axis_elsewhere_is_refused_with_the_stream_and_the_shapes(narrow, wide):
    with pytest.raises(GraphError) as caught:
        form_of({"x": of(narrow)}, {"x": of(wide)}, "stream 'unroll' of 'mine'")
    message = str(caught.value)
    assert message.startswith("stream 'unroll' of 'mine': an array of shape ")
    assert str(list(narrow)) in message
    assert str(list(wide)) in message
    assert "must be the first, or the second after time" in message


@kinds
@pytest.mark.parametrize("joins", [join, join_on_host])
def test_what_was_cut_and_joined_again_is_the_same(kind, joins):
    made, lanes, rows = MESSAGES[kind], 3, 2
    form: Form = form_of(made(rows), made(2 * rows))
    whole = filled(made(lanes * rows))
    parts = [cut(whole, form.axes, lane * rows, rows) for lane in range(lanes)]
    for part in parts:
        shapes = jax.tree.map(lambda x: of(x.shape, x.dtype), part)
        assert jax.tree.leaves(shapes) == jax.tree.leaves(form.schema)
    again = joins(parts, form.axes)
    assert jax.tree.structure(again) == jax.tree.structure(whole)
    jax.tree.map(np.testing.assert_array_equal, again, whole)


@kinds
def test_both_ways_to_join_do_the_same_and_one_message_is_itself(kind):
    form = form_of(MESSAGES[kind](2), MESSAGES[kind](4))
    messages = [filled(form.schema, seed) for seed in range(3)]
    jax.tree.map(np.testing.assert_array_equal, join(messages, form.axes), join_on_host(messages, form.axes))
    assert join(messages[:1], form.axes) is messages[0]
    assert join_on_host(messages[:1], form.axes) is messages[0]


def test_what_has_no_environments_is_the_first_messages():
    form = form_of(tree_of(1), tree_of(2))
    messages = [filled(form.schema, seed) for seed in range(3)]
    assert not np.array_equal(messages[0]["mean"], messages[1]["mean"])
    for joins in (join, join_on_host):
        np.testing.assert_array_equal(joins(messages, form.axes)["mean"], messages[0]["mean"])


@given(st.integers(1, 5), st.integers(1, 4), st.data())
def test_a_cut_has_the_rows_that_were_asked_for_and_copies_nothing(lanes, rows, data):
    form = form_of(tree_of(rows), tree_of(2 * rows))
    whole = filled(tree_of(lanes * rows))
    lane = data.draw(st.integers(0, lanes - 1))
    part = cut(whole, form.axes, lane * rows, rows)
    first = lane * rows
    np.testing.assert_array_equal(part["priority"], whole["priority"][first : first + rows])
    np.testing.assert_array_equal(part["time"], whole["time"][:, first : first + rows])
    assert all(np.shares_memory(part[name], whole[name]) for name in whole)


@kinds
def test_a_channels_arrays_are_the_message_again(kind):
    form = form_of(MESSAGES[kind](2), MESSAGES[kind](4))
    message = filled(form.schema)
    again = form.unflatten(jax.tree.leaves(message))
    assert jax.tree.structure(again) == form.structure == jax.tree.structure(message)
    assert all(a is b for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(message), strict=True))
