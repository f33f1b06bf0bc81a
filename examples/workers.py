"""Another plan: two worker processes step environments and act, a third learns, while this one looks on.

python examples/workers.py
"""

from typing import Any

import weft

PLAN = "(env+act)*2 | learn"


def main(steps: int = 200_000, **settings: Any) -> weft.Run:
    ppo = weft.PPO(unroll=32, learning_rate=2e-3, discount=0.98)
    run = weft.train(ppo, "weft:CartPole-v1", plan=PLAN, envs=32, steps=steps, run="workers", **settings)
    print(f"return {run.summary['return_mean']:.1f}, kept in {run.folder}")
    return run


if __name__ == "__main__":  # workers import this file to find what it defines: without this line each would train, too
    main()
