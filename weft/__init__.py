"""Weft: an algorithm is written once, as pure functions; one line, the plan, says where its fragments run.

    import weft
    run = weft.train(weft.PPO(learning_rate=1e-3), "CartPole-v1", steps=200_000)
    run.summary, run.params, run.policy(observation)

Names are loaded when first used, so that ``import weft`` is quick and environment workers never load JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from weft.algorithms.a2c import A2C
    from weft.algorithms.bc import BC
    from weft.algorithms.by_rule import Random, Scripted
    from weft.algorithms.dqn import DQN
    from weft.algorithms.impala import IMPALA
    from weft.algorithms.iql import IQL
    from weft.algorithms.mappo import MAPPO
    from weft.algorithms.policies import Policies
    from weft.algorithms.ppo import PPO
    from weft.algorithms.pqn import PQN
    from weft.algorithms.qmix import QMIX
    from weft.algorithms.r2d2 import R2D2
    from weft.algorithms.sac import SAC
    from weft.algorithms.self_play import SelfPlay
    from weft.algorithms.td3 import TD3
    from weft.algorithms.vdn import VDN
    from weft.api import evaluate, load, make, record, show, tag, train
    from weft.core.errors import ConfigError, WeftError
    from weft.core.replicas import mean_over_replicas
    from weft.core.specs import Box, Discrete, EnvSpec, FrameStack, MultiBinary, MultiDiscrete, Spec
    from weft.core.types import Acted, Priorities, Timestep, TrainState, Transitions, Unroll
    from weft.data.dataset import Dataset
    from weft.envs.protocol import JaxEnv, Transition
    from weft.graph.algorithm import Algorithm
    from weft.graph.fragment import Fragment, Port
    from weft.graph.frozen import Frozen
    from weft.graph.graph import Graph
    from weft.graph.loops import off_policy, several_policies
    from weft.graph.role import Role, register_role
    from weft.graph.stream import Stream
    from weft.nets.network import Network, NetworkOutput
    from weft.plans.plan import Plan
    from weft.populations.result import Population
    from weft.populations.sweep import pbt, sweep
    from weft.replay.fixed import FixedReplay
    from weft.replay.prioritised import PrioritisedReplay
    from weft.replay.uniform import UniformReplay
    from weft.runtimes.policies.run import Run
    from weft.runtimes.roles.role import MessageRole
    from weft.runtimes.stage import Ran, Stage
    from weft.runtimes.watcher import Looked, Seen, WatchContext
    from weft.telemetry.stopping import no_progress, reached

_HOME = {
    "A2C": "weft.algorithms.a2c",
    "BC": "weft.algorithms.bc",
    "DQN": "weft.algorithms.dqn",
    "IMPALA": "weft.algorithms.impala",
    "IQL": "weft.algorithms.iql",
    "MAPPO": "weft.algorithms.mappo",
    "Frozen": "weft.graph.frozen",
    "Random": "weft.algorithms.by_rule",
    "SelfPlay": "weft.algorithms.self_play",
    "Scripted": "weft.algorithms.by_rule",
    "Policies": "weft.algorithms.policies",
    "PPO": "weft.algorithms.ppo",
    "PQN": "weft.algorithms.pqn",
    "QMIX": "weft.algorithms.qmix",
    "R2D2": "weft.algorithms.r2d2",
    "SAC": "weft.algorithms.sac",
    "TD3": "weft.algorithms.td3",
    "VDN": "weft.algorithms.vdn",
    "train": "weft.api",
    "evaluate": "weft.api",
    "load": "weft.api",
    "make": "weft.api",
    "record": "weft.api",
    "show": "weft.api",
    "ConfigError": "weft.core.errors",
    "WeftError": "weft.core.errors",
    "mean_over_replicas": "weft.core.replicas",
    "Box": "weft.core.specs",
    "Discrete": "weft.core.specs",
    "EnvSpec": "weft.core.specs",
    "FrameStack": "weft.core.specs",
    "MultiBinary": "weft.core.specs",
    "MultiDiscrete": "weft.core.specs",
    "Spec": "weft.core.specs",
    "Acted": "weft.core.types",
    "Priorities": "weft.core.types",
    "Timestep": "weft.core.types",
    "TrainState": "weft.core.types",
    "Transitions": "weft.core.types",
    "Unroll": "weft.core.types",
    "Dataset": "weft.data.dataset",
    "JaxEnv": "weft.envs.protocol",
    "Transition": "weft.envs.protocol",
    "Algorithm": "weft.graph.algorithm",
    "Graph": "weft.graph.graph",
    "Network": "weft.nets.network",
    "NetworkOutput": "weft.nets.network",
    "Plan": "weft.plans.plan",
    "Run": "weft.runtimes.policies.run",
    "Fragment": "weft.graph.fragment",
    "Port": "weft.graph.fragment",
    "Stream": "weft.graph.stream",
    "Role": "weft.graph.role",
    "register_role": "weft.graph.role",
    "off_policy": "weft.graph.loops",
    "several_policies": "weft.graph.loops",
    "Population": "weft.populations.result",
    "pbt": "weft.populations.sweep",
    "sweep": "weft.populations.sweep",
    "FixedReplay": "weft.replay.fixed",
    "PrioritisedReplay": "weft.replay.prioritised",
    "UniformReplay": "weft.replay.uniform",
    "MessageRole": "weft.runtimes.roles.role",
    "Looked": "weft.runtimes.watcher",
    "Seen": "weft.runtimes.watcher",
    "WatchContext": "weft.runtimes.watcher",
    "tag": "weft.api",
    "no_progress": "weft.telemetry.stopping",
    "reached": "weft.telemetry.stopping",
    "Stage": "weft.runtimes.stage",
    "Ran": "weft.runtimes.stage",
}

__all__ = [
    "A2C",
    "BC",
    "DQN",
    "IMPALA",
    "IQL",
    "MAPPO",
    "PPO",
    "PQN",
    "QMIX",
    "R2D2",
    "SAC",
    "TD3",
    "VDN",
    "Acted",
    "Algorithm",
    "Box",
    "ConfigError",
    "Dataset",
    "Discrete",
    "EnvSpec",
    "FixedReplay",
    "Fragment",
    "FrameStack",
    "Frozen",
    "Graph",
    "JaxEnv",
    "Looked",
    "MessageRole",
    "MultiBinary",
    "MultiDiscrete",
    "Network",
    "NetworkOutput",
    "Plan",
    "Policies",
    "Population",
    "Port",
    "Priorities",
    "PrioritisedReplay",
    "Ran",
    "Random",
    "Role",
    "Run",
    "Scripted",
    "Seen",
    "SelfPlay",
    "Spec",
    "Stage",
    "Stream",
    "Timestep",
    "TrainState",
    "Transition",
    "Transitions",
    "UniformReplay",
    "Unroll",
    "WatchContext",
    "WeftError",
    "evaluate",
    "load",
    "make",
    "mean_over_replicas",
    "no_progress",
    "off_policy",
    "pbt",
    "reached",
    "record",
    "register_role",
    "several_policies",
    "show",
    "sweep",
    "tag",
    "train",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
