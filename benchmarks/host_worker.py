"""Weft on Gymnasium's CartPole-v1, made one by one: the engines as ``weft train`` has them, and stepping alone."""

from __future__ import annotations

import atexit
import tempfile
from pathlib import Path

from benchmarks import stepping
from benchmarks.serve import Contender, serve
from weft.runtimes.prepare.jax_setup import set_up

ENOUGH_STEPS = 10**9  # only schedules look at a run's length, and there are none here


def ppo(*, envs: int, unroll: int, epochs: int, minibatches: int, plan: str = "inline", lag: int = 0) -> Contender:
    """PPO; a unit is one unroll and the learning from it. Without ``lag`` strictly on-policy whatever the plan."""
    from weft.algorithms.ppo import PPO
    from weft.runtimes.loop.train import make_engine
    from weft.runtimes.prepare.config import RunConfig, prepare

    algorithm = PPO(unroll=unroll, epochs=epochs, minibatches=minibatches)
    sizes = {"steps": ENOUGH_STEPS, "envs": envs, "vector": "each"}
    behind = {"max_lag": lag} if lag else {"lockstep": True}
    asked = RunConfig(algorithm, stepping.ENVIRONMENT, plan=plan, **behind, **sizes)
    logs = tempfile.TemporaryDirectory()  # of workers
    engine = make_engine(prepare(asked), logs=Path(logs.name))
    atexit.register(logs.cleanup)
    atexit.register(engine.close)
    engine.start()

    def run(iterations: int) -> None:
        report = engine.advance(iterations)()
        assert report.finite

    return Contender(envs * unroll, run)


if __name__ == "__main__":
    set_up(cache=False)
    serve({"ppo": ppo, "loop": stepping.loop, "native": stepping.native, "vectoriser": stepping.vectoriser})
