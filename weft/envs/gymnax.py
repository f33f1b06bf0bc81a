"""Environments of the gymnax package as Weft's: ``gymnax:NAME``.

gymnax resets by itself inside ``step``, and says only that an episode ended, not why. This adapter uses ``step_env``,
which does not reset, and tells the two ends apart:

- *truncated* where ``state.time`` reached ``params.max_steps_in_episode``;
- *terminated* where the environment would have ended all the same with that limit out of reach.

That is exact wherever the limit is only a limit. Where an environment has no end but its limit (bandits, Reacher), the
episode counts as truncated although the task may mean it as its natural end: gymnax does not say.

gymnax is optional, and loaded only by the functions here.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weft.core.errors import ConfigError, EnvironmentFault, MissingExtra, UnknownName
from weft.core.specs import Box, Discrete, EnvSpec, Space, SpaceTree
from weft.core.types import Tree
from weft.envs.protocol import Transition

OUT_OF_REACH = 2**30
"""A step limit that no episode reaches; it fits int32, and float32 exactly."""


@dataclass(frozen=True, eq=False)
class GymnaxEnv:
    """One gymnax environment with its params. Made by ``load``, which has checked that it runs and what it gives."""

    spec: EnvSpec
    environment: Any  # gymnax.environments.environment.Environment
    params: Any  # its EnvParams; part of the compiled program

    def reset(self, key: jax.Array) -> tuple[Tree, Tree]:
        """A fresh episode: (state, observation)."""
        with _old_idioms_allowed():
            observation, state = self.environment.reset_env(key, self.params)
        return _strong(state), _cast(self.spec.observation, observation)

    def step(self, state: Tree, action: jax.Array, key: jax.Array) -> tuple[Tree, Transition]:
        """One step, without gymnax's own reset."""
        no = jnp.zeros((), jnp.bool_)
        with _old_idioms_allowed():
            observation, stepped, reward, ended, _ = self.environment.step_env(key, state, action, self.params)
            limit = self.spec.max_episode_steps
            if limit is None:
                terminated, truncated = ended, no
            else:
                # Stepped a second time, and not asked `is_terminal` of the new state: some environments store there
                # that the limit ended them. XLA shares the work of both calls; only the ends differ.
                endless = self.params.replace(max_steps_in_episode=OUT_OF_REACH)
                terminated = self.environment.step_env(key, state, action, endless)[3]
                truncated = stepped.time >= limit
        stepped = jax.tree.map(lambda new, old: jnp.asarray(new, jnp.asarray(old).dtype), stepped, state)
        return stepped, Transition(
            observation=_cast(self.spec.observation, observation),
            reward=jnp.asarray(reward, jnp.float32).reshape(()),
            terminated=jnp.asarray(terminated, jnp.bool_).reshape(()),
            truncated=jnp.asarray(truncated, jnp.bool_).reshape(()),
        )


def load(name: str) -> GymnaxEnv:
    """The gymnax environment ``name`` (without ``gymnax:``) with its default params.

    It is traced once, so that one that does not run with this JAX is refused here, and its observations' true dtypes
    are known (gymnax's spaces do not always tell).
    """
    label = f"gymnax:{name}"
    known = names()
    if name not in known:
        hint = "'weft envs' lists all that can be used here."
        raise UnknownName("environment", label, [f"gymnax:{n}" for n in known], hint)
    with _old_idioms_allowed():
        import gymnax

        try:
            environment, params = gymnax.make(name)
            key = jax.random.key(0)
            observation, _ = jax.eval_shape(lambda k: environment.reset_env(k, params), key)
            limit = getattr(params, "max_steps_in_episode", None)
            spec = EnvSpec(
                name=label,
                observation=_space(label, environment.observation_space(params), observation),
                native_action=_action_space(label, environment.action_space(params)),
                pure=True,
                max_episode_steps=None if limit is None else int(limit),
            )
            env = GymnaxEnv(spec, environment, params)
            _check(env, key)
        except ConfigError:
            raise
        except Exception as error:  # whatever gymnax raises while it is made or traced
            raise EnvironmentFault(
                f"environment {label!r}: gymnax could not make or trace it: {type(error).__name__}: {error}. It may "
                f"not support JAX {jax.__version__}, or may need a download: try another version of gymnax, or another "
                "environment."
            ) from error
    return env


