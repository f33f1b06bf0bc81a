"""What the page asks, answered as JSON: each function takes the library and the query, and gives plain data."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.core.errors import ConfigError
from weft.dashboard.curves import MOST_BUCKETS, extremes, grid, means, rounded, spread
from weft.dashboard.dataflow import dataflow
from weft.dashboard.library import Library, compare
from weft.dashboard.run_view import RunView
from weft.dashboard.scene import draw_scene

Query = Mapping[str, Sequence[str]]

AXES = ("env_steps", "learn_steps", "wall_seconds")
EVALUATED, INTERVAL = "eval/return_mean", ("eval/return_low", "eval/return_high")
MOST_RUNS = 64
"""That one question may name."""


def runs(library: Library, query: Query) -> dict[str, Any]:
    """The list of runs."""
    return {"root": str(library.root), "host": platform.node(), "runs": library.overviews()}


def run(library: Library, query: Query) -> dict[str, Any]:
    """All that is known of one run but its curves and its picture."""
    found = _run(library, query)
    found.records.refresh()
    return {
        **found.overview(library.locked()),
        "folder": str(found.path),
        "config": found.config,
        "summary": found.summary,
        "samples": found.live.get("samples") or found.summary.get("samples") or {},
        "record": found.record(),
        "metrics": found.records.names,
        "rows": found.records.rows,
        "logs": found.logs(),
        "videos": found.videos(),
        "lineage": found.lineage,
        "payoffs": found.payoffs,
        "problems": found.problems,
    }


def picture(library: Library, query: Query) -> dict[str, Any]:
    """The dataflow of a run as it is now: shapes, the advice, and what was said last."""
    return picture_of(_run(library, query), library.locked(), narrow=_one(query, "narrow", "0") == "1")


def picture_of(found: RunView, locked: frozenset[int], *, narrow: bool) -> dict[str, Any]:
    """The same, of a run that was looked up."""
    state, record = found.state(locked), found.record()
    flow = dataflow(found.plan, found.live, found.summary, record, state)
    return {
        **found.overview(locked),
        "record": record,
        "scene": draw_scene(flow, narrow=narrow).to_json(),
        "advice": flow.advice,
        "measured": flow.measured,
        "notes": flow.notes,
        "live": bool(found.live),
        "samples": found.live.get("samples") or found.summary.get("samples") or {},
        "workers": [{"name": w.name, "state": w.state, "life": w.life} for group in flow.groups for w in group.workers],
    }


def curves(library: Library, query: Query) -> dict[str, Any]:
    """One metric of several runs on a grid that they share: ``x``, and for each series its ``y`` (see curves.py).

    ``metric`` may end in ``*``: all metrics that begin so, as ``return_mean/*``. ``from`` and ``to`` bound the x axis.
    With ``together=1`` runs that differ in nothing but their seeds become one series, its mean with the lowest and the
    highest of the runs. The return in evaluation of one run has the ends of its interval there.
    """
    axis = _one(query, "x", "env_steps")
    if axis not in AXES:
        raise ConfigError(f"x={axis!r}: expected one of {', '.join(AXES)}")
    metric = _one(query, "metric", "return_mean")
    found = [r for r in (library.run(i) for i in query.get("run", ())[:MOST_RUNS]) if r is not None]
    for one in found:
        one.records.refresh()
    low, high = _bounds(found, axis, _number(query, "from"), _number(query, "to"))
    buckets = int(min(max(_number(query, "points", 500.0) or 500.0, 10), MOST_BUCKETS))
    answer: dict[str, Any] = {
        "metric": metric,
        "axis": axis,
        "low": low,
        "high": high,
        "read": min((one.records.share for one in found), default=1.0),
        "rows": sum(one.records.rows for one in found),
        "series": [],
    }
    if _one(query, "together", "0") == "1":
        answer["x"] = rounded(grid(low, high, buckets)[::2])
        answer["series"] = [_group(group, axis, metric, low, high, buckets) for group in _by_seed(found)]
        return answer
    answer["x"] = rounded(grid(low, high, buckets))
    for one in found:
        for name in _matching(one, metric):
            x, y = one.records.columns(axis, name)
            values = extremes(x, y, low, high, buckets)
            label = one.name if name == metric else f"{one.name} {name.removeprefix(metric.rstrip('*'))}"
            answer["series"].append({"run": one.id, "label": label, "y": rounded(values)})
            if name == EVALUATED and {*INTERVAL} <= {*one.records.names}:
                x, *ends = one.records.columns(axis, *INTERVAL)
                below, above = (np.repeat(means(x, end, low, high, buckets), 2) for end in ends)
                answer["series"][-1] |= {"lowest": rounded(below), "highest": rounded(above)}
    return answer


def differences(library: Library, query: Query) -> dict[str, Any]:
    """What differs in the configs of runs, with how each of them stands."""
    found = [r for r in (library.run(i) for i in query.get("run", ())[:MOST_RUNS]) if r is not None]
    locked = library.locked()
    return {**compare(found), "overviews": [one.overview(locked) for one in found]}


def log(library: Library, query: Query) -> dict[str, Any]:
    """A part of one log."""
    after = _number(query, "after")
    part = _run(library, query).log(_one(query, "name", ""), None if after is None else int(after))
    if part is None:
        raise LookupError("no such log")
    return part


ANSWERS: dict[str, Callable[[Library, Query], dict[str, Any]]] = {
    "/api/runs": runs,
    "/api/run": run,
    "/api/picture": picture,
    "/api/curves": curves,
    "/api/compare": differences,
    "/api/log": log,
}


def _matching(found: RunView, metric: str) -> list[str]:
    if not metric.endswith("*"):
        return [metric]
    names = [name for name in found.records.names if name.startswith(metric[:-1])]
    return sorted(names, key=lambda name: (len(name), name))[:MOST_RUNS]


def _by_seed(found: list[RunView]) -> list[list[RunView]]:
    groups: dict[str, list[RunView]] = {}
    for one in found:
        config = {n: v for n, v in one.config.items() if n not in ("seed", "id")}
        groups.setdefault(repr(sorted(config.items(), key=lambda item: item[0])), []).append(one)
    return list(groups.values())


def _group(group: list[RunView], axis: str, metric: str, low: float, high: float, buckets: int) -> dict[str, Any]:
    columns = []
    for one in group:
        for name in _matching(one, metric):
            x, y = one.records.columns(axis, name)
            columns.append(means(x, y, low, high, buckets))
    mean, lowest, highest = spread(columns or [np.full(buckets, math.nan)])
    seeds = [one.config.get("seed") for one in group]
    label = group[0].name if len(group) == 1 else f"{group[0].name} and {len(group) - 1} more seeds"
    several = len(columns) > 1
    return {
        "run": group[0].id,
        "label": label,
        "seeds": seeds,
        "y": rounded(mean),
        "lowest": rounded(lowest) if several else None,
        "highest": rounded(highest) if several else None,
    }


def _bounds(found: list[RunView], axis: str, low: float | None, high: float | None) -> tuple[float, float]:
    if low is None or high is None:
        ends = [column for one in found for column in one.records.columns(axis)]
        finite = [c[np.isfinite(c)] for c in ends]
        lows, highs = [float(c.min()) for c in finite if len(c)], [float(c.max()) for c in finite if len(c)]
        low = min(lows, default=0.0) if low is None else low
        high = max(highs, default=1.0) if high is None else high
    return (low, high) if high > low else (low, low + 1.0)


def _run(library: Library, query: Query) -> RunView:
    found = library.run(_one(query, "run", ""))
    if found is None:
        raise LookupError("no such run")
    return found


def _one(query: Query, name: str, default: str) -> str:
    return query[name][0] if query.get(name) else default


def _number(query: Query, name: str, default: float | None = None) -> float | None:
    if not query.get(name):
        return default
    try:
        value = float(query[name][0])
    except ValueError:
        raise ConfigError(f"{name}={query[name][0]!r}: expected a number") from None
    if not math.isfinite(value):
        raise ConfigError(f"{name}={query[name][0]!r}: expected a finite number")
    return value
