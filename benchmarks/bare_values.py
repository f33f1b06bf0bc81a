"""PQN and DQN on CartPole as bare JAX programs, no framework around them: what compiled Weft is held against.

Each is one iteration of a scan, in the manner of PureJaxRL: ``unroll`` steps of all environments, then learning. They
keep no statistics of episodes, check nothing, and save nothing. The networks, the optimisers, the schedule of epsilon,
the batches and the number of updates are those that the Weft algorithms have in ``compiled_values_worker.py``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

DISCOUNT, TRACE, EPSILON, EPSILON_END, EPSILON_STEPS = 0.99, 0.65, 1.0, 0.05, 200_000
CLIP = 10.0
TARGET_PERIOD = 200

Params = list[tuple[jax.Array, ...]]
Step = tuple[Any, None]


class Acting(NamedTuple):
    """Environments between two steps."""

    body: jax.Array  # [B, 4]
    time: jax.Array  # [B] int32
    key: jax.Array
    steps: jax.Array  # [] int32: made by each environment


class Taken(NamedTuple):
    """Steps, ``[T, B, ...]``."""

    body: jax.Array
    action: jax.Array
    following: jax.Array  # what was seen after it, of an episode that ended too
    terminated: jax.Array
    ended: jax.Array
    value: jax.Array  # the highest, when it was acted


def env_step(body: jax.Array, time: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Gymnasium's CartPole-v1 for ``[B]`` environments: what is seen next, whether it terminated, whether it ended."""
    x, velocity, angle, spin = body.T
    push = jnp.where(action == 1, 10.0, -10.0)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    shared = (push + 0.05 * spin**2 * sin) / 1.1
    spin_rate = (9.8 * sin - cos * shared) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
    acceleration = shared - 0.05 * spin_rate * cos / 1.1
    x, angle = x + 0.02 * velocity, angle + 0.02 * spin
    body = jnp.stack([x, velocity + 0.02 * acceleration, angle, spin + 0.02 * spin_rate], axis=-1)
    terminated = (jnp.abs(x) > 2.4) | (jnp.abs(angle) > 0.20943951)
    return body, terminated, terminated | (time + 1 >= 500)


def init_params(key: jax.Array, sizes: tuple[int, ...], normalised: bool) -> Params:
    """Orthogonal weights, biases of 0 and, in front of each activation, a scale and a shift."""
    made: Params = []
    for k, (n, m) in enumerate(itertools.pairwise(sizes)):
        last = k == len(sizes) - 2
        weight = jax.nn.initializers.orthogonal(1.0 if last else 2**0.5)(jax.random.fold_in(key, k), (n, m))
        layer = (weight, jnp.zeros(m))
        made.append((*layer, jnp.ones(m), jnp.zeros(m)) if normalised and not last else layer)
    return made


def network(params: Params, x: jax.Array) -> jax.Array:
    """``[..., 2]`` values of the actions."""
    for weight, bias, *norm in params[:-1]:
        x = x @ weight + bias
        if norm:
            mean = x.mean(-1, keepdims=True)
            variance = jnp.maximum((x * x).mean(-1, keepdims=True) - mean * mean, 0.0)
            x = (x - mean) * (jax.lax.rsqrt(variance + 1e-6) * norm[0]) + norm[1]
        x = jax.nn.relu(x)
    return x @ params[-1][0] + params[-1][1]


def begin(key: jax.Array, envs: int) -> Acting:
    """Environments at the start of their episodes."""
    body = jax.random.uniform(key, (envs, 4), minval=-0.05, maxval=0.05)
    return Acting(body, jnp.zeros(envs, jnp.int32), jax.random.fold_in(key, 1), jnp.int32(0))


def rollout(params: Params, acting: Acting, unroll: int) -> tuple[Acting, Taken]:
    """``unroll`` steps of all environments, epsilon-greedy."""
    envs = acting.time.shape[0]

    def step(now: Acting, _: None) -> tuple[Acting, Taken]:
        key, which, whether, fresh = jax.random.split(now.key, 4)
        epsilon = EPSILON + (EPSILON_END - EPSILON) * jnp.minimum(now.steps / EPSILON_STEPS, 1.0)
        values = network(params, now.body)
        random = jax.random.randint(which, (envs,), 0, 2)
        action = jnp.where(jax.random.uniform(whether, (envs,)) < epsilon, random, values.argmax(-1))
        following, terminated, ended = env_step(now.body, now.time, action)
        start = jax.random.uniform(fresh, (envs, 4), minval=-0.05, maxval=0.05)
        body = jnp.where(ended[:, None], start, following)
        taken = Taken(now.body, action, following, terminated, ended, values.max(-1))
        return Acting(body, jnp.where(ended, 0, now.time + 1), key, now.steps + 1), taken

    return jax.lax.scan(step, acting, None, unroll)


def value_of(params: Params, body: jax.Array, action: jax.Array) -> jax.Array:
    """The values of what was done."""
    return jnp.take_along_axis(network(params, body), action[:, None], 1)[:, 0]


