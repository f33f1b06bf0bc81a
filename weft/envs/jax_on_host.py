"""A batch of JAX environments behind the host protocol: for evaluation, videos, and plans with env and act apart."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weft.core.errors import ConfigError
from weft.core.keys import env_keys, environment_key, step_keys
from weft.core.specs import EnvSpec
from weft.core.trees import tree_map
from weft.core.types import Array, Timestep, Tree
from weft.envs.autoreset import advance, begin
from weft.envs.dialled_jax import Follower, shown
from weft.envs.protocol import JaxEnv, Snapshot


@dataclass
class JaxOnHost:
    """``num_envs`` copies of ``env``, from ``first_index`` on; they draw the same numbers as in a compiled program."""

    env: JaxEnv
    num_envs: int
    seed: int
    first_index: int = 0

    def __post_init__(self) -> None:
        indices = jnp.arange(self.first_index, self.first_index + self.num_envs)
        self._keys = env_keys(environment_key(self.seed), indices)
        env = self.env
        self._follower = Follower(env)

        def start(keys: jax.Array, options: dict[str, Array]) -> tuple[Tree, Timestep]:
            first: Any = env.at(options) if options else env  # type: ignore[attr-defined]
            return jax.vmap(lambda key: begin(first, key))(step_keys(keys, jnp.int32(0), 1)[0])

        def step(state: Tree, action: jax.Array, keys: jax.Array, count: jax.Array) -> tuple[Tree, Timestep]:
            now = step_keys(keys, count, 1)[0]
            return jax.vmap(lambda s, a, k: advance(env, s, a, k))(state, action, now)

        self._start, self._step = jax.jit(start), jax.jit(step)
        self._count = 0
        self._state: Tree = None

    @property
    def spec(self) -> EnvSpec:
        """The environment's spec."""
        return self.env.spec

    def reset(self, out: Timestep) -> None:
        """Start every environment."""
        self._count = 0
        self._state, timestep = self._start(self._keys, shown(self._follower.dials) if self._follower.dials else {})
        _write(timestep, out)

    def step(self, action: np.ndarray[Any, Any], out: Timestep) -> None:
        """Step every environment."""
        self._count += 1
        self._state = self._follower.follow(self._state)
        self._state, timestep = self._step(self._state, action, self._keys, np.int32(self._count))
        _write(timestep, out)

    def render(self) -> np.ndarray[Any, Any]:
        """The first environment as an image."""
        draw = getattr(self.env, "render", None)
        if draw is None:
            raise ConfigError(
                f"environment {self.spec.name!r} has no render(state), so that no video can be made of it"
            )
        frame: np.ndarray[Any, Any] = draw(jax.tree.map(lambda x: np.asarray(x[0]), self._state))
        return frame

    def snapshot(self) -> Snapshot:
        """The environments' state, its bytes as text."""
        leaves = [np.asarray(_words(leaf)) for leaf in jax.tree.leaves(self._state)]
        return {"count": self._count, "leaves": [base64.b64encode(leaf.tobytes()).decode() for leaf in leaves]}

    def restore(self, snapshot: Snapshot, out: Timestep) -> list[int]:
        """Always exact; ``out`` gets a fresh timestep, which the caller replaces by the one it saved."""
        self.reset(out)
        leaves, structure = jax.tree.flatten(self._state)
        stored = [base64.b64decode(text) for text in snapshot["leaves"]]
        back = [_revived(b, leaf) for b, leaf in zip(stored, leaves, strict=True)]
        self._state, self._count = jax.tree.unflatten(structure, back), snapshot["count"]
        self._follower.forget()
        return []

    def close(self) -> None:
        """Nothing to free."""


@dataclass(frozen=True)
class JaxOnHostFactory:
    """Makes batches of a JAX environment for the host."""

    env: JaxEnv

    def __call__(self, num_envs: int, seed: int, first_index: int = 0, render: bool = False) -> JaxOnHost:
        """Environments ``first_index`` to ``first_index + num_envs - 1`` of a run with ``seed``."""
        return JaxOnHost(self.env, num_envs, seed, first_index)


def _is_key(leaf: jax.Array) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _words(leaf: jax.Array) -> jax.Array:
    """What NumPy can hold of a leaf: a PRNG key's words."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _revived(data: bytes, like: jax.Array) -> Any:
    words = _words(like)
    array = np.frombuffer(data, words.dtype).reshape(words.shape)
    return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(like)) if _is_key(like) else array


def _write(timestep: Timestep, out: Timestep) -> None:
    host = jax.device_get(timestep)
    for name in ("observation", "final_observation", "reward"):
        if getattr(out, name) is not None:
            tree_map(np.copyto, getattr(out, name), getattr(host, name))
    for name in ("terminated", "truncated"):
        np.copyto(getattr(out, name), getattr(host, name))
    if out.action_mask is not None:
        np.copyto(np.asarray(out.action_mask), host.action_mask)
