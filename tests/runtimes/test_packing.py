"""A packed scan gives what a plain one gives, bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from weft.runtimes.packing import MAX_WORDS, scan_packed

T, B = 5, 3
SPECIAL = np.array([np.nan, -np.nan, -0.0, 0.0, np.inf, -np.inf, 1e-45, np.float32(0.1)], np.float32)
PAYLOAD = np.array([0x7FC00001, 0xFFC12345, 0x80000000, 0x00000001], np.uint32).view(
    np.float32
)  # NaNs, -0.0, subnormal


def columns(values):
    """Values [n] as [T, B, n], rolled so that no two rows are alike."""
    values = np.asarray(values)
    return np.stack([[np.roll(values, t + 7 * b) for b in range(B)] for t in range(T)])


def record_of(x):
    """A record of ``[B, ...]`` leaves of every kind."""
    return {
        "float": x["float"],
        "nested": (x["int"], [x["uint"], None]),
        "flag": x["flag"],
        "scalar": x["float"][:, 0],
        "matrix": x["float"].reshape(B, 2, 4),
        "half": x["float"].astype(jnp.bfloat16),
        "byte": x["byte"],
        "large": jnp.tile(x["float"], (1, MAX_WORDS // 8 + 1)),
        "empty": x["float"][:, :0],
    }


XS = {
    "float": columns(SPECIAL),
    "int": columns(np.array([0, -1, 2**31 - 1, -(2**31)], np.int32)),
    "uint": columns(np.array([0, 1, 2**32 - 1, 0x7FC00001], np.uint32)),
    "flag": columns(np.array([True, False, False], np.bool_)),
    "byte": columns(np.arange(6, dtype=np.uint8)),
}


def bits(leaf):
    leaf = np.asarray(leaf)
    return leaf.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[leaf.dtype.itemsize])


@pytest.mark.parametrize("compiled", [False, True])
def test_every_leaf_comes_back_bit_for_bit(compiled):
    def step(carry, x):
        return carry + x["int"].sum(), record_of(x)

    run = lambda scan: (jax.jit(scan, static_argnums=(0, 3)) if compiled else scan)(step, jnp.int32(3), XS, T)  # noqa: E731
    end, packed = run(scan_packed)
    other, plain = run(jax.lax.scan)
    assert int(end) == int(other)
    assert jax.tree.structure(packed) == jax.tree.structure(plain)
    for left, right in zip(jax.tree.leaves(packed), jax.tree.leaves(plain), strict=True):
        assert (left.shape, left.dtype) == (right.shape, right.dtype)
        np.testing.assert_array_equal(bits(left), bits(right))


def test_the_payload_of_a_nan_and_the_sign_of_zero_survive():
    xs = columns(PAYLOAD)
    _, found = jax.jit(lambda xs: scan_packed(lambda carry, x: (carry, (x, x > 0)), (), xs, T))(xs)
    np.testing.assert_array_equal(bits(found[0]), bits(xs))


def test_keys_pass_by_themselves():
    keys = jax.random.split(jax.random.key(0), (T, B))
    _, found = scan_packed(lambda carry, key: (carry, (key, jnp.ones(B))), (), keys, T)
    np.testing.assert_array_equal(jax.random.key_data(found[0]), jax.random.key_data(keys))


def scans_of(step, xs):
    jaxpr = jax.make_jaxpr(lambda xs: scan_packed(step, (), xs, T))(xs).jaxpr
    (scan,) = [e for e in jaxpr.eqns if e.primitive.name == "scan"]
    return [(v.aval.shape, v.aval.dtype.name) for v in scan.outvars]


def test_small_leaves_lie_in_one_array_and_large_ones_apart():
    small = {"float": XS["float"], "int": XS["int"], "flag": XS["flag"]}
    assert scans_of(lambda carry, x: (carry, x), small) == [((T, B, 8 + 4 + 3), "uint32")]
    limit, beyond = np.zeros((T, B, MAX_WORDS), np.float32), np.zeros((T, B, MAX_WORDS + 1), np.float32)
    assert scans_of(lambda carry, x: (carry, (x[0] * 2, x[1] * 2)), (limit, beyond)) == [
        ((T, B, MAX_WORDS), "uint32"),
        ((T, B, MAX_WORDS + 1), "float32"),
    ]
    assert scans_of(lambda carry, x: (carry, x * 2), XS["byte"]) == [((T, B, 6), "uint8")], "not four bytes: as it is"


def test_nothing_to_record():
    end, found = scan_packed(lambda carry, x: (carry + 1, ()), jnp.int32(0), np.zeros((T, B), np.float32), T)
    assert int(end) == T
    assert found == ()
