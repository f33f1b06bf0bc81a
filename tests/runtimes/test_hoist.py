"""Hoisting changes nothing but when the numbers are drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import Counter, bound, farthest, same

import weft
from weft.core.specs import Box, Discrete, EnvSpec, MultiBinary, MultiDiscrete
from weft.core.types import Timestep
from weft.ops.distributions import distribution_for
from weft.runtimes.compiled.hoist import MAX_BYTES, hoist

BOUNDED = Box((3,), "float32", -np.ones(3), np.ones(3))
KINDS = {
    "categorical": distribution_for(Discrete(5)),
    "multi_categorical": distribution_for(MultiDiscrete((2, 3))),
    "bernoulli": distribution_for(MultiBinary(4)),
    "gaussian": distribution_for(Box((2,))),
    "squashed": distribution_for(BOUNDED, kind="squashed"),
}


def nested(x, key):
    # No multiply beside an add: compiled together, XLA contracts them, and the last bit would say so.
    return jax.jit(lambda x, key: jax.jit(jnp.add)(x, jax.random.uniform(key, x.shape)))(x, key)


def branching(x, key):
    return jax.lax.cond(x[0] > 0, lambda k: jax.random.normal(k), lambda k: jax.random.uniform(k), key) + x.sum()


def scanning(x, key):
    return jax.lax.scan(lambda c, k: (c + jax.random.normal(k), c), x.sum(), jax.random.split(key, 3))


def scanning_key_only(x, key):
    return x + jax.lax.scan(lambda c, k: (c + jax.random.normal(k), None), 0.0, jax.random.split(key, 3))[0]


def splitting(x, key):
    a, b = jax.random.split(key)
    return {"first": x + jax.random.uniform(a), "second": jax.random.bernoulli(b), "key": b, "twice": (b, a)}


def folding_input(x, key):  # the key is mixed with what is not known early
    return jax.random.normal(jax.random.fold_in(key, x[0].astype(jnp.int32))) + x


def no_key(x, key):
    return x * 2.0


def key_alone(x, key):
    return jax.random.normal(key, (2,)), 7


def too_large(x, key):
    return x.sum() + jax.random.normal(key, (MAX_BYTES,))


def twice_used(x, key):
    noise = jax.random.normal(key, x.shape)
    return jnp.where(x > 0, x + noise, x - noise), noise


FUNCTIONS = [
    nested, branching, scanning, scanning_key_only, splitting, folding_input, no_key, key_alone, too_large, twice_used,
]  # fmt: skip


def both(function, x, key):
    cut = hoist(function, *x)
    return function(*x, key), cut.rest(cut.early(key), *x)


@pytest.mark.parametrize("kind", KINDS)
def test_every_distribution_draws_the_same(kind):
    distribution = KINDS[kind]
    params = jnp.linspace(-1.0, 1.0, distribution.num_params)

    def act(params, key):
        action = distribution.sample(params, key)
        return action, distribution.log_prob(params, action)

    cut = hoist(act, params)
    keys = jax.random.split(jax.random.key(3), (2, 3))
    whole = jax.vmap(jax.vmap(act, (None, 0)), (None, 0))(params, keys)
    rest = jax.vmap(jax.vmap(cut.rest, (0, None)), (0, None))(jax.vmap(jax.vmap(cut.early))(keys), params)
    assert same(whole, rest)
    # Compiled, XLA may contract a multiply and an add of the one program and not of the other: the last bit may differ.
    compiled = jax.jit(jax.vmap(jax.vmap(cut.rest, (0, None)), (0, None)))(jax.vmap(jax.vmap(cut.early))(keys), params)
    if jnp.issubdtype(whole[0].dtype, jnp.integer):
        assert same(whole[0], compiled[0])
    assert farthest(whole[0], compiled[0]) < 1e-6
    assert len({np.asarray(a).tobytes() for a in np.asarray(whole[1]).reshape(-1)}) > 1, "the keys made no difference"
    assert not draws(cut.rest, jax.eval_shape(cut.early, keys[0, 0]), params)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_both_halves_give_the_whole(function, sign):
    x = sign * jnp.arange(1.0, 4.0)
    whole, halves = both(function, (x,), jax.random.key(5))
    assert jax.tree.structure(whole) == jax.tree.structure(halves)
    assert same(whole, halves)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_both_halves_give_the_whole_batched_and_compiled(function):
    x = jnp.arange(6.0).reshape(2, 3) - 2.0
    keys = jax.random.split(jax.random.key(1), 2)
    cut = hoist(function, x[0])
    whole = jax.jit(jax.vmap(function))(x, keys)
    halves = jax.jit(lambda x, keys: jax.vmap(cut.rest)(jax.vmap(cut.early)(keys), x))(x, keys)
    assert same(whole, halves)  # one program either way, so that even the last bit agrees


def test_nothing_to_hoist_hands_nothing_over():
    assert hoist(no_key, jnp.zeros(3)).early(jax.random.key(0)) == ()


def test_too_large_noise_stays_a_key():
    key = jax.random.key(2)
    cut = hoist(too_large, jnp.zeros(3))
    assert same(cut.early(key), key)
    assert draws(cut.rest, jax.eval_shape(cut.early, key), jnp.zeros(3))


def test_what_depends_on_the_key_alone_is_drawn_early():
    for function in (nested, scanning_key_only, splitting, twice_used):
        cut = hoist(function, jnp.zeros(3))
        assert not draws(cut.rest, jax.eval_shape(cut.early, jax.random.key(0)), jnp.zeros(3)), function.__name__


@pytest.mark.parametrize("action", [Discrete(3), BOUNDED], ids=["discrete", "box"])
@pytest.mark.parametrize("fields", [{}, {"recurrent": "gru", "normalise_rewards": True}], ids=["plain", "gru"])
def test_the_rest_of_ppo_draws_nothing(action, fields):
    env = EnvSpec("toys:Counter", Box((2,)), action)
    algorithm = weft.PPO(unroll=4, minibatches=1, hidden=(8,), recurrent_size=8, **fields)
    algorithm = algorithm.bind(weft.Spec(env, 4, 1))
    key = jax.random.key(0)
    params, carry = jax.eval_shape(algorithm.init, key).params, algorithm.initial_carry()
    no = jnp.zeros((), jnp.bool_)
    timestep = Timestep(jnp.zeros(2), jnp.float32(0), no, no)
    cut = hoist(algorithm.act, params, carry, timestep)
    assert draws(algorithm.act, params, carry, timestep, key), "the check sees no drawing where there is some"
    assert not draws(cut.rest, jax.eval_shape(cut.early, key), params, carry, timestep)


def test_the_noise_of_the_toys_is_hoisted_out_of_their_rollout():
    from weft.runtimes.compiled.rollout import Actor, make_rollout

    algorithm, source = bound(weft.PPO(unroll=4, minibatches=1, hidden=(8,)), Counter())
    rollout = make_rollout([Actor("act", algorithm)], source.pure)
    state = jax.eval_shape(rollout.init, jnp.int32(0), jnp.arange(4))
    params = jax.eval_shape(algorithm.init, jax.random.key(0)).params
    jaxpr = jax.make_jaxpr(rollout.unroll)({"act": params}, state).jaxpr
    loops = [e for e in jaxpr.eqns if e.primitive.name == "scan"]
    assert len(loops) == 1
    assert not random_primitives(loops[0].params["jaxpr"].jaxpr)
    assert random_primitives(jaxpr)


def draws(function, *args) -> set[str]:
    return random_primitives(jax.make_jaxpr(function)(*args).jaxpr)


def random_primitives(jaxpr) -> set[str]:
    """The names of the primitives in a jaxpr, and in those inside it, that draw or derive random numbers."""
    found = set()
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name.startswith(("random_", "threefry", "rng_")) and name not in ("random_wrap", "random_unwrap"):
            found.add(name)
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    found |= random_primitives(inner)
    return found
