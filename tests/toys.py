"""Environments and algorithms small enough to know by heart, for the tests of runtimes and algorithms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from weft.algorithms.ppo import PPO
from weft.core.specs import Box, Discrete, EnvSpec, Spec
from weft.core.types import Acted, TrainState
from weft.envs.protocol import JaxEnv, Transition
from weft.envs.registry import open_environment
from weft.graph.algorithm import Algorithm
from weft.graph.graph import Graph
from weft.runtimes.loop.engines import make_engine
from weft.runtimes.prepare.config import Prepared, RunConfig, prepare

SMALL: dict[str, Any] = {
    "unroll": 4,
    "epochs": 1,
    "minibatches": 1,
    "hidden": (8,),
    "recurrent_size": 8,
    "normalise_advantages": False,
    "learning_rate": 0.01,
}
"""Fields of a PPO that compiles quickly. With the same environment and 8 of it, the tests share compiled programs."""


@dataclass(frozen=True)
class Counter:
    """Episodes of ``length`` steps; an observation is ``[steps made, number drawn at reset]``, reward 10 + steps."""

    length: int = 3
    ends: str = "truncated"
    bad_reward_at: int = -1  # the step whose reward is NaN
    limit: int | None = None  # what its spec says

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("toys:Counter", Box((2,)), Discrete(2), pure=True, max_episode_steps=self.limit)

    def reset(self, key):
        drawn = jax.random.uniform(key)
        return (jnp.int32(0), drawn), jnp.stack([0.0, drawn])

    def step(self, state, action, key):
        time, drawn = state[0] + 1, state[1]
        ended = time >= self.length
        flags = (ended, False) if self.ends == "terminated" else (False, ended)
        reward = jnp.where(time == self.bad_reward_at, jnp.nan, 10.0 + time)
        return (time, drawn), Transition(jnp.stack([time.astype(jnp.float32), drawn]), reward, *flags)


class CounterGym(gym.Env):
    """Counter as a Gymnasium environment."""

    def __init__(self, length: int = 3, ends: str = "truncated") -> None:
        self.length, self.ends = length, ends
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.drawn = 0, self.np_random.random()
        return self._look(), {}

    def step(self, action):
        self.time += 1
        ended = self.time >= self.length
        return (
            self._look(),
            10.0 + self.time,
            ended and self.ends == "terminated",
            ended and self.ends != "terminated",
            {},
        )

    def _look(self):
        return np.array([self.time, self.drawn], np.float32)


@dataclass(frozen=True)
class Bandit:
    """One step an episode: action ``best`` gives 1, another 0."""

    best: int = 2
    arms: int = 4

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("toys:Bandit", Box((1,)), Discrete(self.arms), pure=True)

    def reset(self, key):
        return jnp.int32(0), jnp.ones(1)

    def step(self, state, action, key):
        return state, Transition(jnp.ones(1), jnp.where(action == self.best, 1.0, 0.0), True, False)


@dataclass(frozen=True)
class Masked:
    """Only one choice of four is allowed at each step, and another action gives reward -1000."""

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("toys:Masked", Box((1,)), Discrete(4), pure=True, action_mask=True)

    def action_mask(self, state):
        return jnp.arange(4) == state % 4

    def reset(self, key):
        return jax.random.randint(key, (), 0, 4), jnp.zeros(1)

    def step(self, state, action, key):
        allowed = self.action_mask(state)[action]
        return state + 1, Transition(jnp.zeros(1), jnp.where(allowed, 1.0, -1000.0), state % 7 == 6, False)


@dataclass(frozen=True)
class Anything:
    """Any observation space and any action space: observations are drawn, the reward is the sum of the action."""

    observation: Any
    action: Any
    name: str = "toys:Anything"

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(self.name, self.observation, self.action, pure=True)

    def reset(self, key):
        return jnp.int32(0), self._draw(key)

    def step(self, state, action, key):
        assert action.dtype == self.action.dtype, (action.dtype, self.action.dtype)
        return state + 1, Transition(self._draw(key), jnp.sum(action).astype(jnp.float32), state >= 4, False)

    def _draw(self, key):
        def leaf(space):
            words = jax.random.randint(key, space.shape, 0, 2)
            return words.astype(space.dtype)

        return jax.tree.map(leaf, self.observation, is_leaf=lambda s: hasattr(s, "dtype"))


@dataclass(frozen=True)
class Probe(Algorithm):
    """Remembers how many steps the episode has; values an observation by ``weight * observation[0] + 100 * steps``.

    Its weight begins at 2 and grows by 1 with each learn call. Its last fragment keeps the unroll that learn ate.
    """

    unroll: int = 4

    def init(self, key):
        return TrainState({"weight": jnp.float32(2.0)}, (), jnp.int32(0), key)

    def initial_carry(self):
        return jnp.zeros((), jnp.int32)

    def act(self, params, carry, timestep, key):
        steps = jnp.where(timestep.first, 0, carry) + 1
        return Acted(jax.random.randint(key, (), 0, 2), steps, {"steps": steps})

    def bootstrap(self, params, carry, observation):
        return params["weight"] * observation[0] + 100.0 * carry

    def learn(self, state, batch):
        params = {"weight": state.params["weight"] + 1.0}
        return state._replace(params=params, step=state.step + 1), {"reward": batch.reward.mean()}

    def graph(self) -> Graph:
        return with_recorder(super().graph())


class Measuring(PPO):
    """PPO whose loss measures two things more; one is a whole number."""

    def loss(self, network, samples, entropy_cost):
        """As PPO's, with ``advantage_max`` and ``samples``."""
        loss, metrics = super().loss(network, samples, entropy_cost)
        advantage = samples.steps.advantage
        return loss, {**metrics, "advantage_max": advantage.max(), "samples": advantage.size}


