"""A run, prepared: its environment opened, every default filled, everything checked before anything starts."""

from __future__ import annotations

import dataclasses
import math
import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from weft.core.errors import ConfigError
from weft.core.identity import identity
from weft.core.kinds import is_whole, wrong_kind
from weft.core.reached import is_users
from weft.core.setting import declared
from weft.core.specs import Spec
from weft.envs.dials import Dials, dialled
from weft.envs.guards import Guards, guarded
from weft.envs.protocol import EnvSource
from weft.envs.regroup import regrouped
from weft.graph.algorithm import Algorithm
from weft.graph.by_agent import for_agents
from weft.graph.graph import Graph
from weft.graph.store import calls_for_each_unroll, check_stores, unrolls_before_learning
from weft.plans import Machine, Plan, catalogue, executable, needs_workers, resolve
from weft.plans.fill import learners
from weft.plans.fit import unwatched
from weft.plans.rules import gradient_replicas, has_host_code, learner_replicas, one_state
from weft.runtimes.prepare.memory import fits_in_memory
from weft.runtimes.prepare.rules import Rule, first_options, name_of, rule_of
from weft.runtimes.prepare.settings import MAX_SEED, RunConfig, Settings
from weft.runtimes.synchrony import Synchrony, synchrony
from weft.runtimes.watcher import Pace

if TYPE_CHECKING:
    from weft.runtimes.compiled.replicas import Layout

__all__ = ["Prepared", "RunConfig", "Settings", "layout_of", "prepare", "without_effect"]

MAX_LEARN_STEPS = 2**31 - 1
"""Learn steps are counted in 32 bits on the device."""


@dataclass(frozen=True, kw_only=True)
class Prepared(RunConfig):
    """A run's config with every default filled: what it will do, checked, before it has done anything.

    Every setting of ``RunConfig`` is here too; those that are declared again have become more definite.
    """

    algorithm: Algorithm  # bound, for one replica
    written: Algorithm  # as it was written, with every field filled: for one agent, where there are several
    plan: Plan
    steps: int
    envs: int  # in the whole run
    name: str  # the algorithm's
    source: EnvSource
    graph: Graph
    machine: Machine = field(default_factory=Machine)

    @property
    def in_workers(self) -> bool:
        """Whether the plan runs in worker processes."""
        return needs_workers(self.plan, self.graph, self.machine)

    @property
    def synchrony(self) -> Synchrony:
        """When lanes may begin, what makes a batch, what is too old."""
        return synchrony(self.lockstep, self.max_lag)

    @cached_property
    def rule(self) -> Rule | None:
        """What sets options of the environment by what evaluation found."""
        return rule_of(self.curriculum)

    @cached_property
    def dials(self) -> Dials | None:
        """The options that it sets, at the values that the run begins with."""
        return None if self.rule is None else Dials.of(first_options(self.rule))

    @cached_property
    def played(self) -> EnvSource:
        """The environment as this process plays it: with dials, where a curriculum sets options of it."""
        return dialled(self.source, self.dials)

    @property
    def series(self) -> tuple[str, ...]:
        """What episodes are told apart by: the seeds, or the policies; a single one where there is but one."""
        acts = [f.name for f in self.graph.fragments if f.role.every_step and not f.role.makes_steps]
        if len(acts) > 1:
            return tuple(name.partition(".")[2] or name for name in acts)
        return tuple(map(str, range(max(self.seeds, 1))))

    @property
    def warm_up(self) -> int:
        """Learn steps at the start whose speed does not count: compilation, and what workers did meanwhile."""
        return self.max_lag + 3 if self.in_workers else 1

    @property
    def learn_steps(self) -> int:
        """Learn calls in the whole run."""
        passes = math.ceil(self.steps / self.steps_per_learn)
        return max(0, passes - unrolls_before_learning(self.graph)) * self.calls_for_each_unroll

    @cached_property
    def calls_for_each_unroll(self) -> int:
        """How often learn runs for each unroll of all environments: once, or as often as a store says."""
        return calls_for_each_unroll(self.graph)

    @property
    def env_steps(self) -> int:
        """Environment steps in the whole run, of all seeds: ``steps``, in whole unrolls."""
        return math.ceil(self.steps / self.steps_per_learn) * self.steps_per_learn * max(self.seeds, 1)

    @property
    def steps_per_learn(self) -> int:
        """Environment steps that one learn call of all replicas eats; behind a store, its calls for one unroll.

        For each seed. Where gradients are applied as they come, a learn step is one of them: a grad replica's share.
        """
        return self.envs * self.algorithm.unroll // self.updates_per_batch

    @property
    def pace(self) -> Pace:
        """How versions follow from environment steps."""
        before = unrolls_before_learning(self.graph)
        return Pace(self.steps_per_learn, self.calls_for_each_unroll, before, self.learn_steps)

    @property
    def updates_per_batch(self) -> int:
        """Learn steps in which all environments' unrolls are used once: more than one where gradients come singly."""
        return _updates_per_batch(self.plan, self.graph, self.lockstep)

    def config(self) -> dict[str, Any]:
        """What ``config.json`` records, and what a resumed run is compared with.

        ``code`` tells which functions and objects were given, for that comparison alone: nothing is made from it.
        """
        written, plain = self.written, self.written.config()
        objects = [f.name for f in dataclasses.fields(written) if f.name not in plain]
        code: dict[str, Any] = {name: identity(getattr(written, name)) for name in objects}
        own = {"algorithm": identity(type(written))} if is_users(type(written)) else {}
        return {name: getattr(self, name) for name in declared(RunConfig)} | {
            "algorithm": self.name,
            "algo": plain,
            "code": {"algo": code, "environment": self.source.code, **own},
            "environment": self.source.name,
            "env_options": dict(self.env_options),
            "plan": str(unwatched(self.plan, self.graph)),  # what looks on changes nothing
            "curriculum": None if self.curriculum is None else name_of(self.curriculum),
        }


