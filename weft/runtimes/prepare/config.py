"""What a run is: everything that decides its result, resolved before anything starts."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.core.errors import ConfigError, UnknownName
from weft.core.identity import identity
from weft.core.kinds import is_whole, wrong_kind
from weft.core.specs import Spec
from weft.envs.protocol import EnvLike, EnvSource
from weft.graph.algorithm import Algorithm
from weft.graph.graph import Graph
from weft.plans import Machine, Plan, catalogue, executable, needs_workers, resolve
from weft.runtimes.prepare.kinds import check_kinds

if TYPE_CHECKING:
    from weft.runtimes.compiled.replicas import Layout


CHANNELS = ("shm", "tcp")

DEFAULT_LAG = 1
"""Versions that params may be behind, unless told: learn and act overlap, and on-policy algorithms hardly notice."""

MAX_SEED = 2**31 - 1
"""Seeds are int32 on the device; those of a run go from ``seed`` to ``seed + seeds``."""


@dataclass(frozen=True)
class RunConfig:
    """What the user asked for; None means: as tuned for the environment."""

    algorithm: Algorithm | str
    environment: EnvLike
    fields: Mapping[str, Any] = field(default_factory=dict)  # the algorithm's fields to change, where it is a name
    plan: str | Plan = "inline"
    steps: int | None = None
    seed: int = 0
    seeds: int = 0  # how many to train side by side, from ``seed`` on; 0: one, without a seed axis
    envs: int | None = None
    vector: str = "auto"
    env_options: Mapping[str, Any] = field(default_factory=dict)
    lockstep: bool = False  # each learn call eats exactly the unrolls of the current params, whatever the plan
    max_lag: int | None = None  # versions that params may be behind otherwise; None: DEFAULT_LAG

    def __post_init__(self) -> None:
        check_kinds(self)


@dataclass(frozen=True)
class Settings:
    """How a run is carried out: nothing here changes its result."""

    root: Path = Path("runs")
    run: str | None = None  # the folder's name; None: from algorithm, environment and seed
    quiet: bool = False
    tensorboard: bool = True
    wandb: str | None = None  # the W&B project
    checkpoint_seconds: float = 30.0
    keep_checkpoints: int = 3
    ring: int = 2  # slices of an env worker's environments, one stepping while others wait for their actions
    channel: str = "shm"  # what streams between workers are made of: shm or tcp
    hang_seconds: float = 60.0  # how long a worker may be stuck before it is killed and replaced

    def __post_init__(self) -> None:
        check_kinds(self)
        if not self.checkpoint_seconds >= 0:  # nor NaN; with 0, whenever there is something to save
            raise ConfigError(f"checkpoint_seconds must be at least 0, got {self.checkpoint_seconds:g}")
        if self.ring < 1:
            raise ConfigError(f"ring must be at least 1 slice, got {self.ring}")
        if self.channel not in CHANNELS:
            raise UnknownName("channel", self.channel, CHANNELS)
        if not self.hang_seconds > 0:
            raise ConfigError(f"hang_seconds must be above 0, got {self.hang_seconds:g}")

    def without_effect(self, prepared: Prepared, max_lag: int | None) -> list[str]:
        """What was asked for, here or as ``max_lag``, and does nothing in this run: a line for each, to warn with."""
        where = "" if prepared.in_workers else f"the plan {str(prepared.plan)!r} runs in one process"
        asked = {name: getattr(self, name) for name in ("ring", "channel", "hang_seconds")} if where else {}
        lines = [f"{name}={value} has no effect: {where}" for name, value in asked.items() if value != _DEFAULTS[name]]
        if max_lag and prepared.lockstep:
            lines.insert(0, f"max_lag={max_lag} has no effect: {where or 'in lockstep params are never behind'}")
        return lines


_DEFAULTS = {f.name: f.default for f in dataclasses.fields(Settings)}


@dataclass(frozen=True)
class Prepared:
    """A run with every default filled: what it will do, checked, before it has done anything."""

    name: str  # the algorithm's
    algorithm: Algorithm  # bound, for one replica
    source: EnvSource
    graph: Graph
    plan: Plan
    steps: int
    envs: int  # in the whole run
    seed: int
    seeds: int
    vector: str
    env_options: Mapping[str, Any]
    machine: Machine = field(default_factory=Machine)
    lockstep: bool = True
    max_lag: int = 0

    @property
    def in_workers(self) -> bool:
        """Whether the plan runs in worker processes."""
        return needs_workers(self.plan, self.machine)

    @property
    def warm_up(self) -> int:
        """Learn steps at the start whose speed does not count: compilation, and what workers did meanwhile."""
        return self.max_lag + 3 if self.in_workers else 1

    @property
    def learn_steps(self) -> int:
        """Learn calls in the whole run."""
        return math.ceil(self.steps / self.steps_per_learn)

    @property
    def steps_per_learn(self) -> int:
        """Environment steps that one learn call of all replicas eats; for each seed.

        Where gradients are applied as they come, a learn step is one of them: a grad replica's share.
        """
        return self.envs * self.algorithm.unroll // self.updates_per_batch

    @property
    def updates_per_batch(self) -> int:
        """Learn steps in which all environments' unrolls are used once: more than one where gradients come singly."""
        return _updates_per_batch(self.plan, self.lockstep)

    def config(self) -> dict[str, Any]:
        """What ``config.json`` records, and what a resumed run is compared with.

        ``code`` tells which functions and objects were given, for that comparison alone: nothing is made from it.
        """
        plain = self.algorithm.config()
        objects = [f.name for f in dataclasses.fields(self.algorithm) if f.name not in plain]
        code: dict[str, Any] = {name: identity(getattr(self.algorithm, name)) for name in objects}
        return {
            "algorithm": self.name,
            "algo": plain,
            "code": {"algo": code, "environment": self.source.code},
            "environment": self.source.name,
            "env_options": dict(self.env_options),
            "vector": self.vector,
            "plan": str(self.plan),
            "lockstep": self.lockstep,
            "max_lag": self.max_lag,
            "seed": self.seed,
            "seeds": self.seeds,
            "envs": self.envs,
            "steps": self.steps,
        }


