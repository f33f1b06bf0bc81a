"""Which engine carries out a prepared run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from weft.runtimes.compiled.engine import FusedEngine
from weft.runtimes.hosted.engine import HostedEngine
from weft.runtimes.loop.engine import Engine
from weft.runtimes.prepare.config import Prepared, Settings, layout_of

if TYPE_CHECKING:
    from weft.runtimes.cluster.cluster import Cluster
    from weft.runtimes.workers.layout.launch_spec import LaunchSpec


def make_engine(
    prepared: Prepared, settings: Settings | None = None, logs: Path | None = None, cluster: Cluster | None = None
) -> Engine:
    """The engine for a prepared run: of its one group in this process, or of its workers, which log to ``logs``.

    ``cluster``: the hosts of these, where they are not on this one.

    Starts nothing yet; refuses what could not start.
    """
    if prepared.in_workers:
        from weft.runtimes.workers.engine import WorkersEngine

        how = settings or Settings()
        launch, folder = planned(prepared, how, cluster), logs or how.root / "logs"
        if cluster is None:
            return WorkersEngine(prepared, launch, folder, how.hang_seconds)
        from weft.runtimes.cluster.launcher import launcher_of

        return WorkersEngine(prepared, launch, folder, how.hang_seconds, launcher_of(cluster))
    graph, sizes = prepared.graph.unwatched(), (layout_of(prepared), prepared.envs, prepared.seed)
    source = prepared.played
    if all(fragment.pure for fragment in graph.fragments) and source.pure is not None:
        return FusedEngine(graph, source.pure, *sizes)
    return HostedEngine(graph, source, *sizes)


def planned(prepared: Prepared, settings: Settings, cluster: Cluster | None) -> LaunchSpec:
    """What the workers of a run are launched with. Raises ConfigError and PlanError for what could not start."""
    from weft.runtimes.workers.layout.launch_spec import launch_spec

    launch = launch_spec(prepared, settings)
    if cluster is not None:
        from weft.runtimes.workers.layout.placement import place

        place(launch.blueprint, cluster.usable)
    return launch
