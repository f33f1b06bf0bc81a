"""Environments of the JaxMARL package as Weft's: ``jaxmarl:NAME``.

Agents that see and do alike, and whose names begin alike, are a group; several groups are teams, as with PettingZoo's.
JaxMARL resets by itself inside ``step``; this adapter uses ``step_env``, which does not. It says only that an episode
ended, not why: it counts as *truncated* where the environment has ``max_steps`` and its state's ``step`` has reached
them, else as terminated. Agents that die before the others stay, with what JaxMARL lets them see and do.

JaxMARL is optional, and loaded only by the functions here.
"""

from __future__ import annotations

import importlib.util
import io
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weft.core.errors import ConfigError, EnvironmentFault, MissingExtra, UnknownName
from weft.core.specs import Box, Discrete, EnvSpec, Space
from weft.core.types import Tree
from weft.envs.agents import groups_of, teams_of
from weft.envs.protocol import Transition


@dataclass(frozen=True, eq=False)
class JaxMarlEnv:
    """One JaxMARL environment. Made by ``load``, which has checked that it can be traced."""

    spec: EnvSpec
    environment: Any  # jaxmarl.environments.MultiAgentEnv
    teams: Mapping[str, tuple[str, ...]]  # agents by team; "" where there is one group alone
    limit: int | None  # steps after which an episode is cut

    def reset(self, key: jax.Array) -> tuple[Tree, Tree]:
        """A fresh episode: (state, observation)."""
        with _their_ways():
            seen, state = self.environment.reset(key)
        state = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), state)
        return state, self._seen(seen)

    def step(self, state: Tree, action: Any, key: jax.Array) -> tuple[Tree, Transition]:
        """One step of all agents, without JaxMARL's own reset."""
        chosen: dict[str, jax.Array] = {}
        for team, agents in self.teams.items():
            actions = (action[team] if team else action).reshape((len(agents), *self._one(team).native_action.shape))
            chosen |= {agent: actions[k] for k, agent in enumerate(agents)}
        with _their_ways():
            seen, stepped, rewards, ended, _ = self.environment.step_env(key, state, chosen)
        stepped = jax.tree.map(lambda new, old: jnp.asarray(new, jnp.asarray(old).dtype), stepped, state)
        over, cut = jnp.asarray(ended["__all__"], jnp.bool_).reshape(()), jnp.zeros((), jnp.bool_)
        if self.limit is not None:
            cut = jnp.asarray(stepped.step >= self.limit).reshape(())
        by_team = {
            team: jnp.stack([jnp.asarray(rewards[agent], jnp.float32).reshape(()) for agent in agents])
            for team, agents in self.teams.items()
        }
        return stepped, Transition(self._seen(seen), by_team.get("", by_team), over & ~cut, over & cut)

    def action_mask(self, state: Tree) -> jax.Array:
        """What may be chosen, all agents' side by side."""
        with _their_ways():
            masks = self.environment.get_avail_actions(state)
        order = [agent for agents in self.teams.values() for agent in agents]
        return jnp.concatenate([jnp.asarray(masks[agent], jnp.bool_).reshape(-1) for agent in order])

    def _one(self, team: str) -> EnvSpec:
        agent = groups_of(self.spec)[team].agent
        assert agent is not None
        return agent

    def _seen(self, seen: Mapping[str, Any]) -> Any:
        views = {}
        for team, agents in self.teams.items():
            space: Any = self._one(team).observation
            views[team] = {
                "agents": jnp.stack([jnp.asarray(seen[a], space.dtype).reshape(space.shape) for a in agents])
            }
        return views.get("", views)


