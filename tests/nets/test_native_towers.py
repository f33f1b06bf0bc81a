"""The kernels for towers of dense layers on a CPU, against the same layers by XLA."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from weft.core.specs import Box
from weft.nets.control import critics_network, policy_network
from weft.nets.native import library, towers

pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="the kernels are for CPUs")
CRITICS = (4, 256, 256, 1), (4, 256, 256, 1)


def made(sizes, count, seed=0):
    """Weights of each tower, and rows."""
    random = np.random.default_rng(seed)

    def layer(n, m):
        return np.float32(random.normal(size=(n, m)) / np.sqrt(n)), np.float32(0.1 * random.normal(size=m))

    stacks = tuple(tuple(layer(n, m) for n, m in pairwise(one)) for one in sizes)
    return stacks, np.float32(random.normal(size=(count, sizes[0][0])))


def by_xla(stacks, x):
    def one(layers):
        y = x
        for kernel, bias in layers[:-1]:
            y = jax.nn.relu(y @ kernel + bias)
        return y @ layers[-1][0] + layers[-1][1]

    return tuple(one(layers) for layers in stacks)


def loss(compute):
    def of(stacks, x):
        found = compute(stacks, x)
        return sum(jnp.sin(3 * y).sum() for y in found), found

    return jax.jit(jax.value_and_grad(of, (0, 1), has_aux=True))


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        (CRITICS, 256),
        (((17, 256, 256, 12), (17, 64, 1)), 1_100),  # more rows than are seen at once
        (((3, 100, 65, 5), (3, 20, 2)), 37),  # nothing fills the vectors
        (((1, 16, 1),), 1),
        (((300, 17, 300, 3),) * 3, 2),
    ],
    ids=str,
)
def test_values_and_gradients_are_those_of_the_layers(sizes, count):
    stacks, x = made(sizes, count)
    for one, other in zip(*(jax.tree.leaves(loss(f)(stacks, x)) for f in (towers.run, by_xla)), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-6 * (1 + np.abs(other).max()), rtol=1e-4)


def test_what_a_row_gives_does_not_depend_on_the_others():
    stacks, x = made(CRITICS, 130)
    run = jax.jit(towers.run)
    for few in (1, 5, 96, 129):
        jax.tree.map(lambda y, z, n=few: np.testing.assert_array_equal(y, z[:n]), run(stacks, x[:few]), run(stacks, x))


def test_the_number_of_threads_changes_no_bit():
    code = """if True:
        import hashlib, os, sys
        os.sched_setaffinity(0, list(os.sched_getaffinity(0))[: int(sys.argv[1])])
        os.environ["NPROC"] = sys.argv[1]
        import jax
        import numpy as np
        from test_native_towers import CRITICS, loss, made, towers
        out = loss(towers.run)(*made(CRITICS, 300))
        print(hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(out))).hexdigest())
    """
    here = Path(__file__).parent
    told = {
        subprocess.run([sys.executable, "-c", code, str(n)], cwd=here, check=True, capture_output=True).stdout
        for n in (1, 2)
    }
    assert len(told) == 1


def test_members_of_a_population_have_weights_of_their_own():
    several = [made(CRITICS, 8, seed)[0] for seed in range(2)]
    x = made(CRITICS, 8)[1]
    slope = jax.grad(lambda stacks: sum((y**2).sum() for y in towers.run(stacks, x)))
    mapped = jax.vmap(slope)(jax.tree.map(lambda *y: jnp.stack(y), *several))
    for k, one in enumerate(several):
        jax.tree.map(lambda y, z, k=k: np.testing.assert_array_equal(y[k], z), mapped, slope(one))


def test_replicas_on_devices_of_one_process():
    stacks, x = made(CRITICS, 64)
    mesh = Mesh(np.array(jax.devices()[:2]), ("replica",))
    split, shared = PartitionSpec("replica"), PartitionSpec()

    def slope(stacks, x):
        return jax.grad(lambda stacks: sum((y**2).sum() for y in towers.run(stacks, x)))(stacks)

    both = jax.jit(
        jax.shard_map(
            lambda stacks, x: jax.lax.psum(slope(stacks, x), "replica"),
            mesh=mesh,
            in_specs=(shared, split),
            out_specs=shared,
            check_vma=False,
        )
    )
    jax.tree.map(lambda y, z: np.testing.assert_allclose(y, z, rtol=1e-4, atol=1e-4), both(stacks, x), slope(stacks, x))


def test_gradients_that_nobody_wants_are_not_computed():
    stacks, x = made(CRITICS, 8)
    by_rows = jax.jit(jax.grad(lambda x: sum(y.sum() for y in towers.run(stacks, x))))
    compiled = by_rows.lower(x).compile().as_text()
    assert "weft_towers_slopes" in compiled
    assert "weft_towers_weights" not in compiled


def test_small_towers_are_left_to_xla():
    assert not towers.fits(towers.Shape(((4, 64, 64, 2),)))
    assert not towers.fits(towers.Shape(((40_000, 1),)))
    assert towers.fits(towers.Shape(CRITICS))


@pytest.mark.parametrize("kind", ["policy", "critics"])
def test_networks_of_continuous_control_go_through_them(kind, monkeypatch):
    space, random = Box((3,)), np.random.default_rng(1)
    seen, action = (np.float32(random.normal(size=(40, n))) for n in (3, 1))
    if kind == "policy":
        net = policy_network(space, 2)
        compute = lambda params: net.apply(params, (), seen).logits  # noqa: E731
    else:
        net = critics_network(space, (1,))
        compute = lambda params: net.apply(params, seen, action)  # noqa: E731
    params = net.init(jax.random.key(0))

    def found():
        return jax.jit(jax.value_and_grad(lambda params: (compute(params) ** 2).sum())).lower(params).compile()

    kernels = found()
    monkeypatch.setattr(library, "available", lambda: False)
    layers = found()
    assert "weft_towers_weights" in kernels.as_text()
    assert "weft_towers" not in layers.as_text()
    for one, other in zip(*(jax.tree.leaves(f(params)) for f in (kernels, layers)), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)
