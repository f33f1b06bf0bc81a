"""Stable-Baselines3 on Gymnasium's environments. Runs in the peer's environment, which knows nothing of Weft."""

from __future__ import annotations

import torch
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.serve import Contender, serve

DEFAULT_THREADS = torch.get_num_threads()


def ppo(*, envs: int, unroll: int, epochs: int, minibatches: int, threads: int | None) -> Contender:
    """The hyper-parameters of Weft's PPO, and environments as SB3's documentation makes them: ``make_vec_env``.

    Its Monitor keeps the episode statistics that Weft keeps too. Leaving it out made no difference that could be seen.
    """
    vector = make_vec_env("CartPole-v1", envs)
    model = PPO(
        "MlpPolicy",  # two separate towers of 64 and 64, tanh
        vector,
        n_steps=unroll,
        batch_size=envs * unroll // minibatches,
        n_epochs=epochs,
        learning_rate=2.5e-4,
        gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.2,
        ent_coef=0.01,
        vf_coef=0.5,
        max_grad_norm=0.5,
        seed=0,
        device="cpu",
        verbose=0,
    )

    def run(iterations: int) -> None:
        torch.set_num_threads(threads or DEFAULT_THREADS)  # one process serves both settings
        model.learn(iterations * envs * unroll, log_interval=None, reset_num_timesteps=False)

    return Contender(envs * unroll, run)


def dqn(*, every: int, steps: int, threads: int | None) -> Contender:
    """DQN in CartPole-v1 with its own defaults, learning after ``steps`` steps, once for ``every`` of them."""
    model = DQN(
        "MlpPolicy",  # layers of 64 and 64
        make_vec_env("CartPole-v1", 1),
        learning_rate=1e-3,
        buffer_size=100_000,
        learning_starts=1_000,
        batch_size=32,
        train_freq=steps,
        gradient_steps=steps // every,
        target_update_interval=800,
        exploration_fraction=1e-5,
        seed=0,
        device="cpu",
        verbose=0,
    )
    return _off_policy(model, steps, threads)


def sac(*, every: int, steps: int, threads: int | None) -> Contender:
    """SAC in Pendulum-v1 with its own defaults, likewise."""
    model = SAC(
        "MlpPolicy",  # layers of 256 and 256
        make_vec_env("Pendulum-v1", 1),
        buffer_size=1_000_000,
        learning_starts=100,
        batch_size=256,
        train_freq=steps,
        gradient_steps=steps // every,
        seed=0,
        device="cpu",
        verbose=0,
    )
    return _off_policy(model, steps, threads)


def _off_policy(model: DQN | SAC, steps: int, threads: int | None) -> Contender:
    model.learn(model.learning_starts + 1, log_interval=None)  # so that a unit is learned from, from the first on

    def run(units: int) -> None:
        torch.set_num_threads(threads or DEFAULT_THREADS)
        model.learn(units * steps, log_interval=None, reset_num_timesteps=False)

    return Contender(steps, run)


if __name__ == "__main__":
    serve({"ppo": ppo, "dqn": dqn, "sac": sac})
