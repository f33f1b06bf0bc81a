"""RLlib's PPO and IMPALA, new API stack. Runs in the peer's environment, which knows nothing of Weft.

Both advance by ``algorithm.train()`` alone: between measurements nothing of them runs, but what IMPALA's environment
runners still had to finish. Each measurement begins with one call that is not counted, which uses that up.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import time
import warnings
from typing import Any

from benchmarks.serve import Window, serve

NETWORK = {"fcnet_hiddens": [64, 64], "fcnet_activation": "tanh", "vf_share_layers": False}
"""Two towers of 64 and 64, as everybody else has. Its own default is 256 and 256."""


def start() -> None:
    """Start Ray on this machine, once, or use that at RAY_ADDRESS; blocks for some seconds."""
    import ray
    import torch

    torch.set_num_threads(1)  # Ray's own workers have one as it is
    if not ray.is_initialized():
        os.environ["PYTHONPATH"] = os.getcwd()  # Ray's workers import this package too
        os.environ["RAY_DISABLE_IMPORT_WARNING"] = "1"
        if os.environ.get("RAY_ADDRESS"):  # started from another environment: its workers shall be of this one
            ours = {"py_executable": sys.executable, "env_vars": {"PYTHONPATH": os.getcwd()}}
            ray.init(runtime_env=ours, log_to_driver=False, logging_level=logging.ERROR)
            return
        # As many "CPUs" as all contenders claim: only one is ever busy. It is a number for Ray's scheduler, no more.
        ray.init(num_cpus=64, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)


def build(kind: str, environment: str, runners: int, envs: int, unroll: int, batch: int, **more: Any) -> Any:
    """The algorithm, ``runners`` × ``envs`` environments; ``more`` goes to ``config.training``, the rest is default.

    ``learners`` in ``more``: processes that learn, none for this one. ``seed``: of everything, 0 unless given.
    """
    warnings.simplefilter("ignore")
    start()
    from ray.rllib.algorithms.impala import IMPALAConfig
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.tune.registry import register_env

    from benchmarks import costly

    register_env(environment, lambda _: costly.make(environment))
    config = (PPOConfig() if kind == "ppo" else IMPALAConfig()).environment(environment)
    config = config.env_runners(num_env_runners=runners, num_envs_per_env_runner=envs)
    config = config.rl_module(model_config=DefaultModelConfig(**NETWORK)).debugging(
        seed=more.pop("seed", 0), log_level="ERROR"
    )
    config = config.reporting(
        min_time_s_per_iteration=0.0 if kind == "ppo" else 0.5, metrics_num_episodes_for_smoothing=100
    )
    if (learners := more.pop("learners", None)) is not None:
        config = config.learners(num_learners=learners)
    config = config.fault_tolerance(restart_failed_env_runners=True)
    config = config.training(train_batch_size_per_learner=batch, **more)
    if kind == "impala":
        config = config.env_runners(rollout_fragment_length=unroll)
    return config.build_algo()


def trained(kind: str, result: dict[str, Any]) -> int:
    """Samples that were trained on so far, each counted once.

    PPO trains on all that it samples, and its own count of trained steps counts each epoch. IMPALA's count is of
    what the learner took, with one row more for each piece of an episode: never more than was sampled.
    """
    sampled = int(result.get("env_runners", {}).get("num_env_steps_sampled_lifetime", 0))
    if kind == "ppo":
        return sampled
    learners = result.get("learners", {}).get("__all_modules__", {})
    return min(sampled, int(learners.get("num_env_steps_trained_lifetime", 0)))


def contender(
    *, algorithm: str, environment: str, runners: int, envs: int, unroll: int, batch: int, **more: Any
) -> Window:
    """``ppo`` or ``impala``, built and warm; measured over whole calls of ``train``."""
    algo = build(algorithm, environment, runners, envs, unroll, batch, **more)
    for _ in range(3):
        algo.train()

    def measure(seconds: float) -> float:
        before = trained(algorithm, algo.train())
        began = now = time.perf_counter()
        while now - began < seconds:
            after = trained(algorithm, algo.train())
            now = time.perf_counter()
        return (after - before) / (now - began)

    return Window(measure)


def solve(*, threshold: float, limit: float, **asked: Any) -> float:
    """Wall seconds to a mean return over the last 100 episodes; infinite where ``limit`` seconds were not enough.

    ``asked`` goes to :func:`build`. Counted from the first call of ``train``: imports and processes' start are over.
    """
    algo = build(**asked)
    returns: list[float] = []
    episodes = 0
    began = time.perf_counter()
    while time.perf_counter() - began <= limit:
        result = algo.train()
        runners = result.get("env_runners", {})
        # Its mean is over the episodes of this call alone, however few (NaN where there were none), so each counts
        # as the mean of its call. A callback would see only the last piece of an episode that batches cut.
        ended = int(runners.get("num_episodes_lifetime", 0)) - episodes
        episodes += ended
        mean = float(runners.get("episode_return_mean", math.nan))
        returns = [*returns, *([mean] * ended if math.isfinite(mean) else [])][-100:]
        if len(returns) == 100 and sum(returns) / 100 >= threshold:
            print(f"solved after {trained(asked['kind'], result):,} samples", file=sys.stderr)
            return time.perf_counter() - began
    return float("inf")


def train(**asked: Any) -> None:
    """Train until killed, a line for every call: the moment, and the samples trained on. For ``chaos_peers``."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    algo = build(**asked)
    while True:
        told = {"at": time.monotonic(), "trained": trained(asked["kind"], algo.train())}
        replies.write(json.dumps(told) + "\n")
        replies.flush()


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train(**json.loads(sys.argv[2]))
    elif sys.argv[1:2] == ["solve"]:
        print(solve(**json.loads(sys.argv[2])))
    else:
        serve({"train": contender})
