"""Games of the Pgx package as Weft's: ``pgx:NAME``.

The players of a game are one group of agents, ``player_0`` and so on, each of which sees the game from its own place.
One step is one move. Those that wait have a mask that allows their first choice alone, and it is ignored, as in
PettingZoo's turn games (``turns.py``). Games for one player (MinAtar's, 2048) are plain environments with a mask.

Pgx is optional, and loaded only by the functions here.
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

from weft.core.errors import ConfigError, EnvironmentFault, MissingExtra, UnknownName
from weft.core.specs import Box, Discrete, EnvSpec
from weft.core.types import Tree
from weft.envs.protocol import Transition


@dataclass(frozen=True, eq=False)
class PgxEnv:
    """One game. Made by ``load``, which has checked that it can be traced."""

    spec: EnvSpec
    game: Any  # pgx.Env
    dtype: str  # of what a player sees

    def reset(self, key: jax.Array) -> tuple[Tree, Tree]:
        """A fresh game: (state, observation)."""
        with _deprecated():
            state = _strong(self.game.init(key))
        return state, self._seen(state)

    def step(self, state: Tree, action: jax.Array, key: jax.Array) -> tuple[Tree, Transition]:
        """One move, of the player whose turn it is."""
        before = state
        chosen = action[state.current_player] if self.spec.agents else action
        with _deprecated():
            state = self.game.step(state, chosen.astype(jnp.int32), key)
        state = jax.tree.map(lambda new, old: jnp.asarray(new, jnp.asarray(old).dtype), state, before)
        reward = state.rewards.astype(jnp.float32)
        return state, Transition(
            observation=self._seen(state),
            reward=reward if self.spec.agents else reward.reshape(()),
            terminated=jnp.asarray(state.terminated, jnp.bool_),
            truncated=jnp.asarray(state.truncated, jnp.bool_) & ~state.terminated,
        )

    def action_mask(self, state: Tree) -> jax.Array:
        """What may be chosen, ``[choices]``; of several players side by side."""
        legal = jnp.asarray(state.legal_action_mask, jnp.bool_)
        if not self.spec.agents:
            return legal
        first = jnp.arange(legal.shape[-1]) == 0
        turn = jnp.arange(len(self.spec.agents)) == state.current_player
        return jnp.where(turn[:, None], legal, first).reshape(-1)

    def _seen(self, state: Tree) -> Tree:
        if not self.spec.agents:
            return jnp.asarray(state.observation, self.dtype)
        with _deprecated():
            views = [self.game.observe(state, jnp.int32(k)) for k in range(len(self.spec.agents))]
        return {"agents": jnp.stack([jnp.asarray(view, self.dtype) for view in views])}


def load(name: str) -> PgxEnv:
    """The game ``name`` (without ``pgx:``). It is traced once, so that one that does not run is refused here."""
    label = f"pgx:{name}"
    known = names()
    if name not in known:
        hint = "'weft envs' lists all that can be used here."
        raise UnknownName("environment", label, [f"pgx:{n}" for n in known], hint)
    try:
        with _deprecated():
            import pgx

            game = pgx.make(name)  # type: ignore[arg-type, unused-ignore]
            state = jax.eval_shape(game.init, jax.random.key(0))
        dtype = "uint8" if state.observation.dtype == jnp.bool_ else str(state.observation.dtype)
        shape = tuple(int(n) for n in state.observation.shape)
        seen = Box(shape, dtype, 0, 1) if state.observation.dtype == jnp.bool_ else Box(shape, dtype)
        one = EnvSpec(label, seen, Discrete(int(game.num_actions)), pure=True, action_mask=True)
        players = int(game.num_players)
        group = EnvSpec.of_agents(label, one, [f"player_{k}" for k in range(players)]) if players > 1 else one
        env = PgxEnv(group, game, dtype)
        _check(env)
    except ConfigError:
        raise
    except Exception as error:  # whatever Pgx raises while it is made or traced
        raise EnvironmentFault(
            f"environment {label!r}: Pgx could not make or trace it: {type(error).__name__}: {error}. It may not "
            f"support JAX {jax.__version__}: try another version of pgx, or another game."
        ) from error
    return env


def names() -> list[str]:
    """What ``load`` knows, sorted; MissingExtra where Pgx is not installed."""
    if importlib.util.find_spec("pgx") is None:
        raise MissingExtra("'pgx:NAME'", "pgx", "pgx")
    with _deprecated():
        import pgx
    return sorted(pgx.available_envs())


@contextmanager
def _deprecated() -> Iterator[None]:
    """Pgx's code warns of its own idioms, and of JAX's: not the user's to mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _check(env: PgxEnv) -> None:
    """Trace one reset and one step: the state must keep its shapes."""
    key = jax.random.key(0)
    state, _ = jax.eval_shape(env.reset, key)
    action = jnp.zeros(env.spec.native_action.shape, env.spec.native_action.dtype)
    stepped, _ = jax.eval_shape(env.step, state, action, key)
    before, after = (jax.tree.map(lambda leaf: leaf.shape, tree) for tree in (state, stepped))
    if before != after:
        raise TypeError(f"its state changes shape when stepped, from {before} to {after}")


def _strong(state: Tree) -> Tree:
    """Weakly typed arrays made plain ones, so that a loop's carry keeps its type."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), state)
