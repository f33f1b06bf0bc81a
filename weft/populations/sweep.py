"""``weft.sweep`` and ``weft.pbt``: train a population, or go on with one; blocks until it ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.core.errors import ConfigError
from weft.core.keywords import split, takes
from weft.core.recipe import refuse_while_importing
from weft.envs.protocol import EnvLike
from weft.graph.algorithm import Algorithm
from weft.populations.lineage import Lineage
from weft.populations.loop import PopulationLoop
from weft.populations.prepare import Planned, plan_population, title_of
from weft.populations.result import Population
from weft.populations.settings import PbtConfig, SweepConfig
from weft.runtimes.loop.interrupt import interruptible
from weft.runtimes.loop.opening import OLDER
from weft.runtimes.prepare.config import RunConfig, Settings
from weft.runtimes.prepare.drawing import laid_out
from weft.runtimes.prepare.jax_setup import set_up
from weft.runtimes.prepare.origin import origin_of
from weft.services.run_folder import RunFolder, default_name, open_run
from weft.telemetry.plain import Plain, Quiet
from weft.telemetry.wandb import require_wandb


@takes(SweepConfig, RunConfig, Settings)
def sweep(algorithm: Algorithm | str, environment: EnvLike, *, vary: Mapping[str, Any], **fields: Any) -> Population:
    """Train members with different values of some fields: drawn at random, a grid, or by successive halving.

    ``vary`` says which fields and between what: ``{"learning_rate": "1e-4..1e-2:log", "entropy_cost": [0, 0.01]}``.
    With a JAX environment all members are one program, and only fields that need not be known when it is compiled can
    be varied; with any other, or with ``apart``, they are trained one after another. ``algorithm``, ``environment`` and
    ``fields`` are ``weft.train``'s, and ``steps`` are those of each member. Interrupted, the same call goes on.
    """
    refuse_while_importing("weft.sweep")
    (asked, run, how), fields = split(fields, SweepConfig, RunConfig, Settings)
    set_up(cache=False)
    config = RunConfig(algorithm, environment, fields=fields, **run)
    return train_population(config, Settings(**how), SweepConfig(**asked), vary)


@takes(PbtConfig, RunConfig, Settings)
def pbt(algorithm: Algorithm | str, environment: EnvLike, *, vary: Mapping[str, Any], **fields: Any) -> Population:
    """Population based training: members with values of their own, of which the worst copy the best as they learn.

    Every so many steps the worst quarter takes params and optimiser state from members of the best quarter, and goes on
    with values near theirs, or drawn anew. ``vary`` and all else are ``weft.sweep``'s.
    """
    refuse_while_importing("weft.pbt")
    (asked, run, how), fields = split(fields, PbtConfig, RunConfig, Settings)
    set_up(cache=False)
    config = RunConfig(algorithm, environment, fields=fields, **run)
    return train_population(config, Settings(**how), PbtConfig(**asked), vary)


def train_population(
    config: RunConfig, settings: Settings, asked: SweepConfig | PbtConfig, vary: Mapping[str, Any]
) -> Population:
    """Carry a population out, or on. One that is finished comes back as it is. Raises WeftError."""
    if settings.on != "local":
        raise ConfigError(f"on={settings.on!r}: a population trains on this machine only. Drop it.")
    if settings.grow:
        raise ConfigError(f"grow={settings.grow!r}: a population is one program, without replicas. Drop it.")
    planned = plan_population(config, asked, vary)
    prepared = planned.prepared
    if settings.wandb is not None:
        require_wandb()
    kind = "pbt" if isinstance(asked, PbtConfig) else "sweep"
    name = settings.run or default_name(f"{kind}-{prepared.name}", prepared.source.name, prepared.seed)
    with _open(planned, settings, name) as folder, interruptible() as interrupt:
        if (before := _finished(folder, settings)) is not None:
            return before
        about = {
            "title": title_of(prepared, planned.asked),
            "algorithm": prepared.name,
            "environment": prepared.source.name,
            "plan": str(prepared.plan),
            "seed": prepared.seed,
            **{key: planned.asked[key] for key in ("how", "together", "vary")},
        }
        space, cohort = list(planned.space), planned.cohort
        loop = PopulationLoop(cohort, planned.rule, prepared, settings, folder, interrupt, space, about)
        summary = loop.run()
        return Population(folder.path, summary, loop.keeping.lineage)


def _open(planned: Planned, settings: Settings, name: str) -> RunFolder:
    """The population's folder, locked; refused where another is there under this name."""
    prepared = planned.prepared
    code = ["code"] if settings.new_code else []
    return open_run(
        settings.root,
        name,
        {**prepared.config(), "population": planned.asked},
        laid_out(prepared),
        may_differ=frozenset({"env_bounds", *code}),
        may_lack=OLDER,
        origin=origin_of(prepared),
        fresh=settings.fresh,
    )


def _finished(folder: RunFolder, settings: Settings) -> Population | None:
    """The population as it ended, where it was finished before."""
    summary = folder.summary() if folder.resumed else None
    if summary is None or summary.get("exit") != "finished":
        return None
    screen = Quiet() if settings.quiet else Plain()
    screen.note(f"population {folder.path} was finished before. To begin anew, say --fresh or name another --run.")
    return Population(folder.path, {**summary, "run": str(folder.path)}, Lineage.read(folder.path / "lineage.json"))
