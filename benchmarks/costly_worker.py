"""Stepping alone, of any environment that :mod:`benchmarks.costly` makes, in one process: the limit of one worker."""

from __future__ import annotations

import itertools

import numpy as np

from benchmarks import costly
from benchmarks.serve import Contender, serve
from benchmarks.stepping import DRAWN


def loop(*, environment: str, envs: int) -> Contender:
    """``envs`` environments, one after the other, actions drawn beforehand. A unit is one step of each."""
    made = [costly.make(environment) for _ in range(envs)]
    for seed, env in enumerate(made):
        env.reset(seed=seed)
    batches = itertools.cycle([list(batch) for batch in np.random.default_rng(0).integers(0, 2, (DRAWN, envs))])

    def run(steps: int) -> None:
        for _ in range(steps):
            for env, action in zip(made, next(batches), strict=True):
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()

    return Contender(envs, run)


if __name__ == "__main__":
    serve({"loop": loop})
