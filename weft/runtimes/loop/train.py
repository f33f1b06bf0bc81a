"""The local runtime: carries out a run on this machine, from its folder's first file to its summary.

prepare    open the environment, fill the defaults, resolve the plan            (config.py)
engine     made, and so refused, before there is a folder
resume     from the newest whole checkpoint, if the folder has one               (execution.py)
loop       dispatch some learn calls; meanwhile read, log and show those before
save       every half minute, when asked to stop, and at the end                 (keeper.py)
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.runtimes.loop.engines import make_engine
from weft.runtimes.loop.execution import Execution
from weft.runtimes.loop.growing import growth_of
from weft.runtimes.loop.hooks import hooks_of
from weft.runtimes.loop.interrupt import interruptible
from weft.runtimes.loop.opening import open_folder
from weft.runtimes.loop.scaling import Scaling
from weft.runtimes.loop.watching import evaluation_of
from weft.runtimes.policies.run import Run
from weft.runtimes.prepare.config import RunConfig, Settings, prepare, without_effect
from weft.runtimes.prepare.kernels import without_kernels
from weft.services.family import Family
from weft.services.mirror import Mirror
from weft.services.run_folder import default_name
from weft.telemetry.plain import Plain
from weft.telemetry.stopping import Hooks
from weft.telemetry.wandb import require_wandb

if TYPE_CHECKING:
    from weft.runtimes.cluster.cluster import Cluster


def train(
    config: RunConfig,
    settings: Settings,
    on_summary: Callable[[dict[str, Any]], None] = lambda summary: None,
    cluster: Cluster | None = None,
    hooks: Hooks | None = None,
    on_begun: Callable[[Path], None] = lambda folder: None,
) -> Run:
    """Carry a run out, or on; blocks until it ends. One that is finished comes back as it is, at once.

    Raises WeftError, and what the user's own code raises. A first SIGINT saves and ends the run; a second ends it at
    once, as KeyboardInterrupt, and leaves what was saved before. ``on_summary`` is given the summary, also where it
    raises. ``cluster``: the hosts of its workers; unless given, as ``settings.on`` says. ``hooks`` see every record;
    unless given, as ``settings.stop_at`` says. ``on_begun`` is given the run's folder once the run has begun.
    """
    if settings.on != "local" and cluster is None:
        from weft.runtimes.cluster.opening import opened

        with opened(settings.on, trust_network=settings.trust_network) as cluster:
            return train(config, settings, on_summary, cluster, hooks, on_begun)
    family = Family.of_this_thread()
    prepared = prepare(config, watch=evaluation_of(settings), cluster=cluster.machine if cluster else None)
    family.look()  # what the environment that was looked at has started
    name = settings.run or default_name(prepared.name, prepared.source.name, prepared.seed)
    # Before there is a folder, which a command that is put right would find to be of another config.
    if settings.wandb is not None:
        require_wandb()
    mirror = Mirror(settings.mirror, name) if settings.mirror else None
    if mirror is not None:
        mirror.fetch(settings.root / name, fresh=settings.fresh)
    growth = growth_of(prepared, settings, cluster)  # refused before there is a folder
    engine = make_engine(prepared, settings, settings.root / name / "logs", cluster)
    folder, trouble = open_folder(prepared, settings, name)
    with folder, interruptible() as interrupt:
        execution = Execution(
            prepared, settings, folder, interrupt, family, mirror, Scaling(settings, folder, cluster, growth)
        )
        execution.on_summary, execution.on_begun = on_summary, on_begun
        execution.hooks = hooks or hooks_of(settings)
        left_out = [f"{part} is text, and left out" for part in prepared.source.spec.left_out]
        execution.warnings += [
            *without_effect(prepared, config, settings),
            *left_out,
            *without_kernels(prepared),
            *trouble,
        ]
        try:
            return execution.run(engine)
        finally:  # the summary and the last records too
            if mirror is not None and (failed := mirror.tried(folder.path)):
                Plain().warn(failed)
