"""Agents that share a policy: rows of the algorithm that was written for one, each with a life of its own."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weft
from weft.core.specs import Spec
from weft.graph.by_agent import ByAgent, Lives, for_agents


@dataclass(frozen=True)
class Listens(weft.Algorithm):
    """Acts by counting its own steps; its learn keeps what it was given."""

    unroll: int = 3

    def init(self, key: jax.Array) -> weft.TrainState:
        return weft.TrainState(jnp.zeros(()), (), jnp.int32(0), key)

    def initial_carry(self) -> jax.Array:
        return jnp.zeros((), jnp.int32)

    def act(self, params: Any, carry: Any, timestep: weft.Timestep, key: jax.Array) -> weft.Acted:
        count = jnp.where(timestep.first, 0, carry) + 1
        return weft.Acted(jnp.int32(timestep.observation[0]), count, {"count": count})

    def bootstrap(self, params: Any, carry: Any, observation: Any) -> jax.Array:
        return 10.0 * carry + observation[0]

    def learn(self, state: weft.TrainState, batch: Any) -> Any:
        return batch, {}


def group(agents: int = 2, changing: bool = True) -> weft.EnvSpec:
    one = weft.EnvSpec("G", weft.Box((1,)), weft.Discrete(5), pure=True)
    return weft.EnvSpec.of_agents("G", one, [f"a{i}" for i in range(agents)], changing=changing)


def bound(agents: int = 2, changing: bool = True, envs: int = 1) -> ByAgent:
    lifted = for_agents(Listens(), group(agents, changing)).bind(Spec(group(agents, changing), envs, 1))
    assert isinstance(lifted, ByAgent)
    return lifted


def timestep(values: list[float], present: list[int], first: bool = False) -> weft.Timestep:
    seen = {"agents": jnp.array(values)[:, None], "present": jnp.array(present, jnp.int8)}
    return weft.Timestep(seen, jnp.zeros(len(values)), jnp.bool_(False), jnp.bool_(first))


def test_spaces_of_a_group() -> None:
    spec = group(3)
    assert spec.observation == {"agents": weft.Box((3, 1)), "present": weft.MultiBinary(3)}
    assert spec.action == weft.MultiDiscrete((5, 5, 5))
    assert spec.reward_shape == (3,)
    arm = weft.EnvSpec("arm", weft.Discrete(4), weft.Box((2,), low=-1.0, high=[1.0, 3.0]))
    both = weft.EnvSpec.of_agents("arms", arm, ["left", "right"])
    assert both.observation == {"agents": weft.Box((2,), "int32", 0, 3)}
    np.testing.assert_allclose(both.to_native(np.ones((2, 2), np.float32)), [[1, 3], [1, 3]])


@pytest.mark.parametrize("names", [(), ("a", "b", "a")])
def test_agents_need_names(names: tuple[str, ...]) -> None:
    one = weft.EnvSpec("G", weft.Box((1,)), weft.Discrete(5))
    with pytest.raises(weft.ConfigError, match="agents with different names"):
        weft.EnvSpec.of_agents("G", one, names)


def test_a_life_begins_anew_where_an_agent_comes_back() -> None:
    """The carry of an agent starts with its life, and those of the others go on."""
    algorithm = bound()
    carry, key = algorithm.initial_carry(), jax.random.key(0)
    counts = []
    for present in ([1, 1], [1, 1], [1, 0], [1, 1], [1, 1]):
        acted = algorithm.act_at((), carry, timestep([1.0, 2.0], present, first=not counts), key, jnp.int32(0))
        carry = acted.carry
        counts.append(acted.extras["count"].tolist())
    assert [c[0] for c in counts] == [1, 2, 3, 4, 5]
    assert [counts[0][1], counts[1][1], counts[3][1], counts[4][1]] == [1, 2, 1, 2]


def test_what_follows_is_valued_for_those_that_are_there() -> None:
    values = bound().bootstrap(
        (), Lives(jnp.array([3, 4]), jnp.array([True, True])), timestep([1, 2], [1, 0]).observation
    )
    assert values.tolist() == [31.0, 0.0]


def test_columns_have_each_agents_own_life() -> None:
    """Two agents, T = 3: the second dies after step 0 and comes back for the last observation."""
    present = jnp.array([[1, 1], [1, 0], [1, 0]], jnp.int8)[:, None]  # [T, B, A]
    seen = {"agents": jnp.arange(6.0).reshape(3, 1, 2, 1), "present": present}
    last = {"agents": jnp.ones((1, 2, 1)), "present": jnp.array([[1, 1]], jnp.int8)}
    no = jnp.zeros((3, 1), jnp.bool_)
    unroll = weft.Unroll(
        observation=seen,
        first=no.at[0].set(True),
        action=jnp.arange(6).reshape(3, 1, 2),
        extras={"count": jnp.arange(6).reshape(3, 1, 2)},
        reward=jnp.arange(6.0).reshape(3, 1, 2),
        terminated=no,
        truncated=no,
        bootstrap=jnp.zeros((3, 1, 2)).at[-1].set(jnp.array([[7.0, 8.0]])),
        carry=Lives(jnp.zeros((1, 2), jnp.int32), jnp.array([[True, True]])),
        last_observation=last,
        last_first=jnp.zeros(1, jnp.bool_),
    )
    rows, _ = bound().learn(None, unroll)  # type: ignore[arg-type]
    assert rows.valid.tolist() == [[True, True], [True, False], [True, False]]
    assert rows.terminated.tolist() == [[False, True], [False, True], [False, False]]
    assert rows.first.tolist() == [[True, True], [False, False], [False, False]]
    assert rows.last_first.tolist() == [False, True]
    assert rows.reward.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert rows.action.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert rows.bootstrap[-1].tolist() == [7, 8]
    assert rows.observation[..., 0].tolist() == [[0, 1], [2, 3], [4, 5]]


def test_all_agents_of_all_environments_are_the_algorithms_environments() -> None:
    assert bound(agents=3, envs=4).of.spec.envs == 12
    assert bound(agents=3, changing=False).initial_carry().present is None


def test_an_algorithm_with_a_graph_of_its_own_is_refused() -> None:
    with pytest.raises(weft.ConfigError, match="2 agents that share a policy, and DQN has a graph of its own"):
        for_agents(weft.DQN(), group())
