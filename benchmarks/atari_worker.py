"""Pong with PyTorch: Stable-Baselines3, and a bare PPO loop. Runs in the peer's environment, which knows no Weft."""

from __future__ import annotations

import ale_py
import gymnasium as gym
import numpy as np
import torch
from torch import nn

from benchmarks.serve import Contender, serve

gym.register_envs(ale_py)
RATE, DISCOUNT, TRACE, CLIP, ENTROPY, VALUE, NORM = 2.5e-4, 0.99, 0.95, 0.1, 0.01, 0.5, 0.5


def sb3(*, envs: int, unroll: int, epochs: int, minibatches: int) -> Contender:
    """As its documentation runs Atari: ``make_atari_env``, four frames stacked, ``CnnPolicy`` (Nature's network)."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    vector = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=envs, seed=0), n_stack=4)
    model = PPO(
        "CnnPolicy",
        vector,
        n_steps=unroll,
        batch_size=envs * unroll // minibatches,
        n_epochs=epochs,
        learning_rate=RATE,
        gamma=DISCOUNT,
        gae_lambda=TRACE,
        clip_range=CLIP,
        ent_coef=ENTROPY,
        vf_coef=VALUE,
        max_grad_norm=NORM,
        device="cpu",
        verbose=0,
    )

    def run(iterations: int) -> None:
        model.learn(iterations * envs * unroll, log_interval=None, reset_num_timesteps=False)

    return Contender(envs * unroll, run)


class Policy(nn.Module):
    """Nature's network, with two heads."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(3136, 512),
            nn.ReLU(),
        )
        self.policy, self.value = nn.Linear(512, actions), nn.Linear(512, 1)

    def forward(self, seen: torch.Tensor) -> tuple[torch.distributions.Categorical, torch.Tensor]:
        """For ``[N, 4, 84, 84]`` bytes."""
        hidden = self.body(seen.float() / 255.0)
        return torch.distributions.Categorical(logits=self.policy(hidden)), self.value(hidden)[:, 0]


def bare(*, envs: int, unroll: int, epochs: int, minibatches: int) -> Contender:
    """PPO in one loop without a framework, over ALE's own vector form."""
    games = gym.make_vec("ALE/Pong-v5", envs, vectorization_mode="vector_entry_point")
    net = Policy(int(games.single_action_space.n))
    optimizer = torch.optim.Adam(net.parameters(), RATE, eps=1e-5)
    held = {"seen": games.reset(seed=0)[0]}
    size = envs * unroll

    def iteration() -> None:
        seen = np.empty((unroll, envs, 4, 84, 84), np.uint8)
        actions, old, values = (torch.empty(unroll, envs) for _ in range(3))
        rewards, ended = (torch.empty(unroll, envs) for _ in range(2))
        for t in range(unroll):
            seen[t] = held["seen"]
            with torch.no_grad():
                policy, values[t] = net(torch.from_numpy(seen[t]))
                action = policy.sample()
            actions[t], old[t] = action, policy.log_prob(action)
            held["seen"], reward, terminated, truncated, _ = games.step(action.numpy())
            rewards[t], ended[t] = torch.from_numpy(np.sign(reward)), torch.from_numpy(terminated | truncated)
        with torch.no_grad():
            following = net(torch.from_numpy(np.asarray(held["seen"])))[1]
        advantages, trace = torch.empty(unroll, envs), torch.zeros(envs)
        for t in reversed(range(unroll)):
            delta = rewards[t] + DISCOUNT * following * (1 - ended[t]) - values[t]
            trace = delta + DISCOUNT * TRACE * (1 - ended[t]) * trace
            advantages[t], following = trace, values[t]
        targets = (advantages + values).reshape(-1)
        flat = torch.from_numpy(seen).reshape(size, 4, 84, 84)
        actions, old, advantages = (x.reshape(-1) for x in (actions, old, advantages))
        for _ in range(epochs):
            for rows in torch.randperm(size).split(size // minibatches):
                policy, value = net(flat[rows])
                ratio = (policy.log_prob(actions[rows]) - old[rows]).exp()
                gain = (advantages[rows] - advantages[rows].mean()) / (advantages[rows].std() + 1e-8)
                surrogate = torch.min(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain).mean()
                error = 0.5 * ((value - targets[rows]) ** 2).mean()
                loss = VALUE * error - surrogate - ENTROPY * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), NORM)
                optimizer.step()

    def run(iterations: int) -> None:
        for _ in range(iterations):
            iteration()

    return Contender(size, run)


if __name__ == "__main__":
    serve({"sb3": sb3, "bare": bare})
