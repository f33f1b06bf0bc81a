"""Turn games (PettingZoo's AEC environments that cannot be made parallel) as environments in which all act at once.

One step is one move. All agents are there and see the game; the agents that wait have a mask that allows their first
choice alone, and that choice is ignored. So a policy has nothing to decide while it waits, and learns nothing of it: of
a single choice the probability is 1. Rewards come with the move that caused them, and values reach over the moves of
the others; a discount counts every move.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from weft.core.errors import ConfigError
from weft.envs.agents import AgentId, agents_of


class TurnGame:
    """An AEC environment with the methods of a parallel one; ``mover`` is the agent whose action counts next."""

    def __init__(self, name: str, aec: Any) -> None:
        self.aec = aec
        self.possible_agents = agents_of(name, aec)
        self.agents: list[AgentId] = []
        self.render_mode = getattr(aec, "render_mode", None)
        for agent in self.possible_agents:
            space = aec.action_space(agent)
            if isinstance(space, gym.spaces.Box):
                aec.close()
                raise ConfigError(
                    f"environment {name!r}: its agents take turns, and agent {agent!r} acts by {space}. An agent that "
                    "waits is given a single choice, and a Box has no choices: turn games need discrete actions. If "
                    "all agents can act at once, make it a ParallelEnv, or set is_parallelizable in its metadata."
                )

    @property
    def mover(self) -> AgentId | None:
        """Whose turn it is; None where nobody is left."""
        return self.aec.agent_selection if self.agents else None

    @property
    def unwrapped(self) -> Any:
        """The game itself."""
        return self.aec.unwrapped

    @property
    def state_space(self) -> Any:
        """The space of ``state``; None where the game has none."""
        return getattr(self.aec, "state_space", None)

    def observation_space(self, agent: AgentId) -> Any:
        """What an agent sees."""
        return self.aec.observation_space(agent)

    def action_space(self, agent: AgentId) -> Any:
        """What an agent does."""
        return self.aec.action_space(agent)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """A new game: what everybody sees, and infos."""
        self.aec.reset(seed=seed, options=options)
        self._bury()
        return {agent: self.aec.observe(agent) for agent in self.agents}, dict(self.aec.infos)

    def step(self, actions: dict[Any, Any]) -> tuple[dict[Any, Any], ...]:
        """One move, of the agent whose turn it is; the others' actions are ignored."""
        aec = self.aec
        aec.step(actions[aec.agent_selection])
        rewards, terminations, truncations = dict(aec.rewards), dict(aec.terminations), dict(aec.truncations)
        observations = {agent: aec.observe(agent) for agent in aec.agents}
        infos = dict(aec.infos)
        self._bury()
        for agent in self.agents:  # whose turn it is may have changed, and with it what an agent may do
            observations[agent], infos[agent] = aec.observe(agent), aec.infos[agent]
        return observations, rewards, terminations, truncations, infos

    def state(self) -> Any:
        """What a central critic may see."""
        return self.aec.state()

    def render(self) -> Any:
        """A picture."""
        return self.aec.render()

    def close(self) -> None:
        """Free everything."""
        self.aec.close()

    def _bury(self) -> None:
        """Those whose game is over leave: PettingZoo asks for an empty move of each."""
        aec = self.aec
        while aec.agents and (aec.terminations[aec.agent_selection] or aec.truncations[aec.agent_selection]):
            aec.step(None)
        self.agents = list(aec.agents)