def prepare(
    config: RunConfig,
    *,
    must_run: bool = True,
    watch: tuple[tuple[str, Any], ...] = (),
    cluster: Machine | None = None,
) -> Prepared:
    """Open the environment, fill the defaults, and check everything against everything.

    ``watch`` is what is set beside the algorithm's graph to look on: names and codes. ``cluster``: all hosts of one, in
    place of this machine.

    With ``must_run`` a plan that this version's runtime cannot execute is refused; without, it is only validated.
    """
    from weft.algorithms.policies import Policies
    from weft.algorithms.registry import algorithm_name

    if _in_groups(config.plan):
        # Workers are to have the GPU's memory. JAX takes most of it for this process when it first looks at devices.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    source, vector = _opened(config)
    written, tuned = _algorithm(config, source)
    if isinstance(written, Policies):
        source = regrouped(source, written.of or {})
    algorithm = for_agents(written, source.spec)
    envs, steps = config.envs or tuned[0], config.steps or tuned[1]
    if config.seed > MAX_SEED - config.seeds:
        raise ConfigError(f"seed must be between 0 and {MAX_SEED - config.seeds}, got {config.seed}")
    machine = cluster or Machine.here()
    _check_nodes(config.plan, cluster is not None)
    learn_steps = unrolls = math.ceil(steps / (envs * max(algorithm.unroll, 1)))
    each = unrolls * max(algorithm.unroll, 1)  # steps of one environment
    if learn_steps > MAX_LEARN_STEPS:
        raise ConfigError(
            f"{steps:,} steps are {learn_steps:,} learn steps of {envs} environments x {algorithm.unroll} steps; "
            f"at most {MAX_LEARN_STEPS:,} can be counted. Choose fewer steps, more environments or a longer unroll."
        )
    whole = algorithm.bind(Spec(source.spec, envs, learn_steps, each, watch)).whole_graph()
    check_stores(whole, type(written).__name__)
    learn_steps = (unrolls - unrolls_before_learning(whole)) * calls_for_each_unroll(whole)
    if learn_steps < 1:
        raise ConfigError(
            f"{steps:,} steps are {unrolls:,} unrolls of {envs} environments x {algorithm.unroll} steps, and the "
            f"algorithm begins to learn only with unroll {unrolls_before_learning(whole) + 1:,}. Choose more steps, or "
            "let it begin earlier."
        )
    plan = resolve(
        config.plan,
        whole,
        machine,
        envs=envs,
        pure_env=source.pure is not None,
        environment=source.name,
        pure_alternative=_pure_alternative(source.name),
    )
    whole.check()
    if must_run:
        executable(plan, whole, machine, envs=envs)
        fits_in_memory(whole, plan, machine, config.seeds)
    replicas = learner_replicas(plan, whole)
    if config.seeds and (len(learners(plan, whole)) > 1 or source.spec.teams or has_host_code(whole)):
        raise ConfigError(
            f"seeds={config.seeds} trains several seeds side by side in one program, and this graph has several "
            "policies or host code between act and learn. Drop --seeds, and train each seed by itself."
        )
    training = unwatched(plan, whole)
    if config.seeds and (replicas > 1 or len(plan.groups) > 1):
        copies = f"{replicas} replicas of one seed" if replicas > 1 else "workers for one seed"
        raise ConfigError(
            f"seeds={config.seeds} trains several seeds side by side on one device, and the plan {str(plan)!r} has "
            f"{copies}. Use one of the two: drop --seeds, or use the plan 'inline'."
        )
    # One group is always in lockstep: it learns from what it has just done.
    lockstep = config.lockstep or len(training.groups) == 1
    if lockstep and must_run:
        one_state(plan, whole)
    learn_steps *= _updates_per_batch(plan, whole, lockstep)
    bound = algorithm.bind(Spec(source.spec, envs // replicas, learn_steps, each, watch, replicas))
    graph = bound.whole_graph()
    for fragment in graph.fragments:
        if isinstance(fragment.code, Algorithm) and fragment.code is not bound:
            fragment.code.check()
            if fragment.code.unroll != bound.unroll:
                raise ConfigError(
                    f"{fragment.name!r} has unrolls of {fragment.code.unroll} steps, and {type(bound).__name__}.unroll "
                    f"is {bound.unroll}: give all policies of a run the same."
                )
    if config.curriculum is not None:
        _check_curriculum(plan, graph, machine, lockstep, watch)
    asked = {name: getattr(config, name) for name in declared(RunConfig)}
    filled = {"algorithm": bound, "plan": plan, "steps": steps, "envs": envs, "lockstep": lockstep, "vector": vector}
    prepared = Prepared(
        **asked | filled | {"max_lag": 0 if lockstep else config.max_lag},
        name=algorithm_name(written),
        written=written,
        source=source,
        graph=graph,
        machine=machine,
    )
    _ = prepared.played  # refuses an environment that takes no options
    return prepared


def _check_curriculum(plan: Plan, graph: Graph, machine: Machine, lockstep: bool, watch: tuple[Any, ...]) -> None:
    if not watch:
        raise ConfigError("a curriculum looks at what evaluation in the run found: set eval_every (--eval-every N) too")
    if lockstep and needs_workers(plan, graph, machine):
        raise ConfigError(
            f"the plan {str(plan)!r} in lockstep promises a result that no timing changes, and in workers nothing "
            "waits for evaluation: when a curriculum's options come into force would be chance. Drop lockstep, or use "
            "the plan 'inline'."
        )


def _check_nodes(plan: str | Plan, cluster: bool) -> None:
    """Refuse a plan that names nodes where there are none."""
    if not cluster and "@node:" in str(plan).replace(" ", ""):
        raise ConfigError(f"plan {str(plan)!r} names a node, which only a cluster has: add --on ray, or leave it out.")


def without_effect(prepared: Prepared, *asked: RunConfig | Settings) -> list[str]:
    """What was asked for and does nothing in this run, by its declaration (``only``): a line for each, to warn with."""
    where = "" if prepared.in_workers else f"the plan {str(prepared.plan)!r} runs in one process"
    never_behind = where or "in lockstep params are never behind"
    why = {"": "", "workers": where, "lag": never_behind if prepared.lockstep else ""}
    return [
        f"{name}={getattr(record, name)} has no effect: {why[one.says.only]}"
        for record in asked
        for name, one in declared(type(record)).items()
        if why[one.says.only] and getattr(record, name) != one.default
    ]


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


def _updates_per_batch(plan: Plan, graph: Graph, lockstep: bool) -> int:
    """More than one where something computes gradients that another fragment applies, one by one."""
    return 1 if lockstep else gradient_replicas(plan, graph)


def _opened(config: RunConfig) -> tuple[EnvSource, str]:
    """The environment, and the vector mode that it was opened in.

    A native batch is seeded as a whole, so its episodes depend on how a plan cuts the environments into batches. Where
    lockstep is asked for, ``auto`` takes environments one by one instead, and ``native`` is refused.
    """
    from weft.envs.native import NativeFactory
    from weft.envs.registry import open_environment

    def opened(vector: str) -> EnvSource:
        source = open_environment(config.environment, vector=vector, **config.env_options)
        return guarded(source, Guards(config.env_errors, config.env_bounds))

    source, vector = opened(config.vector), config.vector
    if not config.lockstep or not isinstance(source.host, NativeFactory) or (source.host.by_row and vector == "native"):
        return source, vector
    reason = (
        "In lockstep the result is the same for every plan, and a native batch is seeded as a whole: its episodes "
        "depend on how a plan cuts it"
    )
    if vector == "native":
        raise ConfigError(f"environment {source.name!r}: vector='native'. {reason}. Use vector='each', or no lockstep.")
    try:
        source, vector = opened("each"), "each"
    except ConfigError as error:
        raise ConfigError(f"{error}. {reason}. Make single environments, or do not ask for lockstep.") from None
    if isinstance(source.host, NativeFactory):
        raise ConfigError(f"environment {source.name!r} is a native batch. {reason}. Do not ask for lockstep.")
    return source, vector


def _algorithm(config: RunConfig, source: EnvSource) -> tuple[Algorithm, tuple[int, int]]:
    """The algorithm with its fields, and the environments and steps to use where none were asked for.

    An algorithm given as an object is used as it is: its author has chosen every field.
    """
    from weft.algorithms.policies import Policies, by_team
    from weft.algorithms.registry import algorithm_name, load_algorithm
    from weft.algorithms.tuned import tuned

    teams = None if isinstance(config.algorithm, Policies) else by_team(config.algorithm, source.spec)
    if teams is not None:
        policies, settings = teams.resolved(source.name, source.spec, **config.fields)
        return policies, (settings.envs, settings.steps)
    if isinstance(config.algorithm, Policies):
        policies, settings = config.algorithm.with_fields(**config.fields).resolved(source.name, source.spec)
        return policies, (settings.envs, settings.steps)
    if isinstance(config.algorithm, str):
        algorithm = load_algorithm(config.algorithm)()
        recurrent = bool(config.fields.get("recurrent"))
        settings = tuned(algorithm_name(algorithm), source.name, source.spec, recurrent=recurrent).fitted(
            config.fields, config.envs
        )
        algorithm = algorithm.with_fields(**{**settings.fields, **config.fields})
    else:
        algorithm = config.algorithm
        algorithm = algorithm.with_fields(**config.fields)
        settings = tuned(algorithm_name(algorithm), source.name, source.spec)
    if not is_whole(algorithm.unroll):
        raise wrong_kind(f"{type(algorithm).__name__}.unroll", "a whole number", algorithm.unroll)
    algorithm = algorithm.with_fields(unroll=int(algorithm.unroll))  # what is counted with it goes into JSON
    return algorithm, (settings.envs, settings.steps)


def _pure_alternative(name: str) -> str | None:
    from weft.envs.builtin import BUILTIN

    return f"weft:{name}" if name in BUILTIN else None
