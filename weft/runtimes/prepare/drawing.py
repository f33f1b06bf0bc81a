"""What ``weft show`` draws: a prepared run, or one that has been, with what its streams were measured to carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from weft.core.errors import ConfigError, PlanError
from weft.graph.describe import Measured, describe_bytes
from weft.graph.sketch import from_sketch, to_sketch
from weft.graph.split import split
from weft.plans import Plan, draw_mermaid, draw_text, executable
from weft.runtimes.prepare.config import Prepared, Settings

if TYPE_CHECKING:
    from weft.runtimes.workers.layout.launch_spec import LaunchSpec


def draw(prepared: Prepared, settings: Settings | None = None, *, mermaid: bool = False) -> str:
    """A prepared run's fragments in the groups of its plan; below, how its sizes are meant and why it would not run."""
    if mermaid:
        return draw_mermaid(prepared.graph, prepared.plan)
    parts = [draw_text(prepared.graph, prepared.plan), _below(prepared, settings or Settings())]
    return "\n\n".join(part for part in parts if part)


def laid_out(prepared: Prepared) -> dict[str, Any]:
    """What ``plan.json`` records: the plan, and the graph as ``draw_run`` needs it, for all environments together."""
    same = prepared.algorithm.spec.envs == prepared.envs
    graph = prepared.graph if same else prepared.algorithm.graph_for(prepared.envs)
    sketch = to_sketch(split(graph, prepared.plan.fragments))
    return {**prepared.plan.to_dict(), "graph": sketch, "envs": prepared.envs}


def draw_run(stored: Mapping[str, Any], summary: Mapping[str, Any] | None, *, mermaid: bool = False) -> str:
    """A run under the plan of its last execution, with what was measured between its groups. Imports nothing of it.

    ``stored`` is what ``laid_out`` gave, ``summary`` what the run has left, or None. Raises PlanError or GraphError
    where they are damaged.
    """
    plan, graph, envs = Plan.from_dict(stored), from_sketch(stored["graph"]), int(stored["envs"])
    streams = (summary or {}).get("streams", {})
    rates = {name: Measured.from_json(saved) for name, saved in streams.items()}
    if mermaid:
        return draw_mermaid(graph, plan, rates)
    return f"{draw_text(graph, plan, rates)}\n\n{_measured(envs, plan, summary, streams)}"


def _below(prepared: Prepared, settings: Settings) -> str:
    """What a message's size stands for, and what streams take, where the plan runs in workers; or why it would not run.

    The reason has the nearest plan that this version would run. Empty in one process.
    """
    try:
        executable(prepared.plan, prepared.graph, prepared.machine, envs=prepared.envs)
        if not prepared.in_workers:
            return ""
        from weft.runtimes.workers.layout.launch_spec import launch_spec

        return _sizes(prepared, launch_spec(prepared, settings))
    except (PlanError, ConfigError) as error:
        return str(error)


def _sizes(prepared: Prepared, launch: LaunchSpec) -> str:
    lanes, envs = launch.blueprint.lanes, prepared.algorithm.spec.envs
    of = "all" if envs == prepared.envs else "one learner's"
    between = "one lane" if len(lanes) == 1 else f"{len(lanes)} lanes"
    taken = launch.memory("shm")
    each = ", ".join(f"{stream} {describe_bytes(nbytes)}" for stream, nbytes in taken.items())
    by_lane = list(dict.fromkeys(wire.stream for wire in launch.blueprint.wires if wire.lane >= 0))
    travelling = " and ".join([", ".join(by_lane[:-1]), by_lane[-1]]) if len(by_lane) > 1 else by_lane[0]
    return (
        f"Sizes are of {of} {envs} environments together. Between workers {travelling} travel in "
        f"{between} of {lanes[0].rows}, a message for each lane.\n"
        f"Streams take {describe_bytes(sum(taken.values()))} of shared memory: {each}."
    )


def _measured(envs: int, plan: Plan, summary: Mapping[str, Any] | None, streams: Mapping[str, Any]) -> str:
    sizes = f"Sizes of messages are of all {envs} environments together."
    if summary is None:
        return f"{sizes} Nothing is measured yet: the run has not ended."
    if not streams:
        why = "it is one group" if len(plan.groups) == 1 else "it ended too early"
        return f"{sizes} Nothing was measured between workers: {why}."
    lines = [f"{sizes} Measured, after compilation: messages/s, the size of each, and both multiplied."]
    rows = next((int(saved["environments"]) for saved in streams.values() if "environments" in saved), None)
    if rows is not None:
        by_lane = [name for name, saved in streams.items() if "environments" in saved]
        lines.append(f"There a message of {' or '.join(by_lane)} is one lane's, {rows} environments.")
    lines.append(f"{summary['env_steps_per_second']:,.0f} env steps/s in all.")
    return "\n".join(lines)
