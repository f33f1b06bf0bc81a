"""PettingZoo environments small enough to know by heart, for the tests of the adapter and of runs with agents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv
from toys import SMALL

import weft


class Meadow(ParallelEnv):
    """Hens count steps. What ``hen_i`` sees is ``[steps made, i, number drawn at reset]``; its reward is its action
    (1 to 3, in the environment's units) + 10 i. ``leaves`` has the step by which an agent is terminated, ``comes`` that
    by which one is there. After ``length`` steps those that are left are truncated.

    With ``foxes``, another kind: they see four numbers, act by a Box from 0 to 2, and their reward is its sum.
    """

    metadata = {"name": "meadow_v0", "render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(
        self,
        hens: int = 2,
        foxes: int = 0,
        length: int = 5,
        leaves: dict[str, int] | None = None,
        comes: dict[str, int] | None = None,
        masks: str = "",
        with_state: bool = False,
        render_mode: str | None = None,
    ) -> None:
        self.possible_agents = [f"hen_{i}" for i in range(hens)] + [f"fox_{i}" for i in range(foxes)]
        self.length, self.leaves, self.comes, self.masks = length, leaves or {}, comes or {}, masks
        self.render_mode = render_mode
        self.acted: list[dict[str, Any]] = []
        if with_state:
            self.state_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def observation_space(self, agent: str) -> Any:
        if agent.startswith("fox"):
            return spaces.Box(1, 9, (4,), np.float32)
        own = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        if self.masks == "observation":
            return spaces.Dict({"observation": own, "action_mask": spaces.MultiBinary(3)})
        return own

    def action_space(self, agent: str) -> Any:
        return spaces.Box(0, 2, (2,), np.float32) if agent.startswith("fox") else spaces.Discrete(3, start=1)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.time, self.drawn = 0, float(np.random.default_rng(seed).random())
        self.agents = [agent for agent in self.possible_agents if self.comes.get(agent, 0) == 0]
        return self.seen(), self.infos()

    def step(self, actions: dict[str, Any]) -> Any:
        assert set(actions) == set(self.agents), (actions, self.agents)
        self.acted.append(actions)
        self.time += 1
        rewards = {agent: self.earned(agent, action) for agent, action in actions.items()}
        over = {agent: self.leaves.get(agent) == self.time for agent in self.agents}
        cut = {agent: self.time >= self.length and not over[agent] for agent in self.agents}
        self.agents += [agent for agent in self.possible_agents if self.comes.get(agent) == self.time]
        seen, infos = self.seen(), self.infos()
        self.agents = [agent for agent in self.agents if not over.get(agent) and not cut.get(agent)]
        return seen, rewards, over, cut, infos

    def earned(self, agent: str, action: Any) -> float:
        number = int(agent.partition("_")[2])
        return float(np.sum(action)) if agent.startswith("fox") else int(action) + 10.0 * number

    def seen(self) -> dict[str, Any]:
        return {agent: self.look(agent) for agent in self.agents}

    def look(self, agent: str) -> Any:
        number = int(agent.partition("_")[2])
        if agent.startswith("fox"):
            return np.array([1 + self.time, 1 + number, 1 + self.drawn, 1], np.float32)
        own = np.array([self.time, number, self.drawn])
        return {"observation": own, "action_mask": self.allowed(agent)} if self.masks == "observation" else own

    def allowed(self, agent: str) -> Any:
        """All but one choice, another at each step."""
        mask = np.ones(3, np.int8)
        mask[(self.time + int(agent.partition("_")[2])) % 3] = 0
        return mask

    def infos(self) -> dict[str, Any]:
        masked = self.masks == "info"
        return {
            agent: {"action_mask": self.allowed(agent)} if masked and agent.startswith("hen") else {}
            for agent in self.agents
        }

    def state(self) -> Any:
        return np.array([self.time, self.drawn])

    def render(self) -> Any:
        return np.zeros((8, 8, 3), np.uint8)


class Nim(AECEnv):
    """Players take 1 or 2 of ``pile`` matches in turn; who takes the last wins. A turn game, without masks."""

    metadata = {"name": "nim_v0", "is_parallelizable": False}  # noqa: RUF012

    def __init__(self, pile: int = 5, continuous: bool = False) -> None:
        self.possible_agents, self.pile, self.continuous = ["player_1", "player_2"], pile, continuous
        self.render_mode = None

    def observation_space(self, agent: str) -> Any:
        return spaces.Discrete(self.pile + 1)

    def action_space(self, agent: str) -> Any:
        return spaces.Box(0, 1, (1,)) if self.continuous else spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents = self.possible_agents[:]
        self.left, self.agent_selection = self.pile, self.agents[0]
        self.rewards = self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}

    def observe(self, agent: str) -> int:
        return self.left

    def step(self, action: Any) -> None:
        mover = self.agent_selection
        if self.terminations[mover]:
            self._was_dead_step(action)
            return
        self.left = max(0, self.left - 1 - int(action))
        (other,) = [agent for agent in self.possible_agents if agent != mover]
        if not self.left:
            self.rewards = {mover: 1.0, other: -1.0}
            self.terminations = dict.fromkeys(self.agents, True)
        self.agent_selection = other


def fixed() -> Meadow:
    return Meadow(3, with_state=True)


def dying() -> Meadow:
    """Agents that leave, one that comes later."""
    return Meadow(4, length=6, leaves={"hen_1": 2, "hen_2": 4}, comes={"hen_3": 3})


def kinds() -> Meadow:
    """Two kinds with different spaces, of which one dies and one has masks."""
    return Meadow(2, foxes=2, length=6, leaves={"fox_1": 3, "hen_0": 4}, masks="info")


def masked() -> Meadow:
    return Meadow(2, masks="observation")


@dataclass(frozen=True)
class EachTeam(weft.Algorithm):
    """A small PPO of its own for each team."""

    unroll: int = 4

    def graph(self) -> weft.Graph:
        return weft.several_policies({team: weft.PPO(**SMALL) for team in self.spec.environment.teams}, self.spec)