def pqn(*, envs: int, unroll: int, epochs: int, minibatches: int) -> tuple[Any, Callable[[Any, None], Step]]:
    """What the first iteration begins with, and the iteration."""
    rule = optax.chain(optax.clip_by_global_norm(CLIP), optax.radam(5e-4, eps=1e-5))
    params = init_params(jax.random.key(0), (4, 128, 128, 2), normalised=True)

    def loss(params: Params, batch: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        body, action, target = batch
        return 0.5 * jnp.mean((value_of(params, body, action) - target) ** 2)

    def iteration(carry: Any, _: None) -> Step:
        params, optimizer, acting = carry
        acting, taken = rollout(params, acting, unroll)
        after = network(params, acting.body).max(-1)

        def aim(later: tuple[jax.Array, jax.Array], now: tuple[jax.Array, ...]) -> tuple[Any, jax.Array]:
            target, value = later
            mixed = (1 - TRACE) * value + TRACE * target
            here = 1.0 + DISCOUNT * jnp.where(now[1], 0.0, mixed)  # a cut is taken for an end, as the peers have it
            return (here, now[0]), here

        _, target = jax.lax.scan(aim, (after, after), (taken.value, taken.ended), reverse=True)
        flat = jax.tree.map(
            lambda x: x.reshape((envs * unroll, *x.shape[2:])), (taken.body, taken.action, jnp.asarray(target))
        )

        def update(state: Any, batch: Any) -> Step:
            gradient = jax.grad(loss)(state[0], batch)
            changes, optimizer = rule.update(gradient, state[1], state[0])
            return (optax.apply_updates(state[0], changes), optimizer), None

        def epoch(state: Any, key: jax.Array) -> Step:
            order = jax.random.permutation(key, envs * unroll)
            cut = jax.tree.map(lambda x: x[order].reshape((minibatches, -1, *x.shape[1:])), flat)
            return jax.lax.scan(update, state, cut)

        key, epoch_key = jax.random.split(acting.key)
        (params, optimizer), _ = jax.lax.scan(epoch, (params, optimizer), jax.random.split(epoch_key, epochs))
        return (params, optimizer, acting._replace(key=key)), None

    return (params, rule.init(params), begin(jax.random.key(1), envs)), iteration


class Kept(NamedTuple):
    """A ring of steps, ``[slots, T * B, ...]``: what was seen, done, seen next, and whether it terminated."""

    body: jax.Array
    action: jax.Array
    following: jax.Array
    terminated: jax.Array


def dqn(*, envs: int, unroll: int, batch: int, updates: int, capacity: int) -> tuple[Any, Callable[[Any, None], Step]]:
    """Likewise, with ``updates`` after each unroll, of batches drawn from the last ``capacity`` steps.

    It learns from the first iteration on; Weft's fills its replay before it is timed.
    """
    rule = optax.chain(optax.clip_by_global_norm(CLIP), optax.adam(1e-3, eps=1e-5))
    params = init_params(jax.random.key(0), (4, 120, 84, 2), normalised=False)
    size = envs * unroll
    slots = max(1, capacity // size)
    shapes = Kept(jnp.zeros((slots, size, 4)), jnp.zeros((slots, size), jnp.int32), jnp.zeros((slots, size, 4)),
                  jnp.zeros((slots, size), jnp.bool_))  # fmt: skip

    def loss(params: Params, target: Params, drawn: Kept) -> jax.Array:
        best = network(params, drawn.following).argmax(-1)
        following = value_of(target, drawn.following, best)
        aim = jax.lax.stop_gradient(1.0 + DISCOUNT * jnp.where(drawn.terminated, 0.0, following))
        return 0.5 * jnp.mean((value_of(params, drawn.body, drawn.action) - aim) ** 2)

    def iteration(carry: Any, _: None) -> Step:
        params, target, optimizer, count, kept, inserted, acting = carry
        acting, taken = rollout(params, acting, unroll)
        rows = Kept(taken.body, taken.action, taken.following, taken.terminated)
        kept = jax.tree.map(
            lambda all_, now: jax.lax.dynamic_update_index_in_dim(
                all_, now.reshape((size, *now.shape[2:])).astype(all_.dtype), inserted % slots, 0
            ),
            kept,
            rows,
        )
        inserted = inserted + 1
        held = jnp.minimum(inserted, slots) * size
        key, draw_key = jax.random.split(acting.key)

        def update(state: Any, key: jax.Array) -> Step:
            params, target, optimizer, count = state
            slot, row = jnp.divmod(jax.random.randint(key, (batch,), 0, held), size)
            gradient = jax.grad(loss)(params, target, jax.tree.map(lambda x: x[slot, row], kept))
            changes, optimizer = rule.update(gradient, optimizer, params)
            params, count = optax.apply_updates(params, changes), count + 1
            target = jax.tree.map(lambda new, old: jnp.where(count % TARGET_PERIOD == 0, new, old), params, target)
            return (params, target, optimizer, count), None

        state = (params, target, optimizer, count)
        (params, target, optimizer, count), _ = jax.lax.scan(update, state, jax.random.split(draw_key, updates))
        return (params, target, optimizer, count, kept, inserted, acting._replace(key=key)), None

    copy = jax.tree.map(jnp.copy, params)
    start = (params, copy, rule.init(params), jnp.int32(0), shapes, jnp.int32(0), begin(jax.random.key(1), envs))
    return start, iteration
