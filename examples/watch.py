"""A watch fragment of your own: it looks at the newest params every so many env steps, and training never waits for it.

This one tells how far the weights have moved. Evaluation (--eval-every) is such a fragment too.

python examples/watch.py
weft show examples.watch:WatchedPPO weft:CartPole-v1 --plan "(env+act)*2 | learn | drift"
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import weft

PLAN = "(env+act)*2 | learn | drift"


@dataclass(frozen=True)
class Drift:
    """The code of the fragment: how often it looks, and what looks, made once where it runs."""

    every: int  # env steps

    def watcher(self, context: weft.WatchContext) -> Any:
        before: dict[str, np.ndarray] = {}  # the weights at the last look; lost with the process

        def look(seen: weft.Seen) -> weft.Looked:
            (params,) = seen.params.values()  # those of learn
            now = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])
            moved = np.linalg.norm(now - before.get("weights", now))
            before["weights"] = now
            return weft.Looked({"drift/norm": float(np.linalg.norm(now)), "drift/moved": float(moved)})

        return look


@dataclass(frozen=True)
class WatchedPPO(weft.PPO):
    unroll: int = 32
    learning_rate: float = 2e-3
    discount: float = 0.98
    look_every: int = 16_384

    def graph(self) -> weft.Graph:
        return super().graph().watch("drift", Drift(self.look_every), reads="learn")


def main(steps: int = 200_000, plan: str = PLAN, **settings: Any) -> weft.Run:
    run = weft.train(WatchedPPO(), "weft:CartPole-v1", plan=plan, envs=32, steps=steps, run="watch", **settings)
    print(f"return {run.summary['return_mean']:.1f}, kept in {run.folder}")
    return run


if __name__ == "__main__":
    main()
