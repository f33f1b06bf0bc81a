"""The cells of the matrix: every algorithm by every named plan by every kind of environment and channel.

In lockstep a cell must learn, from the same seed, what one process learns with the same number of learners. To add a
row, add to ALGORITHMS or ENVIRONMENTS; a plan is added by naming it in ``weft.plans``, and here with its counts.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
from recorded import folder_of
from toys import SMALL, farthest, train_state

import weft
from weft.plans import Machine, catalogue
from weft.plans.rules import learner_replicas
from weft.runtimes.cluster.cluster import Cluster
from weft.runtimes.cluster.opening import opened
from weft.runtimes.loop.engines import make_engine
from weft.runtimes.prepare.config import Prepared, RunConfig, Settings, prepare
from weft.telemetry.episodes import EpisodeWindow

# One minibatch of everything and no normalisation across it: then replicas change nothing but the order of sums.
LITTLE = {"unroll": 4, "hidden": (8,)}
STORED = {"capacity": 256, "batch": 32, "samples_per_insert": 1.0, "learning_begins": 1}  # one learn call an unroll
ALGORITHMS: dict[str, Any] = {
    "ppo": weft.PPO(**SMALL),
    "ppo recurrent": weft.PPO(**SMALL, recurrent="gru"),
    "impala": weft.IMPALA(**LITTLE),
    "a2c": weft.A2C(**LITTLE),
    "dqn": weft.DQN(**LITTLE, **STORED, prioritised=True, dueling=True, n_step=3),
    "sac": weft.SAC(**LITTLE, **STORED, n_step=2),
    "r2d2": weft.R2D2(**LITTLE, capacity=256, batch=8, samples_per_insert=1.0, learning_begins=1, recurrent_size=8),
    "pqn": weft.PQN(**LITTLE, minibatches=1),
    "td3": weft.TD3(**LITTLE, **STORED, normalise_observations=True),
    "ippo": weft.PPO(**SMALL),
    "mappo": weft.MAPPO(**SMALL),
    "vdn": weft.VDN(**LITTLE, **STORED),
    "qmix": weft.QMIX(**LITTLE, **STORED, prioritised=True, n_step=2, mixing=4, hyper_hidden=(8,)),
    "bc": weft.BC(**LITTLE, batch=32, updates=1, data=folder_of("CartPole-v1")),
    "iql": weft.IQL(**LITTLE, batch=32, updates=1, data=folder_of("CartPole-v1"), normalise_observations=True),
}
CONTINUOUS = ("sac", "td3")
OFFLINE = ("bc", "iql")
GROUPS = ("ippo", "mappo", "vdn", "qmix")
STORES = ("dqn", "r2d2", *CONTINUOUS, *OFFLINE, "vdn", "qmix")
"""The algorithms that have a replay, or a data set in its place."""
ENVIRONMENTS = {"jax": "weft:CartPole-v1", "gymnasium": "CartPole-v1"}
"""Where actions must be continuous it is Pendulum."""
SPREAD = {"jax": "weft:Spread-v0", "gymnasium": "pettingzoo:mpe/simple_spread_v3"}
"""For groups of agents: in JAX, and PettingZoo's on the host."""
CHANNELS = ("shm", "tcp")
PLANS = {name: runs_now for name, _, _, runs_now in catalogue()}
COUNTED = {
    "inline": "env+act+learn",
    "replicated": "(env+act+learn)*2",
    "actors": "(env+act)*2 | learn",
    "seed": "env*2 | act+learn",
    "srl": "env*2 | act*2 | learn*2",
    "environments": "env*2 | (act+learn)*2",
    "central": "(env+act+grad)*2 | apply",
    "apex": "(env+act)*2 | replay | learn",
}
"""The named plans that run, with counts that do not depend on the machine."""
ENVS, LEARN_STEPS, SEED = 8, 20, 3
TOLERANCE = 1e-5
"""Other groups act and learn in batches of other shapes, whose sums XLA takes in another order; and it compiles a
program in parts, and what else is in a part decides which products and sums it joins. That moves a float32 by a few
units in its last place. Each Adam step moves a weight by up to 0.01, and a thousandth of that is let pass."""


