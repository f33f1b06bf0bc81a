"""Self-play: a policy learns against its own past versions, drawn by a rule, with a record of who beats whom.

act     in each episode one side plays with the newest params, the other with a past version that was drawn for it
learn   what the algorithm learns, from the newest params' side alone; then the record, and now and then a new version

latest        the newest of the past versions
uniform       any of them
prioritised   those that are hard to beat: by (1 - the share of games won against them)^2, as AlphaStar's league has it
              (Vinyals et al., doi 10.1038/s41586-019-1724-z)

The past versions are part of the params, so act serves all of them in one call, and every plan runs this as it is. The
two sides are two teams of agents that see and do alike, or the two halves of one group; they change seats by chance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from weft.algorithms.ppo import PPO
from weft.core.errors import ConfigError
from weft.core.replicas import mean_over_replicas
from weft.core.specs import Spec
from weft.core.types import Acted, Array, Metrics, Timestep, TrainState, Tree, Unroll
from weft.graph.algorithm import Algorithm
from weft.graph.by_agent import ByAgent

END = np.array(2**31 - 1, np.int32)
"""The step that a trained policy is asked for: beyond the end of the run."""

DECAY = 0.98
"""Of the games that are remembered, at each learn call: the newest params are not those that played long ago."""


class Versions(NamedTuple):
    """What act needs: the newest params, ``K`` past ones, and how likely each of those is to be drawn."""

    newest: Tree
    past: Tree  # [K, ...]
    chance: Array  # [K] float32, adds up to 1
    taken: Array  # [K] int32: the learn call of each past version; -1: none yet


class Record(NamedTuple):
    """What learn remembers besides."""

    optimizer: Tree  # of the algorithm that learns
    games: Array  # [K] float32, played against each; those of long ago count less
    won: Array  # [K] float32; a draw is half a game won


class Seat(NamedTuple):
    """What act remembers of one environment."""

    lives: Tree  # of its agents
    opponent: Array  # [] int32: the past version that plays
    side: Array  # [] int32: the newest params', 0 or 1
    margin: Array  # [] float32: by how much they are ahead in this episode


@dataclass(frozen=True)
class SelfPlay(Algorithm):
    """``of`` learns, for an agent; every ``every`` learn calls a version is kept, the oldest gives way."""

    unroll: int = 0  # steps of each environment in a batch, T; 0: as the algorithm that learns has it
    of: Algorithm | None = None  # what learns, for one agent: an object, from Python only; None: PPO with its defaults
    opponents: Literal["latest", "uniform", "prioritised"] = "prioritised"
    versions: int = 8  # past ones that are kept
    every: int = 10  # learn calls between two of them

    acts_for_group: ClassVar[bool] = True
    one_group: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "of", self.of or PPO())
        object.__setattr__(self, "unroll", self.unroll or self._learner.unroll)

    @property
    def _learner(self) -> Algorithm:
        assert self.of is not None
        return self.of

    def with_spec(self, spec: Spec) -> Self:
        """Bound to all agents, and ``of`` to one of them."""
        bound = super().with_spec(spec)
        same = self._learner.with_fields(unroll=self.unroll)
        if spec.environment.agents:
            object.__setattr__(bound, "_all", ByAgent(self.unroll, same).with_spec(spec))
        return bound

    @property
    def _agents(self) -> ByAgent:
        every: ByAgent = self.__dict__["_all"]
        return every

    def check(self) -> None:
        """Refuse an environment without two equal sides, before anything starts."""
        super().check()
        agents = self.spec.environment.agents
        if not agents or len(agents) % 2:
            raise ConfigError(
                f"SelfPlay needs two sides with as many agents each, and environment {self.spec.environment.name!r} "
                f"has {len(agents) or 'one'} agent{'s' if len(agents) > 1 else ''}."
            )
        if self.versions < 1 or self.every < 1:
            raise ConfigError(f"SelfPlay: versions and every must be at least 1, got {self.versions} and {self.every}")
        self._agents.check()

    def to_act(self) -> Self:
        """With ``of`` as it acts."""
        return replace(self, of=self._learner.to_act())

    def init(self, key: jax.Array) -> TrainState:
        """Fresh params, which are the first past version too."""
        state, count = self._agents.init(key), self.versions
        past = jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)).copy(), state.params)
        taken = jnp.full(count, -1, jnp.int32).at[0].set(0)
        nothing = jnp.zeros(count)
        record = Record(state.optimizer, nothing, nothing)
        return state._replace(params=Versions(state.params, past, self._chance(taken, record), taken), optimizer=record)

    # ---- acting: one environment, both sides -----------------------------------------------------------------------

    def initial_carry(self) -> Seat:
        """Nobody is seated: every episode begins by drawing who plays."""
        return Seat(self._agents.initial_carry(), jnp.int32(0), jnp.int32(0), jnp.float32(0.0))

    def act_at(self, params: Versions, carry: Seat, timestep: Timestep, key: jax.Array, step: Array) -> Acted:
        """Each side's actions with its own params."""
        draw, seat, ours, theirs = jax.random.split(key, 4)
        drawn = jax.random.categorical(draw, jnp.log(params.chance)).astype(jnp.int32)
        opponent = jnp.where(timestep.first, drawn, carry.opponent)
        side = jnp.where(timestep.first, jax.random.bernoulli(seat).astype(jnp.int32), carry.side)
        ahead = jnp.where(timestep.first, 0.0, carry.margin + self._gained(timestep.reward, carry.side))
        newest = self._agents.act_at(params.newest, carry.lives, timestep, ours, step)
        version = jax.tree.map(lambda x: x[opponent], params.past)
        past = self._agents.act_at(version, carry.lives, timestep, theirs, step)
        action, lives = self._seated(newest, past, side)
        seated = {"opponent": opponent, "side": side, "margin": ahead}
        return Acted(action, Seat(lives, opponent, side, ahead), {"learner": newest.extras, **seated})

    def duel(self, params: tuple[Tree, Tree], lives: Tree, timestep: Timestep, key: jax.Array) -> tuple[Array, Tree]:
        """One version against another, the first on side 0: everybody's actions, and the next ``lives``."""
        both = [self._agents.act_at(p, lives, timestep, jax.random.fold_in(key, k), END) for k, p in enumerate(params)]
        return self._seated(both[0], both[1], jnp.int32(0))

    def _seated(self, ours: Acted, theirs: Acted, side: Array) -> tuple[Array, Tree]:
        """The actions and the lives of all agents: ``ours`` on ``side``, ``theirs`` on the other."""
        mine = self._sides == side

        def chosen(a: jax.Array, b: jax.Array) -> jax.Array:
            return jnp.where(mine.reshape((-1, *[1] * (a.ndim - 1))), a, b)

        def by_agent(action: jax.Array) -> jax.Array:
            return action.reshape((len(self._sides), -1))

        action = chosen(by_agent(ours.action), by_agent(theirs.action)).reshape(ours.action.shape)
        return action, ours.carry._replace(carry=jax.tree.map(chosen, ours.carry.carry, theirs.carry.carry))

    def greedy(self, params: Versions, carry: Seat, timestep: Timestep) -> Acted:
        """Both sides with the newest params."""
        acted = self._agents.greedy(params.newest, carry.lives, timestep)
        return Acted(acted.action, carry._replace(lives=acted.carry))

    def bootstrap(self, params: Versions, carry: Seat, observation: Tree) -> Array:
        """``[A]`` values, by the newest params."""
        return self._agents.bootstrap(params.newest, carry.lives, observation)

    @property
    def _sides(self) -> Array:
        """[A] int32: the side of each agent."""
        count = len(self.spec.environment.agents)
        return jnp.arange(count) // (count // 2)

    def _gained(self, reward: Array, side: Array) -> Array:
        """By how much a side got more than the other: ``[...]`` of ``[..., A]`` rewards."""
        mine = self._sides == side[..., None]
        return jnp.where(mine, reward, -reward).sum(-1)

    # ---- learning --------------------------------------------------------------------------------------------------

    def learn(self, state: TrainState, batch: Unroll) -> tuple[TrainState, Metrics]:
        """One learn call of ``of``, from the side with the newest params; then the record."""
        record, versions = state.optimizer, state.params
        seated = batch.extras
        rows = self._agents.columns(batch._replace(extras=seated["learner"], carry=batch.carry.lives))
        mine = (seated["side"][..., None] == self._sides).reshape(rows.terminated.shape)
        valid = mine if rows.valid is None else mine & rows.valid
        inner = TrainState(versions.newest, record.optimizer, state.step, state.key)
        inner, metrics = self._agents.of.learn(inner, rows._replace(valid=valid))

        over = (batch.terminated | batch.truncated) & (True if batch.valid is None else batch.valid)
        margin = seated["margin"] + self._gained(batch.reward, seated["side"])
        score = jnp.where(margin > 0, 1.0, jnp.where(margin < 0, 0.0, 0.5))
        against = (seated["opponent"][..., None] == jnp.arange(self.versions)) & over[..., None]  # [T, B, K]
        played, won = mean_over_replicas((against.sum((0, 1)), (score[..., None] * against).sum((0, 1))))
        record = record._replace(
            optimizer=inner.optimizer, games=DECAY * record.games + played, won=DECAY * record.won + won
        )

        keep = inner.step % self.every == 0
        slot = inner.step // self.every % self.versions
        here = keep & (jnp.arange(self.versions) == slot)
        past = jax.tree.map(
            lambda all_, now: jnp.where(here.reshape((-1, *[1] * now.ndim)), now, all_), versions.past, inner.params
        )
        taken = jnp.where(here, inner.step, versions.taken)
        record = record._replace(games=jnp.where(here, 0.0, record.games), won=jnp.where(here, 0.0, record.won))
        metrics = {**metrics, "win_rate": won.sum() / jnp.maximum(played.sum(), 1.0)}
        versions = Versions(inner.params, past, self._chance(taken, record), taken)
        return TrainState(versions, record, inner.step, inner.key), metrics

    def _chance(self, taken: Array, record: Record) -> jax.Array:
        """How likely each past version is to be drawn."""
        there = taken >= 0
        match self.opponents:
            case "latest":
                weight = (taken == taken.max()).astype(jnp.float32)
            case "uniform":
                weight = there.astype(jnp.float32)
            case _:
                lost = 1.0 - (record.won + 1.0) / (record.games + 2.0)
                weight = jnp.where(there, jnp.square(lost) + 1e-3, 0.0)
        return weight / weight.sum()


def versions_of(params: Versions) -> dict[str, Tree]:
    """The versions of a trained run by the learn call that made each, from the oldest, the newest last."""
    order = sorted((int(n), k) for k, n in enumerate(params.taken) if int(n) >= 0)
    past = {str(n): jax.tree.map(lambda x, k=k: x[k], params.past) for n, k in order}
    return {**past, "newest": params.newest}
