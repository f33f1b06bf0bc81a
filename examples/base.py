"""PPO balances a pole. The other examples change one thing of this one each.

python examples/base.py
"""

from typing import Any

import weft


def main(steps: int = 200_000, **settings: Any) -> weft.Run:
    ppo = weft.PPO(unroll=32, learning_rate=2e-3, discount=0.98)
    run = weft.train(ppo, "weft:CartPole-v1", envs=32, steps=steps, run="base", **settings)
    print(f"return {run.summary['return_mean']:.1f}, kept in {run.folder}")
    return run


if __name__ == "__main__":
    main()
