"""Stable-Baselines3's PPO on Gymnasium's CartPole-v1. Runs in the peer's environment, which knows nothing of Weft."""

from __future__ import annotations

import torch
from stable_baselines3 import PPO
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


if __name__ == "__main__":
    serve({"ppo": ppo})
