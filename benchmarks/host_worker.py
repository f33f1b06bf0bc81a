"""Weft on Gymnasium's CartPole-v1, made one by one: the hosted engine as ``weft train`` has it, and stepping alone."""

from __future__ import annotations

from benchmarks import stepping
from benchmarks.serve import Contender, serve
from weft.runtimes.jax_setup import set_up

ENOUGH_STEPS = 10**9  # only schedules look at a run's length, and there are none here


def ppo(*, envs: int, unroll: int, epochs: int, minibatches: int) -> Contender:
    """PPO with the plan ``inline``; a unit is one unroll and the learning from it."""
    from weft.algorithms.ppo import PPO
    from weft.runtimes.config import RunConfig, prepare
    from weft.runtimes.local import make_engine

    algorithm = PPO(unroll=unroll, epochs=epochs, minibatches=minibatches)
    engine = make_engine(
        prepare(RunConfig(algorithm, stepping.ENVIRONMENT, steps=ENOUGH_STEPS, envs=envs, vector="each"))
    )
    engine.start()

    def run(iterations: int) -> None:
        report = engine.advance(iterations)()
        assert report.finite

    return Contender(envs * unroll, run)


if __name__ == "__main__":
    set_up(cache=False)
    serve({"ppo": ppo, "loop": stepping.loop, "native": stepping.native, "vectoriser": stepping.vectoriser})
