"""Several policies in one environment: an algorithm for each group of agents, found by patterns of their names.

    weft.Policies({"hider*": weft.PPO(), "seeker*": weft.PPO(learning_rate=1e-4)})

Each has an act and a learner of its own, ``act.hider`` and ``learn.hider``; agents of one policy share its params.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft.algorithms.registry import algorithm_name, load_algorithm
from weft.algorithms.tuned import Tuned, tuned
from weft.core.errors import ConfigError
from weft.core.specs import EnvSpec
from weft.envs.members import assigned, policy_name
from weft.graph.algorithm import Algorithm
from weft.graph.graph import Graph
from weft.graph.loops import several_policies


@dataclass(frozen=True, init=False)
class Policies(Algorithm):
    """``of`` has an algorithm for each pattern: an object, or in words, ``"ppo"``, ``"ppo:learning_rate=1e-4"``.

    Words take the settings that are tuned for the environment. ``unroll`` is everybody's; unless given, that of the
    first algorithm, and objects must then agree in it.
    """

    of: Mapping[str, Algorithm | str] | None = None

    def __init__(self, of: Mapping[str, Algorithm | str] | None = None, unroll: int = 0) -> None:
        given = dict(of or {})
        lengths = {a.unroll for a in given.values() if isinstance(a, Algorithm)}
        if not unroll and len(lengths) > 1:
            raise ConfigError(
                f"Policies: algorithms beside one environment need unrolls of the same length, got {sorted(lengths)}. "
                "Give them the same, or Policies(..., unroll=...)."
            )
        object.__setattr__(self, "unroll", unroll or next(iter(lengths), 0))
        object.__setattr__(self, "of", given)

    def resolved(self, environment: str, spec: EnvSpec, **fields: Any) -> tuple[Policies, Tuned]:
        """With an object for every word, and the settings of a run where none were asked for: the first policy's.

        ``fields`` go to every algorithm.
        """
        groups, given = assigned(spec, self.of or {}), dict(self.of or {})
        settings: list[Tuned] = []
        found: dict[str, Algorithm] = {}
        for pattern, algorithm in given.items():
            seen = groups[policy_name(pattern)][0].spec
            made = algorithm if isinstance(algorithm, Algorithm) else _in_words(algorithm, environment, seen)
            settings.append(tuned(algorithm_name(made), environment, seen))
            found[pattern] = made.with_fields(**fields)
        unroll = self.unroll or next(iter(found.values())).unroll
        alike = {pattern: algorithm.with_fields(unroll=unroll) for pattern, algorithm in found.items()}
        return Policies(alike, unroll), settings[0]

    def to_act(self) -> Policies:
        """With each algorithm as it acts."""
        algorithms = {pattern: a.to_act() for pattern, a in (self.of or {}).items() if isinstance(a, Algorithm)}
        return Policies(algorithms, self.unroll)

    def graph(self) -> Graph:
        """One env with a team for each policy, and an act and a learn for each."""
        found = {policy_name(p): a for p, a in (self.of or {}).items() if isinstance(a, Algorithm)}
        return several_policies(found, self.spec)


def by_team(algorithm: Algorithm | str, spec: EnvSpec) -> Policies | None:
    """A policy for each team of an environment, all by one algorithm; None where it has a graph of its own."""
    kind = load_algorithm(algorithm) if isinstance(algorithm, str) else type(algorithm)
    if not spec.teams or kind.graph is not Algorithm.graph:
        return None
    return Policies({"*": algorithm} if kind.one_group else dict.fromkeys(spec.teams, algorithm))


def _in_words(words: str, environment: str, spec: EnvSpec) -> Algorithm:
    """``ppo`` or ``ppo:learning_rate=1e-4,epochs=2``, with the settings tuned for the environment."""
    name, _, rest = words.partition(":")
    if "=" not in rest:  # a class of the user's own, package.module:Class
        name, rest = words, ""
    algorithm = load_algorithm(name)()
    fields: dict[str, Any] = {}
    for part in filter(None, re.split(r",(?![^\[]*\])", rest)):
        field, equals, text = part.partition("=")
        if not equals:
            raise ConfigError(
                f"policy {words!r}: {part!r} is no field and value. Expected ALGO:FIELD=VALUE,FIELD=VALUE"
            )
        fields[field.strip().replace("-", "_")] = _value(text)
    settings = tuned(algorithm_name(algorithm), environment, spec)
    return algorithm.with_fields(**{**settings.fields, **fields})


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return tuple(value) if isinstance(value, list) else value
