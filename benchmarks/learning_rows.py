"""What the learning report trains: algorithm by environment, beside what is published at the same number of steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One algorithm in one environment, with the settings that ``weft train`` takes by itself."""

    algorithm: str
    environment: str
    steps: int = 0  # of a seed; 0: as tuned
    published: str = ""  # with where, and after how many steps

    @property
    def name(self) -> str:
        """As it is selected."""
        return f"{self.algorithm} {self.environment}"

    @property
    def compiled(self) -> bool:
        """Whether the environment is in JAX: then all seeds are one program."""
        return self.environment.startswith(("weft:", "gymnax:"))


ROWS = (
    Row("ppo", "CartPole-v1", 500_000, "490 ± 6 (CleanRL, 500,000)"),
    Row("dqn", "CartPole-v1", 500_000, "498 ± 2 (CleanRL, 500,000)"),
    Row("pqn", "CartPole-v1"),
    Row("ppo", "Acrobot-v1", 500_000, "-86 ± 1 (CleanRL, 500,000)"),
    Row("sac", "Pendulum-v1"),
    Row("td3", "Pendulum-v1"),
    Row("ppo", "HalfCheetah-v5", 1_000_000, "1,443 ± 46 (CleanRL, HalfCheetah-v4, 1,000,000)"),
    Row("sac", "HalfCheetah-v5", 1_000_000, "9,635 ± 1,424 (CleanRL, HalfCheetah-v4, 1,000,000)"),
    Row("td3", "HalfCheetah-v5", 1_000_000, "9,346 ± 771 (CleanRL, HalfCheetah-v4, 1,000,000)"),
    Row("ppo", "ALE/Pong-v5", 10_000_000, "20.4 (CleanRL, 10,000,000)"),
    Row("ppo", "weft:CartPole-v1"),
    Row("a2c", "weft:CartPole-v1"),
    Row("impala", "weft:CartPole-v1"),
    Row("dqn", "weft:CartPole-v1"),
    Row("pqn", "weft:CartPole-v1"),
    Row("ppo", "weft:Pendulum-v1"),
    Row("sac", "weft:Pendulum-v1"),
    Row("td3", "weft:Pendulum-v1"),
    Row("ppo", "weft:Memory-v0"),
    Row("r2d2", "weft:Memory-v0"),
    Row("ppo", "gymnax:Breakout-MinAtar", 10_000_000, "28 (gymnax's own PPO)"),
    Row("pqn", "gymnax:Breakout-MinAtar", 10_000_000),
    Row("dqn", "gymnax:Breakout-MinAtar", 5_000_000),
    Row("ppo", "gymnax:SpaceInvaders-MinAtar", 10_000_000, "131 (gymnax's own PPO)"),
    Row("pqn", "gymnax:SpaceInvaders-MinAtar", 10_000_000),
    Row("dqn", "gymnax:SpaceInvaders-MinAtar", 5_000_000),
)
