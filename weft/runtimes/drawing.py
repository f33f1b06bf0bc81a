"""What ``weft show`` draws: a prepared run, or one that has been, with what its streams were measured to carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.core.errors import PlanError
from weft.graph.describe import Measured
from weft.plans import Plan, draw_mermaid, draw_text, executable
from weft.runtimes.config import Prepared


def draw(prepared: Prepared, *, mermaid: bool = False) -> str:
    """A prepared run's fragments in the groups of its plan; below, how its sizes are meant and why it would not run."""
    if mermaid:
        return draw_mermaid(prepared.graph, prepared.plan)
    parts = [draw_text(prepared.graph, prepared.plan), _sizes(prepared), why_not(prepared)]
    return "\n\n".join(part for part in parts if part)


def draw_run(prepared: Prepared, plan: Plan, summary: Mapping[str, Any] | None, *, mermaid: bool = False) -> str:
    """A run under the ``plan`` of its last execution, with what was measured between its groups.

    ``prepared`` is the run in one group: its sizes are those of all environments together. ``summary`` is what the run
    has left, or None.
    """
    streams = (summary or {}).get("streams", {})
    rates = {name: Measured.from_json(saved) for name, saved in streams.items()}
    if mermaid:
        return draw_mermaid(prepared.graph, plan, rates)
    return f"{draw_text(prepared.graph, plan, rates)}\n\n{_measured(prepared, plan, summary, streams)}"


def why_not(prepared: Prepared) -> str:
    """Why this version would not run it, with the nearest plan that it would; empty where it does."""
    try:
        executable(
            prepared.plan,
            prepared.graph,
            prepared.machine,
            envs=prepared.envs,
            splits=prepared.algorithm.splits,
        )
        _lanes(prepared)
    except PlanError as error:
        return str(error)
    return ""


def _lanes(prepared: Prepared) -> tuple[int, int]:
    """Lanes of the run, and environments in each, unless --ring says otherwise; (0, 0) in one process."""
    from weft.runtimes.processes.blueprint import Manner, draft

    if not prepared.in_workers:
        return 0, 0
    pure = prepared.source.pure is not None
    blueprint = draft(prepared.plan, prepared.envs, prepared.machine, Manner(), pure_env=pure)
    return len(blueprint.lanes), blueprint.lanes[0].rows


def _sizes(prepared: Prepared) -> str:
    """What a message's size stands for, where the plan runs in workers."""
    if why_not(prepared) or not prepared.in_workers:
        return ""
    count, rows = _lanes(prepared)
    envs = prepared.algorithm.spec.envs
    of = "all" if envs == prepared.envs else "one learner's"
    between = "one" if count == 1 else f"{count} lanes"
    return (
        f"Sizes are of {of} {envs} environments together. Between workers timestep, action and unroll travel in "
        f"{between} of {rows}, a message for each lane."
    )


def _measured(prepared: Prepared, plan: Plan, summary: Mapping[str, Any] | None, streams: Mapping[str, Any]) -> str:
    sizes = f"Sizes of messages are of all {prepared.envs} environments together."
    if summary is None:
        return f"{sizes} Nothing is measured yet: the run has not ended."
    if not streams:
        why = "it is one group" if len(plan.groups) == 1 else "it ended too early"
        return f"{sizes} Nothing was measured between workers: {why}."
    lines = [f"{sizes} Measured, after compilation: messages/s, the size of each, and both multiplied."]
    rows = next((int(saved["environments"]) for saved in streams.values() if "environments" in saved), None)
    if rows is not None:
        lines.append(f"There a message of timestep, action or unroll is one lane's, {rows} environments.")
    lines.append(f"{summary['env_steps_per_second']:,.0f} env steps/s in all.")
    return "\n".join(lines)
