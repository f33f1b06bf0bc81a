"""What was asked of a population, resolved and refused, before anything starts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from weft.core.errors import ConfigError
from weft.core.kinds import is_number
from weft.graph.by_agent import ByAgent
from weft.graph.graph import schema_difference
from weft.plans.rules import has_host_code
from weft.populations.cohort import Cohort, OneByOne, OneProgram, values_of
from weft.populations.member import Member, with_values
from weft.populations.rules import Exploit, Halving, Rule, Together
from weft.populations.settings import PbtConfig, SweepConfig
from weft.populations.space import Choices, Space, Values, draws, grid, read_space
from weft.populations.suggest import Suggest, require_optuna
from weft.runtimes.compiled.members import MembersEngine, untraceable
from weft.runtimes.loop.counters import Counters
from weft.runtimes.prepare.config import Prepared, RunConfig, layout_of, prepare
from weft.runtimes.prepare.memory import fits_in_memory
from weft.runtimes.prepare.settings import MAX_SEED

ROUNDS = 20
"""Of PBT, unless said otherwise."""


class Planned(NamedTuple):
    """A population that can be trained; nothing has started."""

    prepared: Prepared  # without any member's values
    space: Space
    rule: Rule
    cohort: Cohort
    asked: dict[str, Any]  # what its config.json records besides a run's


def plan_population(config: RunConfig, asked: SweepConfig | PbtConfig, vary: Mapping[str, Any]) -> Planned:
    """Resolve and check everything. Raises ConfigError, and whatever ``prepare`` raises."""
    if config.seeds:
        raise ConfigError(
            f"seeds={config.seeds}: members already have seeds of their own, from seed on. Drop --seeds; for the same "
            "values with several seeds, train again with another --seed."
        )
    prepared = prepare(config)
    if prepared.in_workers or layout_of(prepared).replicas > 1:
        raise ConfigError(
            f"the plan {str(prepared.plan)!r} runs one member in several workers or on several devices, and a "
            "population has many members in one process. Use the plan 'inline'."
        )
    if len(prepared.series) > 1:
        raise ConfigError(
            f"environment {prepared.source.name!r} has several policies here ({', '.join(prepared.series)}), and a "
            "population ranks its members by one return: what one team gains another may lose. Vary fields where one "
            "policy acts, or train runs of your own: examples/optuna_search.py chooses by any figure of them."
        )
    space = read_space(vary, prepared.written)
    if twice := [name for name in space if name in config.fields]:
        raise ConfigError(f"{twice[0]} is both set, to {config.fields[twice[0]]}, and varied: drop one of the two")
    if config.seed > MAX_SEED - asked.members:
        raise ConfigError(f"seed must be between 0 and {MAX_SEED - asked.members}, got {config.seed}")
    together = is_pure(prepared) and not asked.apart
    _check_ends(config, prepared, space, sizes_may_differ=isinstance(asked, SweepConfig) and not together)
    rule, told, values = _rule(asked, space, prepared, config.seed)
    members = [_member(config, prepared, k, own, together) for k, own in enumerate(values)]
    if isinstance(rule, Suggest):  # the others wait
        members += [_member(config, prepared, k, {}, together) for k in range(len(values), rule.members)]
    cohort: Cohort
    if together:
        fits_in_memory(prepared.graph, prepared.plan, prepared.machine, len(values))
        cohort = OneProgram(members, _engine(prepared, space, members[: len(values)]))
    else:
        cohort = OneByOne(members)
    told |= {"members": len(members), "vary": {name: str(one) for name, one in space.items()}, "together": together}
    return Planned(prepared, space, rule, cohort, told)


def is_pure(prepared: Prepared) -> bool:
    """Whether members can be rows of one program: everything is compiled, with one policy, of one agent or a group."""
    compiled = prepared.source.pure is not None and not has_host_code(prepared.graph)
    as_written = isinstance(prepared.algorithm, (type(prepared.written), ByAgent))
    return compiled and len(prepared.series) == 1 and as_written


def _values(space: Space, asked: SweepConfig | PbtConfig, seed: int) -> list[Values]:
    if isinstance(asked, SweepConfig) and asked.how == "grid":
        return grid(space, asked.members)
    return draws(space, asked.members, np.random.default_rng([seed, 0]))


def _rule(
    asked: SweepConfig | PbtConfig, space: Space, prepared: Prepared, seed: int
) -> tuple[Rule, dict[str, Any], list[Values]]:
    """How it is trained, what ``config.json`` says of that, and the values of the members that begin."""
    if isinstance(asked, SweepConfig) and asked.how == "optuna":
        require_optuna()
        batch = min(asked.members, asked.batch or math.ceil(asked.members / 4))
        suggest = Suggest(space, asked.members, batch, prepared.steps, seed)
        return suggest, {"how": asked.how, "batch": batch}, suggest.first()
    values = _values(space, asked, seed)
    if isinstance(asked, PbtConfig):
        every = asked.every or math.ceil(prepared.steps / ROUNDS)
        if every >= prepared.steps:
            raise ConfigError(
                f"every={every:,}: a member makes {prepared.steps:,} env steps in all, so nothing would ever be "
                "copied. Choose fewer, or more --steps."
            )
        return Exploit(space, every, seed), {"how": "pbt", "every": every}, values
    if asked.batch is not None:
        raise ConfigError(
            f"batch={asked.batch}: with how={asked.how!r} all are trained at once. Drop it, or use how='optuna'."
        )
    return (Halving(len(values)) if asked.how == "halving" else Together()), {"how": asked.how}, values


def _member(config: RunConfig, prepared: Prepared, index: int, values: Values, together: bool) -> Member:
    """A member with its values, or one that waits for them."""
    again = None
    if together:
        own = replace(with_values(prepared, values), seed=prepared.seed + index)
    else:  # its values may set its sizes

        def again(values: Values) -> Prepared:
            fields = {**config.fields, **values}
            return prepare(replace(config, fields=fields, seed=config.seed + index, steps=prepared.steps))

        own = again(values)
    counters = Counters(own.series, warm_up=own.warm_up)
    return Member(index, values, own, counters, waiting=not values, prepare=again)


def _check_ends(config: RunConfig, prepared: Prepared, space: Space, *, sizes_may_differ: bool) -> None:
    """Refuse values that the algorithm refuses; where members copy each other or are one program, other sizes too."""
    for name, one in space.items():
        for value in one.values if isinstance(one, Choices) else (one.low, one.high):
            value = round(value) if not isinstance(one, Choices) and one.whole else value
            changed = replace(config, fields={**config.fields, name: value}, steps=prepared.steps)
            try:
                other = prepare(changed)
            except ConfigError as error:
                raise ConfigError(f"vary {name}={one}: with {value} {error}") from None
            if sizes_may_differ:
                continue
            sizes = [(p.envs, p.steps_per_learn, p.learn_steps) for p in (prepared, other)]
            fragments = [p.graph.fragments for p in (prepared, other)]
            shapes = [{f.name: f.outputs for f in found} for found in fragments]
            if sizes[0] != sizes[1] or shapes[0].keys() != shapes[1].keys():
                raise _cannot_vary(prepared, {name: "it changes how large a batch is, or how often is learned"})
            learned = [{n: [port.schema for port in ports] for n, ports in found.items()} for found in shapes]
            if schema_difference(learned[0], learned[1]):
                raise _cannot_vary(prepared, {name: "it sets a shape"})


def _engine(prepared: Prepared, space: Space, members: Sequence[Member]) -> MembersEngine:
    """The program of all members, traced; refused where a field cannot be an argument of it."""
    env, device = prepared.source.pure, layout_of(prepared).devices[0]
    assert env is not None
    values = values_of(members)
    examples = {name: values[name] for name in space}
    raised: Exception | None = None
    if all(is_number(value) for found in examples.values() for value in found):
        try:
            engine = MembersEngine(prepared.algorithm, env, device, prepared.envs, prepared.seed, values)
            if engine.used() == set(values):
                return engine
        except Exception as error:  # whatever the algorithm's code makes of an unknown value: which field, below
            raised = error
    reasons = untraceable(prepared.algorithm, env, device, prepared.envs, examples)
    if not reasons and raised is not None:
        raise raised
    raise _cannot_vary(prepared, reasons)


def _cannot_vary(prepared: Prepared, reasons: Mapping[str, str]) -> ConfigError:
    """The error for fields that cannot be varied in one program; names those that can, found by tracing each."""
    algorithm = prepared.algorithm
    listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    known = ""
    if is_pure(prepared):
        env, device = prepared.source.pure, layout_of(prepared).devices[0]
        assert env is not None
        numbers = {f.name: getattr(prepared.written, f.name) for f in dataclasses.fields(prepared.written)}
        numbers = {name: [v, v] for name, v in numbers.items() if isinstance(v, float) and name not in reasons}
        cannot = untraceable(algorithm, env, device, prepared.envs, numbers)
        fields = ", ".join(name for name in numbers if name not in cannot)
        known = f" Fields of {type(prepared.written).__name__} that can be varied in this run: {fields}."
    return ConfigError(
        f"cannot be varied among members that are one program, or that copy each other: {listed}.{known} A sweep with "
        "--apart trains members one after another, and varies any field."
    )


def title_of(prepared: Prepared, told: Mapping[str, Any]) -> str:
    """A population in a few words."""
    how = {"pbt": "PBT"}.get(told["how"], f"sweep, {told['how']}")
    return f"{how} · {prepared.name} · {prepared.source.name} · {told['members']} members · seed {prepared.seed}"
