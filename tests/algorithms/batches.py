"""Batches as an algorithm's own act would have made them, for tests of what learn makes of them."""

import jax
import jax.numpy as jnp
import numpy as np

from weft.core.specs import Box, Discrete, EnvSpec, Spec
from weft.core.types import Timestep, Unroll

LENGTH, ENVS, DISCOUNT = 6, 4, 0.9
SPEC = EnvSpec("toys:Batch", Box((2,)), Discrete(3))
TINY = {"unroll": LENGTH, "hidden": (8,), "recurrent_size": 8, "learning_rate": 0.01, "discount": DISCOUNT}


def bind(cls, spec=SPEC, learn_steps=10, envs=ENVS, **fields):
    return cls(**{**TINY, **fields}).bind(Spec(spec, envs, learn_steps))


def acted_batch(algorithm, params, seed=0, truncate=True, resets=False, envs=ENVS):
    """An unroll of random observations and rewards, with actions, extras and bootstraps by ``params``.

    With ``resets`` the record after an episode's end is not valid.
    """
    random = np.random.default_rng(seed)
    shape = (LENGTH, envs)
    observation = random.normal(size=(LENGTH + 1, envs, 2)).astype(np.float32)
    final = random.normal(size=(LENGTH, envs, 2)).astype(np.float32)
    terminated, truncated = random.random(shape) < 0.2, (random.random(shape) < 0.2) & truncate
    truncated &= ~terminated
    valid = np.ones(shape, np.bool_)
    if resets:
        for t in range(1, LENGTH):
            valid[t] = ~((terminated | truncated)[t - 1] & valid[t - 1])
            terminated[t], truncated[t] = terminated[t] & valid[t], truncated[t] & valid[t]
    ended = terminated | truncated
    first = np.concatenate([np.zeros((1, envs), np.bool_), ended])
    act = jax.jit(jax.vmap(lambda *x: algorithm.act_at(*x, jnp.int32(0)), (None, 0, 0, 0)))
    value = jax.jit(jax.vmap(algorithm.bootstrap, (None, 0, 0)))
    start = jax.tree.map(lambda x: jnp.broadcast_to(x, (envs, *np.shape(x))), algorithm.initial_carry())
    carry, rows, bootstrap = start, [], []
    for t in range(LENGTH):
        flags = (first[t], np.zeros(envs, np.bool_))
        timestep = Timestep(observation[t], np.zeros(envs, np.float32), *flags)
        acted = act(params, carry, timestep, jax.random.split(jax.random.key(100 * seed + t), envs))
        carry = acted.carry
        rows.append((acted.action, acted.extras))
        bootstrap.append(np.where(truncated[t], value(params, carry, final[t]), 0.0))
    bootstrap[-1] = np.where(truncated[-1], bootstrap[-1], value(params, carry, observation[LENGTH]))
    action, extras = jax.tree.map(lambda *x: np.stack(x), *rows)
    return Unroll(
        observation=observation[:-1],
        first=first[:-1],
        action=action,
        extras=extras,
        reward=random.normal(size=shape).astype(np.float32) * valid,
        terminated=terminated,
        truncated=truncated,
        bootstrap=np.stack(bootstrap).astype(np.float32),
        carry=jax.tree.map(np.asarray, start),
        last_observation=observation[-1],
        last_first=first[-1],
        valid=valid if resets else None,
    )


def one_step(params, *, ends="", reward=13.0, bootstrap=3.0, log_prob=None):
    """One step of one environment that goes on, or is ``cut`` or ``ended``. See ``LINEAR``."""
    extras = {} if log_prob is None else {"log_prob": np.full((1, 1), log_prob, np.float32)}
    return Unroll(
        observation=np.full((1, 1, 2), 1.0, np.float32),
        first=np.zeros((1, 1), np.bool_),
        action=np.zeros((1, 1), np.int32),
        extras=extras,
        reward=np.full((1, 1), reward, np.float32),
        terminated=np.full((1, 1), ends == "ended"),
        truncated=np.full((1, 1), ends == "cut"),
        bootstrap=np.full((1, 1), bootstrap, np.float32),
        carry=(),
        last_observation=np.full((1, 2), 5.0, np.float32),
        last_first=np.full(1, bool(ends)),
    )


def linear_apply(params, observation):
    return observation @ params["policy"], observation @ params["value"]


LINEAR = (lambda key: {"policy": jnp.zeros((2, 3)), "value": jnp.array([2.0, 0.0])}, linear_apply)
"""A network of the user's: every action as likely as the others, and the value is twice the first number seen."""


def halves(batch):
    """The batch of the first half of its environments, and that of the second, stacked along a new first axis."""
    half = batch.reward.shape[1] // 2

    def cut(x, axis):
        return np.stack([np.take(x, range(half), axis), np.take(x, range(half, 2 * half), axis)])

    by_env = {"carry": 0, "last_observation": 0, "last_first": 0}
    return Unroll(*(jax.tree.map(lambda x, a=by_env.get(n, 1): cut(x, a), f) for n, f in batch._asdict().items()))
