"""The kernels for towers of dense layers on a CPU, against the same layers by XLA."""

from __future__ import annotations

import re
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
    assert not towers.fits(*made(((4, 64, 64, 2),), 2))
    assert not towers.fits(*made(((40_000, 1),), 2))
    assert towers.fits(*made(CRITICS, 2))


def test_what_is_not_a_number_stays_so():
    stacks, x = made(CRITICS, 40)
    x[3, 0] = np.nan
    found = towers.run(stacks, x)[0][:, 0]
    assert np.isnan(found[3])
    assert np.isfinite(np.delete(found, 3)).all()
    stacks[0][1][1][7] = np.nan
    assert np.isnan(towers.run(stacks, x)[0]).all()
    (value, _), gradient = loss(towers.run)(stacks, x)
    assert np.isnan(value)
    assert not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda stacks, x: (stacks, x[:, :3]), "rows of 4 features are expected, and x is (3, 3)"),
        (lambda stacks, x: ((stacks[0][1:], stacks[1]), x), "rows of 256 features"),
        (lambda stacks, x: ((stacks[0][:1] * 2, stacks[1]), x), "layers that follow each other"),
        (lambda stacks, x: (jax.tree.map(jnp.bfloat16, stacks), x), "float32 is expected, and there is bfloat16"),
        (lambda stacks, x: (stacks, x.astype(np.float64)), "float64"),
        (lambda stacks, x: made((CRITICS[0], (4, 9_000)), 3), "a hidden layer at least is expected"),
        (lambda stacks, x: (made(((0, 256, 256, 1),), 2)[0], x[:, :0]), "layers that follow"),
    ],
)
def test_what_the_kernels_do_not_take_is_refused_and_left_to_xla(change, says):
    given = change(*made(CRITICS, 3))
    assert not towers.fits(*given)
    with pytest.raises(TypeError, match=re.escape(says)):
        towers.run(*given)


def test_networks_in_other_numbers_are_left_to_xla():
    space, random = Box((3,)), np.random.default_rng(1)
    net = critics_network(space, (1,))
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), net.init(jax.random.key(0)))
    seen, action = (np.float32(random.normal(size=(40, n))) for n in (3, 1))
    assert net.apply(params, seen, action).shape == (2, 40)


def test_a_pool_whose_queues_are_full_makes_nobody_wait_for_ever():
    """Long calls keep both threads while many short ones ask for help that nobody takes from the queue."""
    code = """if True:
        import os
        os.environ |= {"NPROC": "2", "JAX_CPU_ENABLE_ASYNC_DISPATCH": "1"}
        import threading, time
        import jax
        import numpy as np
        from test_native_towers import CRITICS, made, towers
        stack, x = made(((4, 64, 512, 1),), 34)
        one = lambda c, _: (towers.run(stack, x + c)[0].sum(), None)
        calls = jax.jit(lambda x: jax.lax.scan(one, 0.0, length=6_000)[0])
        long = jax.jit(lambda x: towers.run(made(CRITICS, 1)[0], x)).lower(rows := np.ones((600_000, 4), np.float32))
        short, long = calls.lower(x).compile(), long.compile()
        both = [threading.Thread(target=lambda: jax.block_until_ready(long(rows)), daemon=True) for _ in range(2)]
        for one in both:
            one.start()
        time.sleep(0.2)
        jax.block_until_ready(short(x))
        print("done")
        os._exit(0)
    """
    here = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True, timeout=60)
    assert done.stdout == "done\n", done.stderr


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