def names() -> list[str]:
    """What ``load`` knows, sorted; MissingExtra where gymnax is not installed."""
    if importlib.util.find_spec("gymnax") is None:
        raise MissingExtra("'gymnax:NAME'", "gymnax", "gymnax")
    try:
        with _old_idioms_allowed():
            import gymnax
    except Exception as error:
        raise ConfigError(
            f"gymnax is installed, but cannot be imported: {type(error).__name__}: {error}. Install what it lacks, or "
            "run: pip install 'weft[gymnax]'"
        ) from error
    return sorted(gymnax.registered_envs)


@contextmanager
def _old_idioms_allowed() -> Iterator[None]:
    """gymnax's code asks for int64 without x64 and scatters ints into bools: harmless, not the user's to mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _check(env: GymnaxEnv, key: jax.Array) -> None:
    """Trace one reset and one step: the state must keep its structure, the observation its shapes."""
    state, _ = jax.eval_shape(env.reset, key)
    action = jnp.zeros(env.spec.native_action.shape, env.spec.native_action.dtype)
    stepped, _ = jax.eval_shape(env.step, state, action, key)
    before, after = (jax.tree.map(lambda leaf: leaf.shape, tree) for tree in (state, stepped))
    if before != after:
        raise TypeError(f"its state changes shape when stepped, from {before} to {after}")


def _strong(state: Tree) -> Tree:
    """Python numbers and weakly typed arrays made plain arrays, so that a loop's carry keeps its type."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), state)


def _cast(space: SpaceTree, observation: Tree) -> Tree:
    """The observation with the dtypes and shapes that the spec promises."""
    if isinstance(space, tuple):
        return tuple(_cast(s, o) for s, o in zip(space, observation, strict=True))
    if isinstance(space, Box | Discrete):
        return jnp.asarray(observation, space.dtype).reshape(space.shape)
    assert isinstance(space, dict)
    return {k: _cast(s, observation[k]) for k, s in space.items()}


def _space(label: str, space: Any, example: Tree) -> SpaceTree:
    """A gymnax space as Weft's, with the shape and dtype of ``example``, a true observation's."""
    kind = type(space).__name__
    if kind == "Dict":
        return {k: _space(label, s, example[k]) for k, s in space.spaces.items()}
    if kind == "Tuple":
        return tuple(_space(label, s, e) for s, e in zip(space.spaces, example, strict=True))
    if kind == "Discrete":
        return Discrete(int(space.n))
    if kind == "Box":
        # Pictures of bools become bytes: networks and channels know those.
        dtype = "uint8" if example.dtype == jnp.bool_ else str(example.dtype)
        return _box(tuple(int(n) for n in example.shape), dtype, space)
    raise _unsupported(label, "observation", kind)


def _action_space(label: str, space: Any) -> Space:
    kind = type(space).__name__
    if kind == "Discrete":
        return Discrete(int(space.n))
    if kind == "Box":
        return _box(tuple(int(n) for n in space.shape), "float32", space)
    raise _unsupported(label, "action", kind)


def _box(shape: tuple[int, ...], dtype: str, space: Any) -> Box:
    def bound(value: Any) -> Any:
        # gymnax writes "no bound" as the largest float
        array = np.asarray(value, np.float64)
        unbounded = np.abs(array) >= np.finfo(np.float32).max
        return np.where(unbounded, np.copysign(np.inf, array), array).astype(np.float32)[()]

    return Box(shape, dtype, bound(space.low), bound(space.high))


def _unsupported(label: str, what: str, kind: str) -> ConfigError:
    return ConfigError(f"environment {label!r}: {what} space of kind {kind} is not supported; known: Box, Discrete")
