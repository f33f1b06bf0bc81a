"""Encoders, heads and recurrent cells: shapes, batch axes, and a carry that begins anew."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import farthest, same

from weft.core.errors import ConfigError, UnknownName
from weft.core.specs import Box, Discrete, MultiBinary, MultiDiscrete, allocate
from weft.nets import (
    Network,
    NetworkOutput,
    actor_critic,
    apply_batch,
    apply_sequence,
    apply_unroll,
    as_network,
    reset_carry,
)
from weft.nets.convolution import convolve
from weft.nets.encoders import Encoder, has_image, is_image
from weft.nets.native import library

IMAGE = Box((8, 9, 2), "uint8", 0, 255)
TREE = {"b": (Discrete(3), MultiBinary(2)), "a": Box((2, 2)), "c": MultiDiscrete((2, 4))}


def example(space, leading=(), seed=0):
    """Random arrays of a space."""
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda x: random.integers(0, 2, x.shape).astype(x.dtype), allocate(space, leading))


def test_each_kind_of_observation_is_encoded_as_it_should_be():
    encoder = Encoder(TREE, ())
    observation = {
        "a": np.array([[1.0, 2.0], [3.0, 4.0]], np.float32),
        "b": (np.int32(2), np.array([1, 0], np.int8)),
        "c": np.array([1, 3], np.int32),
    }
    flat = encoder.apply({}, observation)
    assert flat.tolist() == [1, 2, 3, 4, *(0, 0, 1), *(1, 0), *(0, 1), *(0, 0, 0, 1)]


@pytest.mark.parametrize("space", [TREE, IMAGE, Discrete(4)], ids=["tree", "image", "discrete"])
def test_batch_axes_in_front_change_nothing(space):
    net = actor_critic(space, 3, hidden=(8,))
    params = jax.jit(net.init)(jax.random.key(0))
    batch = example(space, (2, 3))
    together = jax.jit(net.apply)(params, (), batch)
    assert together.logits.shape == (2, 3, 3)
    assert together.value.shape == (2, 3)
    one = jax.jit(net.apply)(params, (), jax.tree.map(lambda x: x[1, 2], batch))
    np.testing.assert_allclose(one.logits, together.logits[1, 2], atol=1e-5)
    np.testing.assert_allclose(one.value, together.value[1, 2], atol=1e-5)


def test_what_counts_as_an_image():
    assert is_image(IMAGE)
    assert not is_image(Box((8, 9, 2)))
    assert not is_image(Box((6, 9, 2), "uint8", 0, 255))
    assert not is_image(Discrete(3))
    assert has_image({"a": Discrete(2), "b": (Box((2,)), IMAGE)})
    assert not has_image(TREE)


def test_pixels_are_scaled():
    net = actor_critic(IMAGE, 2)
    params = jax.jit(net.init)(jax.random.key(0))
    bright = np.full((8, 9, 2), 255, np.uint8)
    value = float(net.apply(params, (), bright).value)
    assert value != float(net.apply(params, (), 0 * bright).value)
    assert abs(value) < 10.0


@pytest.mark.parametrize("deviation", [1.0, 2.0])
def test_a_state_independent_deviation_is_learned_and_begins_as_asked(deviation):
    net = actor_critic(Box((2,)), 6, hidden=(8,), deviation=deviation)
    params = jax.jit(net.init)(jax.random.key(0))
    outputs = [net.apply(params, (), np.full(2, x, np.float32)).logits for x in (0.0, 5.0)]
    assert outputs[0][3:].tolist() == outputs[1][3:].tolist()
    np.testing.assert_allclose(np.exp(outputs[0][3:]), deviation, rtol=1e-6)
    gradient = jax.grad(lambda p: net.apply(p, (), np.ones(2, np.float32)).logits[3:].sum())(params)
    assert farthest(gradient, jax.tree.map(jnp.zeros_like, gradient)) == 1.0


def test_vectors_have_a_tower_for_the_policy_and_one_for_the_value():
    net = actor_critic(Box((2,)), 3, hidden=(8,))
    params = jax.jit(net.init)(jax.random.key(0))
    x = np.ones(2, np.float32)
    by_policy = jax.grad(lambda p: net.apply(p, (), x).logits.sum())(params)
    by_value = jax.grad(lambda p: net.apply(p, (), x).value)(params)
    both = jax.tree.map(lambda a, b: float(jnp.abs(a).max() * jnp.abs(b).max()), by_policy, by_value)
    assert max(jax.tree.leaves(both)) == 0.0


@pytest.fixture(scope="module", params=["gru", "lstm"])
def recurrent(request):
    net = actor_critic(Box((2,)), 3, hidden=(8,), recurrent=request.param, recurrent_size=4)
    return net, jax.jit(net.init)(jax.random.key(0))


def test_a_sequence_is_its_steps_with_the_carry_anew_where_an_episode_begins(recurrent):
    net, params = recurrent
    assert net.recurrent
    observation = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    first = np.array([False, False, True, False, True, False])
    start = jax.tree.map(lambda x: np.full_like(x, 0.5), net.carry)
    whole = jax.jit(lambda *x: apply_sequence(net, params, *x))(start, observation, first)
    step = jax.jit(net.apply)
    carry, logits = start, []
    for x, begins in zip(observation, first, strict=True):
        output = step(params, net.carry if begins else carry, x)
        carry = output.carry
        logits.append(output.logits)
    np.testing.assert_allclose(whole.logits, logits, atol=1e-6)
    assert farthest(whole.carry, carry) < 1e-6
    never = jax.jit(lambda *x: apply_sequence(net, params, *x))(start, observation, np.zeros(6, np.bool_))
    assert float(jnp.abs(never.logits - whole.logits)[:2].max()) < 1e-6
    assert float(jnp.abs(never.logits - whole.logits)[2:].max()) > 1e-6


def test_reset_carry(recurrent):
    net, _ = recurrent
    now = jax.tree.map(lambda x: x + 2.0, net.carry)
    assert same(reset_carry(net, now, jnp.bool_(True)), net.carry)
    assert same(reset_carry(net, now, jnp.bool_(False)), now)


def test_a_pair_is_a_network():
    net = as_network((lambda key: {"w": 2.0}, lambda params, x: (x * params["w"], x.sum())))
    assert not net.recurrent
    output = net.apply(net.init(jax.random.key(0)), (), jnp.ones(3))
    assert output.logits.tolist() == [2, 2, 2]
    assert float(output.value) == 3.0
    assert output.carry == ()
    network = Network(net.init, net.apply)
    assert as_network(network) is network
    assert isinstance(output, NetworkOutput)


@pytest.mark.parametrize("wrong", [3, (1, 2), (len,), (len, len, len), None])
def test_anything_else_is_not(wrong):
    with pytest.raises(ConfigError, match=r"weft.Network or a pair"):
        as_network(wrong)


def test_an_unknown_cell_is_refused():
    with pytest.raises(UnknownName, match="gru"):
        actor_critic(Box((2,)), 3, recurrent="gruu")


@pytest.mark.parametrize("shape", [(12, 12), (12, 12, 3), (3, 12, 12)])
def test_images_are_seen_whichever_way_round(shape):
    """uint8 images go through the CNN and are scaled, with channels first, last or none."""
    space = Box(shape, "uint8", 0, 255)
    network = actor_critic(space, 2)
    params = network.init(jax.random.key(0))
    names = {jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(params)[0]}
    assert any("CNN" in name for name in names)
    image = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    assert network.apply(params, (), image).logits.shape == (2,)
    assert jax.vmap(lambda x: network.apply(params, (), x))(image[None]).value.shape == (1,)


def test_a_convolution_by_patches_is_a_convolution():
    random = np.random.default_rng(0)
    for side, channels, size, stride in ((12, 3, 3, 1), (12, 4, 4, 2), (13, 2, 3, 2), (17, 1, 8, 4)):
        x = random.normal(size=(2, side, side, channels)).astype(np.float32)
        kernel = random.normal(size=(size, size, channels, 5)).astype(np.float32)
        patches, rows, expected = (convolve(x, kernel, stride, way) for way in ("patches", "rows", "xla"))
        np.testing.assert_allclose(patches, expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(rows, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("count", "shape"),
    [
        pytest.param(1, (9, 9, 2), marks=pytest.mark.slow),
        (11, (4, 40, 40)),
        pytest.param(16, (9, 9, 2), marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("native", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["kernels", "XLA"])
def test_a_batch_of_images_gives_what_each_alone_gives(count, shape, native, monkeypatch):
    if not native:
        monkeypatch.setattr(library, "available", lambda: False)
    space = {"image": Box(shape, "uint8", 0, 255), "speed": Box((2,))}
    net = actor_critic(space, 3)
    params = net.init(jax.random.key(0))
    random = np.random.default_rng(0)
    seen = {
        "image": random.integers(0, 256, (count, *shape), np.uint8),
        "speed": random.normal(size=(count, 2)).astype(np.float32),
    }

    def each(params):
        outputs = [net.apply(params, (), jax.tree.map(lambda x, i=i: x[i], seen))[:2] for i in range(count)]
        return jax.tree.map(lambda *x: jnp.stack(x), *outputs)

    def mapped(params):
        return jax.vmap(lambda x: net.apply(params, (), x)[:2])(seen)

    def whole(params):
        return apply_batch(net, params, seen)[:2]

    def loss(outputs):
        return lambda params: sum(jnp.sin(x).sum() for x in outputs(params))

    for outputs in (mapped, whole):
        jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), outputs(params), each(params))
        found, expected = (jax.jit(jax.grad(loss(f)))(params) for f in (outputs, each))
        jax.tree.map(partial(np.testing.assert_allclose, atol=1e-4), found, expected)


@pytest.mark.parametrize("recurrent", ["", "gru", "lstm"])
def test_an_unroll_is_every_environment_step_by_step(recurrent):
    length, envs = 4, 3
    net = actor_critic(Box((2,)), 3, hidden=(8,), recurrent=recurrent, recurrent_size=5)
    params = jax.jit(net.init)(jax.random.key(0))
    random = np.random.default_rng(0)
    observation = random.normal(size=(length, envs, 2)).astype(np.float32)
    first = random.random((length, envs)) < 0.4
    start = jax.tree.map(lambda x: random.normal(size=(envs, *x.shape)).astype(np.float32), net.carry)
    whole = jax.jit(lambda *x: apply_unroll(net, params, *x))(start, observation, first)
    assert whole.logits.shape == (length, envs, 3)
    step = jax.jit(lambda carry, x, f: net.apply(params, reset_carry(net, carry, f), x))
    for env in range(envs):
        carry = jax.tree.map(lambda x, i=env: x[i], start)
        for t in range(length):
            output = step(carry, observation[t, env], first[t, env])
            carry = output.carry
            assert farthest((whole.logits[t, env], whole.value[t, env]), output[:2]) < 1e-5
        assert not recurrent or farthest(jax.tree.map(lambda x, i=env: x[i], whole.carry), carry) < 1e-5