def prepare(config: RunConfig, *, must_run: bool = True) -> Prepared:
    """Open the environment, fill the defaults, and check everything against everything.

    With ``must_run`` a plan that this version's runtime cannot execute is refused; without, it is only validated.
    """
    from weft.algorithms.registry import algorithm_name
    from weft.envs.registry import open_environment

    if _in_groups(config.plan):
        # Workers are to have the GPU's memory. JAX takes most of it for this process when it first looks at devices.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    source = open_environment(config.environment, vector=config.vector, **config.env_options)
    algorithm, tuned = _algorithm(config, source)
    envs, steps = int(config.envs or tuned[0]), int(config.steps or tuned[1])
    for what, value in (("envs", config.envs), ("steps", config.steps), ("seeds", config.seeds or None)):
        if value is not None and value < 1:
            raise ConfigError(f"{what} must be at least 1, got {value}")
    if not 0 <= config.seed <= MAX_SEED - config.seeds:
        raise ConfigError(f"seed must be between 0 and {MAX_SEED - config.seeds}, got {config.seed}")
    machine = Machine.here()
    learn_steps = math.ceil(steps / (envs * max(algorithm.unroll, 1)))
    whole = algorithm.bind(Spec(source.spec, envs, learn_steps)).graph()
    plan = resolve(
        config.plan,
        whole,
        machine,
        envs=envs,
        pure_env=source.pure is not None,
        environment=source.name,
        pure_alternative=_pure_alternative(source.name),
    )
    if must_run:
        executable(plan, whole, machine, envs=envs, splits=algorithm.splits)
    replicas = plan.group_of("grad" if "grad" in plan.fragments else "learn").replicas or 1
    if config.seeds and (replicas > 1 or len(plan.groups) > 1):
        copies = f"{replicas} replicas of one seed" if replicas > 1 else "workers for one seed"
        raise ConfigError(
            f"seeds={config.seeds} trains several seeds side by side on one device, and the plan {str(plan)!r} has "
            f"{copies}. Use one of the two: drop --seeds, or use the plan 'inline'."
        )
    if config.max_lag is not None and config.max_lag < 0:
        raise ConfigError(f"max_lag must be at least 0 versions, got {config.max_lag}")
    # One group is always in lockstep: it learns from what it has just done.
    lockstep = config.lockstep or len(plan.groups) == 1
    learn_steps *= _updates_per_batch(plan, lockstep)
    bound = algorithm.bind(Spec(source.spec, envs // replicas, learn_steps))
    return Prepared(
        name=algorithm_name(algorithm),
        algorithm=bound,
        source=source,
        graph=bound.graph(),
        plan=plan,
        steps=steps,
        envs=envs,
        seed=int(config.seed),
        seeds=int(config.seeds),
        vector=config.vector,
        env_options=config.env_options,
        machine=machine,
        lockstep=lockstep,
        max_lag=0 if lockstep else DEFAULT_LAG if config.max_lag is None else int(config.max_lag),
    )


def layout_of(prepared: Prepared) -> Layout:
    """The devices of a plan's only group."""
    import jax

    from weft.runtimes.compiled.replicas import Layout

    group = prepared.plan.groups[0]
    devices = jax.local_devices(backend=group.device.kind) if group.device else jax.local_devices()
    if group.device is not None and group.device.indices is not None:
        devices = devices[group.device.indices.start : group.device.indices.stop]
    return Layout(tuple(devices[: group.replicas or 1]), prepared.seeds)


def _in_groups(plan: str | Plan) -> bool:
    """Whether a plan, not yet resolved, has several groups: then workers compute, and this process does not."""
    if isinstance(plan, Plan):
        return len(plan.groups) > 1
    expressions = {name: expression for name, expression, *_ in catalogue()}
    return "|" in (expressions.get(plan) or plan)


def _updates_per_batch(plan: Plan, lockstep: bool) -> int:
    return plan.group_of("grad").replicas or 1 if "apply" in plan.fragments and not lockstep else 1


def _algorithm(config: RunConfig, source: EnvSource) -> tuple[Algorithm, tuple[int, int]]:
    """The algorithm with its fields, and the environments and steps to use where none were asked for.

    An algorithm given as an object is used as it is: its author has chosen every field.
    """
    from weft.algorithms.registry import algorithm_name, load_algorithm
    from weft.algorithms.tuned import tuned

    if isinstance(config.algorithm, str):
        algorithm = load_algorithm(config.algorithm)()
        settings = tuned(algorithm_name(algorithm), source.name, source.spec)
        algorithm = algorithm.with_fields(**{**settings.fields, **config.fields})
    else:
        algorithm = config.algorithm
        if not isinstance(algorithm, Algorithm):
            raise ConfigError(f"algorithm must be a name or a weft.Algorithm, got {algorithm!r}")
        algorithm = algorithm.with_fields(**config.fields)
        settings = tuned(algorithm_name(algorithm), source.name, source.spec)
    if not is_whole(algorithm.unroll):
        raise wrong_kind(f"{type(algorithm).__name__}.unroll", "a whole number", algorithm.unroll)
    algorithm = algorithm.with_fields(unroll=int(algorithm.unroll))  # what is counted with it goes into JSON
    return algorithm, (settings.envs, settings.steps)


def _pure_alternative(name: str) -> str | None:
    from weft.envs.builtin import BUILTIN

    return f"weft:{name}" if name in BUILTIN else None
