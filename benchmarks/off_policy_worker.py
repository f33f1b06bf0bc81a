"""Weft's DQN and SAC with the sizes of SB3's defaults, on one environment: the engine as ``weft train`` has it."""

from __future__ import annotations

import atexit
from typing import Any

from benchmarks.serve import Contender, serve
from weft.runtimes.prepare.jax_setup import set_up

ENOUGH_STEPS = 10**8  # only schedules look at a run's length


def dqn(*, every: int, steps: int) -> Contender:
    """DQN in CartPole-v1; a unit is ``steps`` steps, and then a learn call for each ``every`` of them."""
    from weft.algorithms.dqn import DQN

    sizes = {"hidden": (64, 64), "batch": 32, "capacity": 100_000, "learning_begins": 1_000, "huber": 1.0}
    algorithm = DQN(unroll=steps, samples_per_insert=32 / every, double=False, exploration=1e-5, **sizes)
    return _contender(algorithm, "CartPole-v1", steps)


def sac(*, every: int, steps: int) -> Contender:
    """SAC in Pendulum-v1, likewise."""
    from weft.algorithms.sac import SAC

    sizes = {"hidden": (256, 256), "batch": 256, "capacity": 1_000_000, "learning_begins": 100}
    return _contender(SAC(unroll=steps, samples_per_insert=256 / every, **sizes), "Pendulum-v1", steps)


def _contender(algorithm: Any, environment: str, steps: int) -> Contender:
    from weft.runtimes.loop.train import make_engine
    from weft.runtimes.prepare.config import RunConfig, prepare

    asked = RunConfig(algorithm, environment, steps=ENOUGH_STEPS, envs=1, vector="each")
    engine = make_engine(prepare(asked))
    atexit.register(engine.close)
    engine.start()
    calls = max(1, round(algorithm.samples_per_insert * steps / algorithm.batch))

    def run(units: int) -> None:
        made = 0
        while made < units * calls:  # it comes back while the replay fills
            report = engine.advance(units * calls - made)()
            assert report.finite
            made += report.learn_steps

    return Contender(steps, run)


if __name__ == "__main__":
    set_up(cache=False)
    serve({"dqn": dqn, "sac": sac})