class Learned(NamedTuple):
    """Params after LEARN_STEPS, what the engine knew of its samples (None in one process), and the episodes it told."""

    params: Any
    samples: Any
    episodes: tuple[float, ...]  # how many, their returns and their lengths in all
    return_mean: float  # of the last few, as a run tells it: it depends on the order in which episodes are told


def prepare_cell(algorithm: str, plan: str, environment: str, cluster: Machine | None = None) -> Prepared:
    """Resolve a cell: raises PlanError where it cannot run. ``plan`` is a name or an expression."""
    expression = counted(algorithm, plan)
    steps = ENVS * ALGORITHMS[algorithm].unroll * LEARN_STEPS
    config = RunConfig(
        ALGORITHMS[algorithm],
        plan=expression,
        envs=ENVS,
        steps=steps,
        seed=SEED,
        lockstep=True,
        environment=environment_of(algorithm, environment),
    )
    return prepare(config, cluster=cluster)


def environment_of(algorithm: str, environment: str) -> Any:
    """The environment of a cell, one whose actions the algorithm takes."""
    name = ENVIRONMENTS[environment]
    if algorithm in GROUPS:
        return SPREAD[environment]
    return name.replace("CartPole", "Pendulum") if algorithm in CONTINUOUS else name


def counted(algorithm: str, plan: str) -> str:
    """A plan with its counts; a replay goes beside learn, where the plan has no place of its own for it.

    Where the algorithm has no replay and the plan wants one, its name, by which it is refused.
    """
    expression = COUNTED.get(plan, plan)
    if "replay" in expression:
        return expression if algorithm in STORES else plan
    if algorithm not in STORES:
        return expression
    with_replay = {"learn*2": "(replay+learn)*2", "learn": "replay+learn"}
    part = next((part for part in with_replay if part in expression), None)
    return plan if part is None or plan not in COUNTED else expression.replace(part, with_replay[part])


def learners(prepared: Prepared) -> int:
    """How many learners share a batch."""
    plan = prepared.plan
    return learner_replicas(plan, prepared.graph)


@contextmanager
def one_device() -> Iterator[None]:
    """As on a machine whose JAX has one device: replicas become processes."""
    here = Machine.__dict__["here"]
    found = dataclasses.replace(Machine.here(), cpu_devices=1)
    Machine.here = classmethod(lambda cls: found)  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Machine.here = here  # type: ignore[method-assign]


def learned(algorithm: str, plan: str, environment: str, **settings: Any) -> Learned:
    """Train a cell for LEARN_STEPS, in worker processes if it has more than one group or replica."""
    with one_device():
        prepared = prepare_cell(algorithm, plan, environment)
    return _train(prepared, **settings)


def learned_over_hosts(algorithm: str, plan: str, environment: str, on: str) -> Learned:
    """The same with its workers on several hosts."""
    with opened(on) as cluster:
        return _train(prepare_cell(algorithm, plan, environment, cluster.machine), cluster, on=on)


def reference(algorithm: str, environment: str, replicas: int) -> Any:
    """The params that one process learns, on one device or on several."""
    return in_one_process(algorithm, environment, replicas).params


@cache
def in_one_process(algorithm: str, environment: str, replicas: int) -> Learned:
    """What one process learns, on one device or on several."""
    plan = "inline" if replicas == 1 else "replicated"
    assert replicas in (1, 2)
    prepared = prepare_cell(algorithm, plan, environment)
    assert not prepared.in_workers
    return _train(prepared)


def distance(algorithm: str, plan: str, environment: str, channel: str = "shm") -> float:
    """How far a cell's params are from the reference's."""
    params = learned(algorithm, plan, environment, channel=channel).params
    return farthest(params, reference(algorithm, environment, learners(prepare_cell(algorithm, plan, environment))))


def _train(prepared: Prepared, cluster: Cluster | None = None, **settings: Any) -> Learned:
    with tempfile.TemporaryDirectory() as logs:
        engine = make_engine(prepared, Settings(**settings), Path(logs), cluster)
        try:
            engine.start()
            report = engine.advance(LEARN_STEPS)()
            assert report.finite
            assert report.learn_steps == LEARN_STEPS
            episodes = tuple(map(sum, zip(*report.episodes[0], strict=True)))
            window = EpisodeWindow(size=5)
            for episode in report.episodes[0]:
                window.add(*episode)
            return Learned(jax.device_get(train_state(engine).params), report.samples, episodes, window.return_mean)
        finally:
            engine.close()
