"""PPO for agents with a central critic (Yu et al., "The surprising effectiveness of PPO in cooperative multi-agent
games", arXiv 2103.01955).

    act     each agent sees what it sees; all share one policy
    learn   PPO's, on all agents; the critic sees the state of all besides, in training alone

Without the central critic it is IPPO, which is ``PPO`` in an environment with agents. Agents that shall not share
params get a policy each (``weft.Policies``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from weft.algorithms.ppo import PPO
from weft.core.errors import ConfigError


@dataclass(frozen=True)
class MAPPO(PPO):
    """PPO's hyper-parameters; values are normalised unless told otherwise, as the paper found to matter."""

    central_critic: ClassVar[bool] = True

    normalise_values: bool = True  # the network's values are of targets normalised by running mean and deviation

    def check(self) -> None:
        """Refuse an environment with one agent."""
        seen = self.spec.environment.observation
        if not (isinstance(seen, dict) and set(seen) == {"own", "state"}):
            raise ConfigError(
                f"MAPPO has a critic that sees the state of all agents, and environment "
                f"{self.spec.environment.name!r} has one agent. Use ppo."
            )
        super().check()
