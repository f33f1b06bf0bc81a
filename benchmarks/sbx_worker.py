"""sbx, Stable-Baselines3 in JAX, on Gymnasium's environments. Runs in the peer's environment, without Weft."""

from __future__ import annotations

from sbx import DQN, SAC
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.serve import Contender, serve


def dqn(*, every: int, steps: int, threads: int | None) -> Contender:
    """DQN in CartPole-v1, learning after ``steps`` steps, once for ``every`` of them."""
    model = DQN(
        "MlpPolicy",
        make_vec_env("CartPole-v1", 1),
        learning_rate=1e-3,
        buffer_size=100_000,
        learning_starts=1_000,
        batch_size=32,
        train_freq=steps,
        gradient_steps=steps // every,
        target_update_interval=800,
        exploration_fraction=1e-5,
        policy_kwargs={"net_arch": [64, 64]},
        seed=0,
        verbose=0,
    )
    return _off_policy(model, steps)


def sac(*, every: int, steps: int, threads: int | None) -> Contender:
    """SAC in Pendulum-v1, likewise."""
    model = SAC(
        "MlpPolicy",  # layers of 256 and 256
        make_vec_env("Pendulum-v1", 1),
        buffer_size=1_000_000,
        learning_starts=100,
        batch_size=256,
        train_freq=steps,
        gradient_steps=steps // every,
        seed=0,
        verbose=0,
    )
    return _off_policy(model, steps)


def _off_policy(model: DQN | SAC, steps: int) -> Contender:
    model.learn(model.learning_starts + 1, log_interval=None)  # so that a unit is learned from, from the first on

    def run(units: int) -> None:
        model.learn(units * steps, log_interval=None, reset_num_timesteps=False)

    return Contender(steps, run)


if __name__ == "__main__":
    serve({"dqn": dqn, "sac": sac})