def with_recorder(graph: Graph) -> Graph:
    """A graph with a fragment just before learn whose state is the last unroll."""
    schema = graph.stream("unroll").schema
    return graph.insert(
        "recorder",
        lambda state, unroll: (unroll, unroll),
        lambda key: jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), schema),
    )


def last_unroll(engine) -> Any:
    """What the recorder of an engine kept, in NumPy."""
    return jax.device_get(engine.saved()[0].fragments["recorder"])


def train_state(engine) -> TrainState:
    """The state of an engine's only learner."""
    (state,) = engine.train_states().values()
    return state


def prepared(algorithm, environment, *, envs=4, plan="inline", steps=10_000, **config) -> Prepared:
    """A prepared run of ``envs`` environments."""
    return prepare(RunConfig(algorithm, environment, plan=plan, envs=envs, steps=steps, **config))


def started(algorithm, environment, **config):
    """An engine that has begun; the caller closes it."""
    engine = make_engine(prepared(algorithm, environment, **config))
    engine.start()
    return engine


def bound(algorithm, environment, *, envs=4, learn_steps=10):
    """An algorithm bound to an environment, and the environment's source."""
    source = open_environment(environment)
    return algorithm.bind(Spec(source.spec, envs, learn_steps)), source


def as_pure(env: Any) -> JaxEnv:
    """For the type checker's sake, and to say that it is one."""
    return env


def same(left: Any, right: Any) -> bool:
    """Whether two trees are equal bit for bit (keys by their words)."""
    a, b = jax.tree.leaves(left), jax.tree.leaves(right)
    return len(a) == len(b) and all(np.array_equal(_words(x), _words(y)) for x, y in zip(a, b, strict=True))


def farthest(left: Any, right: Any) -> float:
    """The greatest distance between two trees of numbers."""
    a, b = jax.tree.leaves(left), jax.tree.leaves(right)
    assert len(a) == len(b)
    return max(
        float(np.max(np.abs(np.asarray(x, np.float64) - np.asarray(y, np.float64)), initial=0.0))
        for x, y in zip(a, b, strict=True)
    )


def _words(leaf: Any) -> np.ndarray:
    is_key = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


class Flaky(CounterGym):
    """One step in twenty raises, drawn from its own generator: an episode that is replayed raises again."""

    def step(self, action):
        if self.np_random.random() < 0.05 and self.time:
            raise RuntimeError("the simulator lost its grip")
        return super().step(action)


def flaky() -> gym.Env:
    return Flaky(length=6)
