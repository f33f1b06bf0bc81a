"""A group of agents that share a policy: an algorithm that is written for one agent, as one for the whole group.

The agents of an environment are further rows. Act runs for all of them in one call, with a key and a carry for each;
learn gets ``[T, B * A]`` columns, one for each agent of each environment. So the algorithm knows nothing of agents, and
runtimes move the group's observations, actions and rewards as they move those of one agent.

An agent's *life* is told apart from the environment's episode: it begins where the agent is present and was not before,
or with the episode; it ends where the agent is not present any more (that is a termination), or with the episode.
Records of agents that are not present are not valid: nothing is learned from them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp

from weft.core.errors import ConfigError
from weft.core.specs import EnvSpec, SpaceTree, Spec
from weft.core.types import Acted, Array, Metrics, Timestep, TrainState, Tree, Unroll
from weft.graph.algorithm import Algorithm


class Lives(NamedTuple):
    """What act remembers of a group: ``A`` carries, and who was present at the step before."""

    carry: Tree  # [A, ...]
    present: Array | None  # [A] bool; None where all always are


def for_agents(algorithm: Algorithm, environment: EnvSpec) -> Algorithm:
    """``algorithm`` as it runs in ``environment``: for each agent of a group, unless it is written for whole groups."""
    if not environment.agents or algorithm.acts_for_group or isinstance(algorithm, ByAgent):
        return algorithm
    if type(algorithm).graph is not Algorithm.graph:
        raise ConfigError(
            f"environment {environment.name!r} has {len(environment.agents)} agents that share a policy, and "
            f"{type(algorithm).__name__} has a graph of its own, which is not made for agents. Use an algorithm that "
            "learns from unrolls as they come (ppo, mappo, impala, a2c, pqn), or one for groups (vdn, qmix)."
        )
    return ByAgent(algorithm.unroll, algorithm)


@dataclass(frozen=True)
class ByAgent(Algorithm):
    """``of``, once bound, acts and learns for every agent of the group by itself, with the same params."""

    of: Algorithm = Algorithm()  # noqa: RUF009  frozen

    # ---- bound: the group's spec here, one agent's in the algorithm ------------------------------------------------

    def with_spec(self, spec: Spec) -> Self:
        """Bound to a group, and ``of`` to one of its agents, of which there are ``A`` times as many."""
        bound = super().with_spec(spec)
        environment = self._environment_of_one(spec.environment)
        one = replace(spec, environment=environment, envs=spec.envs * len(spec.environment.agents))
        object.__setattr__(bound, "of", self.of.with_spec(one))
        return bound

    def _environment_of_one(self, group: EnvSpec) -> EnvSpec:
        """What one agent sees and does; with what its critic sees besides, where the algorithm has a central one."""
        assert group.agent is not None
        one = replace(group.agent, max_episode_steps=group.max_episode_steps, may_fail=group.may_fail)
        if not self.of.central_critic:
            return one
        return replace(one, observation={"own": one.observation, "state": self._state_space(group)})

    @staticmethod
    def _state_space(group: EnvSpec) -> SpaceTree:
        """The environment's state, or what all agents see where it gives none."""
        seen: Any = group.observation
        space: SpaceTree = seen["state"] if "state" in seen else seen["agents"]
        return space

    def check(self) -> None:
        """As ``of`` checks itself."""
        self.of.check()

    def to_act(self) -> Self:
        """With ``of`` without what only learning needs."""
        return replace(self, of=self.of.to_act())

    def with_fields(self, **changes: Any) -> Self:
        """With other hyper-parameters of ``of``."""
        of = self.of.with_fields(**changes)
        return replace(self, unroll=of.unroll, of=of)

    def config(self) -> dict[str, Any]:
        """The hyper-parameters of ``of``."""
        return self.of.config()

    @property
    def _count(self) -> int:
        return len(self.spec.environment.agents)

    def _state_of(self, observation: Tree) -> Tree:
        """What a central critic sees, of an observation with any axes in front."""
        return observation["state"] if "state" in observation else observation["agents"]

    # ---- acting: one environment, all agents -----------------------------------------------------------------------

    def init(self, key: jax.Array) -> TrainState:
        """One set of params, which all agents share."""
        return self.of.init(key)

    def initial_carry(self) -> Lives:
        """A carry for each agent."""
        start = self.of.initial_carry()
        carry = jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x), (self._count, *jnp.shape(x))), start)
        changing = "present" in self.spec.environment.observation  # type: ignore[operator]
        return Lives(carry, jnp.zeros(self._count, jnp.bool_) if changing else None)

    def act_at(self, params: Tree, carry: Lives, timestep: Timestep, key: jax.Array, step: Array) -> Acted:
        """Every agent's action, one after another."""

        def one(carry: Tree, seen: Timestep, key: jax.Array) -> Acted:
            return self.of.act_at(params, carry, seen, key, step)

        seen, present = self._views(carry, timestep)
        acted = jax.vmap(one)(carry.carry, seen, jax.random.split(key, self._count))
        return self._together(acted, present)

    def greedy(self, params: Tree, carry: Lives, timestep: Timestep) -> Acted:
        """Every agent's action, without exploration."""
        seen, present = self._views(carry, timestep)
        acted = jax.vmap(lambda carry, one: self.of.greedy(params, carry, one))(carry.carry, seen)
        return self._together(acted, present)

    def bootstrap(self, params: Tree, carry: Lives, observation: Tree) -> Array:
        """``[A]`` values; 0 for those that are not there any more."""
        value = jax.vmap(self.of.bootstrap, (None, 0, 0))(params, carry.carry, self._own(observation))
        return jnp.where(observation["present"] > 0, value, 0.0) if "present" in observation else value

    def _views(self, carry: Lives, timestep: Timestep) -> tuple[Timestep, Array | None]:
        """A timestep as each agent sees it, ``[A, ...]``; and who is present."""

        def each(x: Array) -> jax.Array:
            return jnp.broadcast_to(x, (self._count,))

        present, begins = None, jnp.zeros(self._count, jnp.bool_)
        if carry.present is not None:
            present = timestep.observation["present"] > 0
            begins = present & ~carry.present
        mask = timestep.action_mask
        seen = Timestep(
            observation=self._own(timestep.observation),
            reward=timestep.reward,
            terminated=each(timestep.terminated),
            truncated=each(timestep.truncated) | begins,
            action_mask=None if mask is None else mask.reshape((self._count, -1)),
        )
        return seen, present

    def _own(self, observation: Tree) -> Tree:
        """What each agent sees, ``[A, ...]``."""
        if not self.of.central_critic:
            return observation["agents"]
        state = self._state_of(observation)
        every = jax.tree.map(lambda x: jnp.broadcast_to(x, (self._count, *x.shape)), state)
        return {"own": observation["agents"], "state": every}

    def _together(self, acted: Acted, present: Array | None) -> Acted:
        action = acted.action.reshape(self.spec.environment.action.shape)
        return Acted(action, Lives(acted.carry, present), acted.extras)

    # ---- learning: agents as further environments ------------------------------------------------------------------

    @property
    def splits(self) -> bool:
        """Whether ``of`` does."""
        return self.of.splits

    def learn(self, state: TrainState, batch: Unroll) -> tuple[TrainState, Metrics]:
        """One learn call of ``of``, from all agents."""
        return self.of.learn(state, self.columns(batch))

    def grad(self, params: Tree, batch: Unroll) -> tuple[Tree, Metrics]:
        """Gradients of ``of``, from all agents."""
        return self.of.grad(params, self.columns(batch))

    def apply(self, state: TrainState, gradients: Tree) -> TrainState:
        """The update of ``of``."""
        return self.of.apply(state, gradients)

    def columns(self, batch: Unroll) -> Unroll:
        """An unroll of ``B`` groups as one of ``B * A`` agents, with each agent's own life."""
        length, envs = batch.terminated.shape
        count = self._count

        def flat(x: Array) -> Array:  # [T, B, A, ...]
            return x.reshape((length, envs * count, *x.shape[3:]))

        def row(x: Array) -> Array:  # [B, A, ...]
            return x.reshape((envs * count, *x.shape[2:]))

        def every(x: Array) -> jax.Array:  # [T, B] or [B]
            return jnp.repeat(x, count, axis=-1)

        first, terminated, last_first = every(batch.first), every(batch.terminated), every(batch.last_first)
        truncated = every(batch.truncated)
        valid: Array | None = None if batch.valid is None else every(batch.valid)
        if batch.carry.present is not None:
            present = flat(batch.observation["present"]) > 0
            last = row(batch.last_observation["present"]) > 0
            before = jnp.concatenate([row(batch.carry.present)[None], present[:-1]])
            after = jnp.concatenate([present[1:], last[None]])
            first = first | (present & ~before)
            last_first = last_first | (last & ~present[-1])
            terminated = terminated | (~truncated & ~after)
            valid = present if valid is None else valid & present
        shape = self.of.spec.environment.action.shape
        mask = batch.action_mask
        return Unroll(
            observation=self._columns_seen(batch.observation, length, envs),
            first=first,
            action=batch.action.reshape((length, envs * count, *shape)),
            extras=jax.tree.map(flat, batch.extras),
            reward=flat(batch.reward),
            terminated=terminated,
            truncated=truncated,
            bootstrap=flat(batch.bootstrap),
            carry=jax.tree.map(row, batch.carry.carry),
            last_observation=jax.tree.map(row, jax.vmap(self._own)(batch.last_observation)),
            last_first=last_first,
            action_mask=None if mask is None else mask.reshape((length, envs * count, -1)),
            valid=valid,
        )

    def _columns_seen(self, observation: Tree, length: int, envs: int) -> Tree:
        own = jax.vmap(jax.vmap(self._own))(observation)
        return jax.tree.map(lambda x: x.reshape((length, envs * self._count, *x.shape[3:])), own)