def load(name: str, **options: Any) -> JaxMarlEnv:
    """The environment ``name`` (without ``jaxmarl:``); ``options`` go to ``jaxmarl.make``. It is traced once."""
    label = f"jaxmarl:{name}"
    known = names()
    if name not in known:
        hint = "'weft envs' lists all that can be used here."
        raise UnknownName("environment", label, [f"jaxmarl:{n}" for n in known], hint)
    try:
        with _their_ways():
            import jaxmarl

            environment = jaxmarl.make(name, **options)
            key = jax.random.key(0)
            seen, state = jax.eval_shape(environment.reset, key)
            masked = _has_masks(environment, state)
        limit = getattr(environment, "max_steps", None)
        limit = int(limit) if limit is not None and hasattr(state, "step") else None
        # One more: the particle world looks at its counter before it counts, and ends with the step after its limit.
        most = None if limit is None else limit + 1
        specs: dict[Any, EnvSpec] = {
            agent: _agent(label, environment, agent, seen[agent], masked) for agent in environment.agents
        }
        teams = {team: tuple(map(str, agents)) for team, agents in teams_of(specs).items()}
        groups = {team: EnvSpec.of_agents(label, specs[agents[0]], agents) for team, agents in teams.items()}
        if len(groups) == 1:
            (agents,) = teams.values()
            spec = EnvSpec.of_agents(label, specs[agents[0]], agents, max_episode_steps=most)
            env = JaxMarlEnv(spec, environment, {"": agents}, limit)
        else:
            env = JaxMarlEnv(EnvSpec.of_teams(label, groups, max_episode_steps=most), environment, teams, limit)
        _check(env, key)
    except ConfigError:
        raise
    except Exception as error:  # whatever JaxMARL raises while it is made or traced
        raise EnvironmentFault(
            f"environment {label!r}: JaxMARL could not make or trace it: {type(error).__name__}: {error}. It may need "
            f"options, another package, or another JAX than {jax.__version__}."
        ) from error
    return env


def names() -> list[str]:
    """What ``load`` knows, sorted; MissingExtra where JaxMARL is not installed."""
    if importlib.util.find_spec("jaxmarl") is None:
        raise MissingExtra("'jaxmarl:NAME'", "jaxmarl", "jaxmarl")
    with _their_ways():
        import jaxmarl
    return sorted(jaxmarl.registered_envs)


@contextmanager
def _their_ways() -> Iterator[None]:
    """JaxMARL prints while it is imported, and warns of its own idioms: not the user's to mend."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _has_masks(environment: Any, state: Any) -> bool:
    try:
        jax.eval_shape(environment.get_avail_actions, state)
    except NotImplementedError:
        return False
    return True


def _agent(label: str, environment: Any, agent: str, seen: Any, masked: bool) -> EnvSpec:
    """What one agent sees and does."""
    if not hasattr(seen, "shape"):
        raise ConfigError(f"environment {label!r}: agent {agent!r} sees {type(seen).__name__}; known: arrays")
    dtype = "uint8" if seen.dtype == jnp.bool_ else str(seen.dtype)
    action = _action(label, agent, environment.action_space(agent))
    masked = masked and isinstance(action, Discrete)
    return EnvSpec(label, Box(tuple(map(int, seen.shape)), dtype), action, pure=True, action_mask=masked)


def _action(label: str, agent: str, space: Any) -> Space:
    kind = type(space).__name__
    if kind == "Discrete":
        return Discrete(int(space.n))
    if kind == "Box":
        low, high = (np.asarray(bound, np.float32)[()] for bound in (space.low, space.high))
        return Box(tuple(int(n) for n in space.shape), "float32", low, high)
    raise ConfigError(f"environment {label!r}: agent {agent!r} acts by a {kind}; known: Box, Discrete")


def _check(env: JaxMarlEnv, key: jax.Array) -> None:
    """Trace one reset and one step: the state must keep its shapes."""
    state, _ = jax.eval_shape(env.reset, key)
    none: Any = {t: jnp.zeros(g.native_action.shape, g.native_action.dtype) for t, g in groups_of(env.spec).items()}
    stepped, _ = jax.eval_shape(env.step, state, none.get("", none), key)
    before, after = (jax.tree.map(lambda leaf: leaf.shape, tree) for tree in (state, stepped))
    if before != after:
        raise TypeError(f"its state changes shape when stepped, from {before} to {after}")
