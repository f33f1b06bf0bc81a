"""Algorithms by name, each imported when it is first needed."""

from __future__ import annotations

import importlib
from typing import NamedTuple

from weft.core.errors import ConfigError, UnknownName
from weft.graph.algorithm import Algorithm


class Entry(NamedTuple):
    """An algorithm's module and class, and one line about it."""

    module: str
    name: str
    summary: str


ALGORITHMS: dict[str, Entry] = {
    "ppo": Entry(
        "weft.algorithms.ppo", "PPO", "Proximal policy optimisation: discrete or continuous, feed-forward or recurrent"
    ),
    "mappo": Entry("weft.algorithms.mappo", "MAPPO", "PPO for agents, with a critic that sees the state of all"),
    "impala": Entry(
        "weft.algorithms.impala", "IMPALA", "V-trace actor-critic: one update a batch, right for stale data"
    ),
    "a2c": Entry("weft.algorithms.a2c", "A2C", "Advantage actor-critic; run asynchronously it is A3C"),
    "dqn": Entry(
        "weft.algorithms.dqn", "DQN", "Deep Q-network: double, dueling, n-step, prioritised, quantiles, C51; discrete"
    ),
    "sac": Entry("weft.algorithms.sac", "SAC", "Soft actor-critic: twin critics, automatic temperature; continuous"),
    "td3": Entry("weft.algorithms.td3", "TD3", "Twin delayed policy gradients, and DDPG by its fields; continuous"),
    "r2d2": Entry("weft.algorithms.r2d2", "R2D2", "DQN with memory, learning from sequences; discrete"),
    "pqn": Entry("weft.algorithms.pqn", "PQN", "Parallelised Q-network: no replay, no target network; discrete"),
    "selfplay": Entry("weft.algorithms.self_play", "SelfPlay", "PPO against its own past versions: two equal sides"),
    "vdn": Entry("weft.algorithms.vdn", "VDN", "DQN for a group of agents: their values added up; discrete"),
    "qmix": Entry(
        "weft.algorithms.qmix", "QMIX", "DQN for a group of agents: their values mixed by a network; discrete"
    ),
    "random": Entry("weft.algorithms.by_rule", "Random", "Actions at random: what others are compared with"),
    "policies": Entry("weft.algorithms.policies", "Policies", "Several policies, by --policy PATTERN=ALGO for each"),
    "bc": Entry("weft.algorithms.bc", "BC", "Behaviour cloning from a data set: any actions"),
    "iql": Entry("weft.algorithms.iql", "IQL", "Implicit Q-learning from a data set, offline: any actions"),
}


def load_algorithm(name: str) -> type[Algorithm]:
    """An algorithm's class, by its name here or as ``package.module:Class``."""
    if ":" in name:
        module_name, _, attribute = name.partition(":")
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not module_name.startswith(error.name):
                raise  # the module exists but one of its imports does not: its author needs the traceback
            raise ConfigError(
                f"algorithm {name!r}: there is no module {module_name!r} on the import path. Expected "
                "package.module:Class; run from the folder that holds it, or install it."
            ) from None
        found = getattr(module, attribute, None)
        if found is None:
            classes = [n for n, c in vars(module).items() if isinstance(c, type) and issubclass(c, Algorithm)]
            raise UnknownName(f"algorithm in module {module_name}", attribute, classes)
    else:
        entry = ALGORITHMS.get(name.lower())
        if entry is None:
            hint = "`weft algorithms` lists them; your own is package.module:Class. The environment comes second."
            raise UnknownName("algorithm", name, ALGORITHMS, hint)
        found = getattr(importlib.import_module(entry.module), entry.name)
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise ConfigError(f"algorithm {name!r} is {found!r}; expected a subclass of weft.Algorithm")
    return found


def algorithm_name(algorithm: Algorithm) -> str:
    """An algorithm's name in runs and folders: its registry name, or else ``module:Class``."""
    cls = type(algorithm)
    for name, entry in ALGORITHMS.items():
        if (cls.__module__, cls.__name__) == (entry.module, entry.name):
            return name
    return f"{cls.__module__}:{cls.__name__}"
