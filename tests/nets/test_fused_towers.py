"""The towers' kernels against the plain layers: values and gradients, interpreted here; compiled where a GPU is."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from weft.core.specs import Box, Discrete
from weft.nets import actor_critic, apply_batch, fused_towers
from weft.nets.fused_towers import Shape, fits, packed, plain, run, starts

pytestmark = pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
GPU = jax.default_backend() == "gpu"
TOLERANCE = 2e-2 if GPU else 1e-5  # a GPU multiplies in TF32


def tower(sizes, seed):
    keys = jax.random.split(jax.random.key(seed), 2 * len(sizes))
    return tuple(
        (jax.random.normal(keys[2 * k], (n, m)) / np.sqrt(n), jax.random.normal(keys[2 * k + 1], (m,)))
        for k, (n, m) in enumerate(itertools.pairwise(sizes))
    )


def close(found, wanted):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, atol=TOLERANCE * (1 + np.abs(other).max()))


@pytest.mark.parametrize(
    ("rows", "features", "hidden", "outputs", "activation"),
    [(1, 3, (16,), 1, "tanh"), (100, 4, (64, 64), 2, "tanh"), (5000, 17, (32, 64, 16), 6, "relu")],
)
def test_values_and_gradients_are_those_of_the_layers(rows, features, hidden, outputs, activation):
    sizes = (features, *hidden, outputs), (features, *hidden, 1)
    shape = Shape(sizes, activation, interpret=not GPU)
    assert fits(shape)
    towers = tuple(tower(each, seed) for seed, each in enumerate(sizes))
    x = jax.random.normal(jax.random.key(9), (rows, features))

    def loss(compute):
        def of(towers, x):
            policy, critic = compute(towers, x)
            return jnp.sin(policy).mean() + (critic**2).mean(), (policy, critic)

        return jax.jit(jax.value_and_grad(of, (0, 1), has_aux=True))(towers, x)

    fused = loss(lambda towers, x: run(shape, starts(towers), packed(towers), x))
    layers = loss(lambda towers, x: tuple(plain(each, activation, x) for each in towers))
    close(fused, layers)


@pytest.mark.parametrize(
    ("sizes", "activation"),
    [
        (((4, 60, 2), (4, 60, 1)), "tanh"),
        (((4, 8, 2), (4, 8, 1)), "tanh"),
        (((4, 256, 2), (4, 256, 1)), "tanh"),
        (((400, 64, 2), (400, 64, 1)), "tanh"),
        (((4, 64, 2), (4, 64, 1)), "gelu"),
        (((4, 2), (4, 1)), "tanh"),
    ],
)
def test_what_the_kernels_cannot_compute_is_left_to_the_layers(sizes, activation):
    assert not fits(Shape(sizes, activation))


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="where there is a GPU, the tests above compile for it")
def test_they_compile_for_a_gpu_as_far_as_can_be_seen_without_one():
    sizes = (4, 64, 64, 2), (4, 64, 64, 1)
    towers = tuple(tower(each, seed) for seed, each in enumerate(sizes))

    def loss(towers, x):
        return sum(y.sum() for y in run(Shape(sizes, "tanh"), starts(towers), packed(towers), x))

    allowed = [export.DisabledSafetyCheck.custom_call("__gpu$xla.gpu.triton")]
    try:
        made = export.export(jax.jit(jax.grad(loss)), platforms=["cuda"], disabled_checks=allowed)
    except RuntimeError as error:  # JAX 0.11 looks for the GPU that it is for, and here is none
        pytest.skip(f"this JAX exports no kernel: {error}")
    text = made(towers, jnp.zeros((2048, 4))).mlir_module()
    assert "towers_backward" in text
    assert "xla.gpu.triton" in text


def test_a_gpu_that_jax_makes_no_kernels_for_has_the_layers(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    fused_towers._lowered.cache_clear()
    assert fused_towers.available() == GPU, "a CPU that says that it is a GPU has none"
    fused_towers._lowered.cache_clear()


SPACES = {"vector": Box((5,)), "tree": {"a": Box((2, 3)), "b": (Discrete(4), Box(()))}}


@pytest.mark.parametrize(
    ("space", "deviation", "hidden"),
    [
        pytest.param("vector", None, (16, 32), marks=pytest.mark.slow),
        pytest.param("tree", 0.5, (16,), marks=pytest.mark.slow),
        pytest.param("vector", 0.5, (20,), marks=pytest.mark.slow),
    ],
)
def test_a_network_gives_the_same_with_them(space, deviation, hidden, monkeypatch):
    kwargs = {"hidden": hidden, "deviation": deviation}
    layers = actor_critic(SPACES[space], 4, **kwargs)
    monkeypatch.setattr(fused_towers, "available", lambda: True)
    if not GPU:
        monkeypatch.setattr(fused_towers, "Shape", lambda sizes, activation: Shape(sizes, activation, True))
    fused = actor_critic(SPACES[space], 4, **kwargs)
    params = layers.init(jax.random.key(0))
    key = jax.random.key(1)
    seen = {
        "vector": lambda: jax.random.normal(key, (6, 7, 5)),
        "tree": lambda: {
            "a": jax.random.normal(key, (6, 7, 2, 3)),
            "b": (jax.random.randint(key, (6, 7), 0, 4), jax.random.normal(key, (6, 7))),
        },
    }[space]()

    def outputs(net, params):
        one = lambda x: net.apply(params, (), x)  # noqa: E731
        return (
            jax.vmap(jax.vmap(one))(seen)[:2],  # [T, B]
            apply_batch(net, params, jax.tree.map(lambda leaf: leaf[0], seen))[:2],
            one(jax.tree.map(lambda leaf: leaf[0, 0], seen))[:2],  # one alone
        )

    close(outputs(fused, params), outputs(layers, params))

    def loss(net):
        return lambda params: sum((leaf**2).sum() for leaf in jax.tree.leaves(outputs(net, params)))

    close(jax.grad(loss(fused))(params), jax.grad(loss(layers))(params))

    def of_each(net):  # a gradient for every sample
        one = jax.grad(lambda params, x: net.apply(params, (), x).value)
        return jax.vmap(lambda x: one(params, x))(jax.tree.map(lambda leaf: leaf[0], seen))

    close(of_each(fused), of_each(layers))
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), params)  # seeds side by side
    by_seed = [jax.vmap(lambda params, net=net: outputs(net, params))(several) for net in (fused, layers)]
    close(*by_seed)
    close(*(jax.vmap(jax.grad(loss(net)))(several) for net in (fused, layers)))


def test_they_can_be_turned_off(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(fused_towers, "_lowered", lambda: True)
    assert fused_towers.available()
    monkeypatch.setenv("WEFT_FUSED", "0")
    assert not fused_towers.available()
