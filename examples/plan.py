"""Another plan: the same training on one device, and as two replicas on two, whose gradients are averaged.

python examples/plan.py
"""

import os
from typing import Any

# Two devices on any machine: must be said before JAX is loaded. With two GPUs, leave this out and write @gpu below.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

import weft

PLANS = {"one-device": "(env+act+learn)@cpu", "two-devices": "(env+act+learn)*2@cpu"}


def main(steps: int = 200_000, **settings: Any) -> list[weft.Run]:
    ppo = weft.PPO(unroll=32, learning_rate=2e-3, discount=0.98)
    runs = []
    for name, plan in PLANS.items():
        run = weft.train(ppo, "weft:CartPole-v1", plan=plan, envs=32, steps=steps, run=name, **settings)
        print(f"{run.summary['plan']}: return {run.summary['return_mean']:.1f}, kept in {run.folder}")
        runs.append(run)
    return runs


if __name__ == "__main__":
    main()
