"""Arrays, where they lie in a slot, and how two ends agree on them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from weft.core.delivery import Delivery
from weft.core.errors import ConfigError, SchemaMismatch
from weft.core.trees import tree_leaves, unflatten
from weft.streams.channel import ChannelSpec
from weft.streams.schema import (
    ArraySpec,
    SlotLayout,
    array_specs,
    array_specs_from_json,
    array_specs_to_json,
    difference,
    fingerprint,
)


class Step(NamedTuple):
    observation: Any
    reward: Any
    mask: Any = None


TREE = Step({"z": np.zeros((2, 3), np.uint8), "a": (np.zeros((), np.float32), np.zeros(0, bool))}, np.zeros(5))
SPECS = (
    ArraySpec("observation.a.0", (), "float32"),
    ArraySpec("observation.a.1", (0,), "bool"),
    ArraySpec("observation.z", (2, 3), "uint8"),
    ArraySpec("reward", (5,), "float64"),
)


def test_arrays_of_a_tree_in_the_order_of_programs() -> None:
    assert array_specs(TREE) == SPECS
    assert [spec.shape for spec in SPECS] == [leaf.shape for leaf in jax.tree.leaves(TREE)]
    assert array_specs(np.zeros(3, np.int32)) == (ArraySpec("", (3,), "int32"),)
    shapes = jax.eval_shape(lambda x: {"b": x.astype(jnp.bfloat16), "a": x > 0}, np.zeros((4, 2), np.float32))
    by_path = {spec.path: spec for spec in array_specs(shapes)}
    assert by_path == {"b": ArraySpec("b", (4, 2), "bfloat16"), "a": ArraySpec("a", (4, 2), "bool")}
    assert SlotLayout(array_specs(shapes)).buffer().arrays[list(by_path).index("b")].dtype == jnp.bfloat16


def test_unflatten_puts_the_leaves_back() -> None:
    again = unflatten(TREE, tree_leaves(TREE))
    assert isinstance(again, Step)
    assert again.mask is None
    assert again.observation["z"] is TREE.observation["z"]
    assert again.observation["a"][1] is TREE.observation["a"][1]
    assert list(again.observation) == ["z", "a"]
    assert unflatten(np.zeros(3), [7]) == 7
    with pytest.raises(ValueError, match="3 leaves came, and the tree has 4"):
        unflatten(TREE, [1, 2, 3])


@pytest.mark.parametrize(
    "value",
    [np.zeros(2, object), np.zeros(2, ">f4"), np.zeros(2, "U"), jax.random.key(0)],
    ids=["object", "byte order", "text", "key"],
)
def test_what_has_no_plain_bytes_is_refused(value: Any) -> None:
    with pytest.raises(SchemaMismatch, match="array 'x'"):
        array_specs({"x": value})


def test_arrays_lie_on_cache_lines_and_do_not_overlap() -> None:
    layout = SlotLayout(SPECS)
    assert layout.nbytes == 3 * 64
    memory = bytearray(64 + 2 * layout.nbytes)
    for number, offset in enumerate((64, 64 + layout.nbytes)):
        for view in layout.views(memory, offset):
            view[...] = number + 1
    first, second = (layout.views(memory, offset) for offset in (64, 64 + layout.nbytes))
    assert [v.dtype.name for v in first] == [spec.dtype for spec in SPECS]
    assert all((v == 1).all() for v in first)
    assert all((v == 2).all() for v in second)
    assert memory[:64] == bytes(64)
    buffer = layout.buffer()
    assert all(array.ctypes.data % 64 == 0 for array in buffer.arrays)
    assert buffer.data.nbytes == layout.nbytes
    assert SlotLayout(()).nbytes == 0


def test_fingerprints_and_json() -> None:
    assert array_specs_from_json(array_specs_to_json(SPECS)) == SPECS
    assert fingerprint(SPECS) == fingerprint(array_specs_from_json(array_specs_to_json(SPECS)))
    assert len({fingerprint(SPECS), fingerprint(SPECS[1:]), fingerprint((SPECS[1], SPECS[0], *SPECS[2:]))}) == 3


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (SPECS, ""),
        (SPECS[:3], "array 'reward' is missing: 3 arrays came, 4 were expected"),
        ((*SPECS, ArraySpec("x", (), "bool")), "array 'x' is too much: 5 arrays came, 4 were expected"),
        (
            (SPECS[0]._replace(shape=(3, 2)), *SPECS[1:]),
            "array 'observation.a.0': expected shape (), and (3, 2) came",
        ),
        (
            (SPECS[0]._replace(dtype="int8"), *SPECS[1:]),
            "array 'observation.a.0': expected dtype float32, and int8 came",
        ),
        (SPECS[1:], "expected array 'observation.a.0' where array 'observation.a.1' came"),
    ],
)
def test_the_first_difference_in_words(found: Any, words: str) -> None:
    assert difference(SPECS, found) == words


def test_a_spec_is_plain_data() -> None:
    spec = ChannelSpec("params", SPECS, 5, Delivery.LATEST, "tcp")
    assert ChannelSpec.from_json(spec.to_json()) == spec
    assert (spec.message_bytes, spec.capacity, spec.slots) == (192, 5, 6)
    with pytest.raises(ConfigError, match="capacity 0"):
        ChannelSpec("params", SPECS, 0, Delivery.BLOCK)
