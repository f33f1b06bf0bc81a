"""The kernels for towers with products of bfloat16, as JAX's own precision asks for them, against layers that round."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_native_towers import CRITICS, by_xla, loss, made

from weft.nets.native import towers

pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="the kernels are for CPUs")
HERE = Path(__file__).parent
INFO = Path("/proc/cpuinfo")
there = pytest.mark.skipif(
    not INFO.exists() or "avx512_bf16" not in INFO.read_text(), reason="this processor has no AVX512_BF16"
)
SIZES = [
    (CRITICS, 256),
    (((17, 256, 256, 12), (17, 64, 1)), 1_101),  # more rows than are seen at once, and an odd number of them
    (((3, 100, 65, 5), (3, 20, 2)), 37),  # nothing fills the vectors
    (((1, 16, 1),), 1),
    (((301, 17, 300, 33),) * 3, 3),
]


def in_halves(compute, *given):
    """What is traced within is asked for it, and so is what was traced before."""
    with jax.default_matmul_precision("bfloat16"):
        return compute(*given)


def rounded(x):
    return x.astype(jnp.bfloat16).astype(jnp.float32)


@jax.custom_vjp
def product(x, kernel):
    return rounded(x) @ rounded(kernel)


product.defvjp(
    lambda x, kernel: (product(x, kernel), (x, kernel)),
    lambda kept, slope: (rounded(slope) @ rounded(kept[1]).T, rounded(kept[0]).T @ rounded(slope)),
)


def by_rounding(stacks, x):
    """The layers, with what is multiplied rounded first, forward and back, but for the first of them."""

    def one(layers):
        y = jax.nn.relu(x @ layers[0][0] + layers[0][1])
        for kernel, bias in layers[1:-1]:
            y = jax.nn.relu(product(y, kernel) + bias)
        return product(y, layers[-1][0]) + layers[-1][1]

    return tuple(one(layers) for layers in stacks)


def distance(found, other):
    """The longest of the ways between two arrays, each as a part of the second's length."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(other), strict=True)
    return max(float(np.linalg.norm(one - two) / (1e-6 + np.linalg.norm(two))) for one, two in pairs)


@there
@pytest.mark.parametrize(("sizes", "count"), SIZES, ids=str)
def test_values_and_gradients_are_those_of_rounded_factors(sizes, count):
    stacks, x = made(sizes, count)
    (_, found), (by_weights, _) = in_halves(loss(towers.run), stacks, x)
    (_, expected), (weights, _) = loss(by_rounding)(stacks, x)
    (_, exact), (of_floats, _) = loss(by_xla)(stacks, x)
    assert distance(found, expected) < 5e-4  # where a sum is rounded next time depends on its order
    assert distance(by_weights, weights) < 5e-3
    assert 1e-4 < distance(found, exact) < 2e-2
    assert 1e-4 < distance(by_weights, of_floats) < 0.2


@there
def test_gradients_by_what_came_in_are_near_those_of_floats():
    stacks, x = made(CRITICS, 63)
    by_x = [f(stacks, x)[1][1] for f in (lambda *given: in_halves(loss(towers.run), *given), loss(by_xla))]
    assert 1e-4 < distance(*by_x) < 0.05


@there
def test_it_is_asked_for_when_traced_and_floats_stay_as_they_were():
    given = made(CRITICS, 40)
    run = jax.jit(towers.run)
    floats = run(*given)
    halves = in_halves(run, *given)
    jax.tree.map(np.testing.assert_array_equal, run(*given), floats)
    jax.tree.map(np.testing.assert_array_equal, in_halves(run, *given), halves)
    assert distance(halves, floats) > 1e-4
    with jax.default_matmul_precision("float32"):
        jax.tree.map(np.testing.assert_array_equal, run(*given), floats)
    _, back = in_halves(jax.vjp, towers.run, *given)  # asked for when it was traced, not when it is derived
    _, other = jax.vjp(towers.run, *given)
    assert distance(back(floats), other(floats)) > 1e-4
    jax.tree.map(np.testing.assert_array_equal, in_halves(other, floats), other(floats))


@there
def test_what_a_row_gives_does_not_depend_on_the_others():
    stacks, x = made(CRITICS, 130)
    run = jax.jit(towers.run)
    whole = in_halves(run, stacks, x)
    for few in (1, 5, 96, 129):
        found = in_halves(run, stacks, x[:few])
        jax.tree.map(lambda y, z, n=few: np.testing.assert_array_equal(y, z[:n]), found, whole)


@there
@pytest.mark.parametrize("what", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_so(what):
    stacks, x = made(CRITICS, 41)
    x[40, 0] = what
    (value, found), gradient = in_halves(loss(towers.run), stacks, x)
    assert not np.isfinite(found[0][40, 0])
    assert np.isfinite(found[0][:40]).all()
    assert np.isnan(value)  # the sine of what is not finite
    of_floats = loss(towers.run)(stacks, x)[1]
    jax.tree.map(lambda y, z: np.testing.assert_array_equal(np.isfinite(y), np.isfinite(z)), gradient, of_floats)
    assert not np.isfinite(gradient[0][0][1][0]).all()
    stacks[0][1][0][3, 7] = what
    found = in_halves(towers.run, stacks, made(CRITICS, 41)[1])
    assert not np.isfinite(found[0]).all()
    assert np.isfinite(found[1]).all()


def told(code, *arguments, **environment):
    """What this prints in a process of its own."""
    code = f"import sys\nfrom test_native_halves import *\n{code}"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=HERE,
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | environment,
    ).stdout


HASH = """
import hashlib
out = loss(towers.run)(*made(((4, 256, 256, 1), (4, 65, 3)), 1_101))
print(hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(out))).hexdigest())
"""


@there
def test_the_number_of_threads_changes_no_bit():
    few = "os.sched_setaffinity(0, list(os.sched_getaffinity(0))[: int(sys.argv[1])])"
    asked = {"JAX_DEFAULT_MATMUL_PRECISION": "bfloat16"}
    one, two = (told(f"{few}\n{HASH}", n, NPROC=n, **asked) for n in "12")
    assert one == two
    assert told(HASH) != two, "the environment asks for it too"


@pytest.mark.slow
def test_without_the_instructions_it_changes_nothing(tmp_path):
    """A library as another processor has it, where this one's compiler knows what it leaves out."""
    flags = "-mno-avx512bf16" if INFO.exists() and "avx512f" in INFO.read_text() else ""
    elsewhere = {"XDG_CACHE_HOME": str(tmp_path), "CXX": f"c++ {flags}", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    both = f'{HASH}\njax.config.update("jax_default_matmul_precision", "bfloat16")\n{HASH}'
    floats, halves = told(both, **elsewhere).split()
    assert floats == halves
