"""JAX environments whose episodes begin with options that are part of their state, and follow dials."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weft.core.specs import EnvSpec
from weft.core.types import Array, Tree
from weft.envs.dials import Dials
from weft.envs.protocol import JaxEnv, Transition


class DialledState(NamedTuple):
    """An environment's state, and the options that its next episode begins with."""

    env: Tree
    options: dict[str, Array]  # [] float32 each


class DialledJax:
    """``env`` with ``reset_with(key, options)`` in place of ``reset(key)``; begins with what the dials show, or ``at``.

    While a program is traced the dials' values would become constants: the options are part of the state instead, and
    ``follow`` changes them there.
    """

    def __init__(self, env: JaxEnv, dials: Dials, at: dict[str, Array] | None = None) -> None:
        self.env, self.dials, self._at = env, dials, at

    @property
    def spec(self) -> EnvSpec:
        """The environment's."""
        return self.env.spec

    def at(self, options: dict[str, Array]) -> DialledJax:
        """One whose first episodes begin with ``options``, which may be traced."""
        return DialledJax(self.env, self.dials, options)

    def reset(self, key: jax.Array) -> tuple[DialledState, Tree]:
        """A first episode."""
        return self._begun(key, shown(self.dials) if self._at is None else self._at)

    def reset_after(self, key: jax.Array, state: DialledState) -> tuple[DialledState, Tree]:
        """The episode after one that stood at ``state``."""
        return self._begun(key, state.options)

    def step(self, state: DialledState, action: jax.Array, key: jax.Array) -> tuple[DialledState, Transition]:
        """The environment's step; its options stay."""
        after, transition = self.env.step(state.env, action, key)
        return DialledState(after, state.options), transition

    def action_mask(self, state: DialledState) -> jax.Array:
        """The environment's, where its spec has masks."""
        mask: jax.Array = self.env.action_mask(state.env)  # type: ignore[attr-defined]
        return mask

    def __getattr__(self, name: str) -> Any:
        if name != "render":  # only where the environment has it
            raise AttributeError(name)
        draw = self.env.render  # type: ignore[attr-defined]
        return lambda state: draw(state.env)

    def _begun(self, key: jax.Array, options: dict[str, Array]) -> tuple[DialledState, Tree]:
        given: dict[str, Array] = {name: jnp.asarray(value, jnp.float32) for name, value in options.items()}
        state, observation = self.env.reset_with(key, given)  # type: ignore[attr-defined]
        return DialledState(state, given), observation


def shown(dials: Dials) -> dict[str, Array]:
    """What dials show, as the environments take it."""
    return {name: np.asarray(value, np.float32) for name, value in dials.now().items()}


class Follower:
    """Keeps the options in the states of a batch of environments as the dials show; nothing to do without dials."""

    def __init__(self, env: JaxEnv | None) -> None:
        self.dials: Dials | None = getattr(env, "dials", None)
        self._at = -1  # the turn of the dials that the states follow

    def forget(self) -> None:
        """The states are others now: compare them again."""
        self._at = -1

    def follow(self, state: Tree) -> Tree:
        """Environments' states (``DialledState`` with any axes in front) with the options of now."""
        if self.dials is None or self.dials.turned == self._at:
            return state
        self._at = self.dials.turned
        values = shown(self.dials)
        options = {
            name: jax.device_put(np.full(old.shape, values[name], np.float32), getattr(old, "sharding", None))
            for name, old in state.options.items()
        }
        return state._replace(options=options)
