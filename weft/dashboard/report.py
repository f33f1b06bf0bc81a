"""A report of runs: one HTML page that stands by itself, to hand on or to print.

Pictures are inline SVG, the style is inside, no script. What comes out of a run folder is always escaped.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from weft.dashboard.curves import extremes, grid, means, spread
from weft.dashboard.dataflow import dataflow
from weft.dashboard.files import opened
from weft.dashboard.library import compare, flat
from weft.dashboard.run_view import RunView, text
from weft.dashboard.scene import draw_scene
from weft.dashboard.svg import COLOURS, Curve, curves_svg, scene_svg
from weft.graph.describe import describe_bytes
from weft.telemetry.figures import duration, figure

POINTS = 300
"""Buckets of a curve: more than a printer shows in its width."""

CURVES = ("return_mean", "eval/return_mean", "env_steps_per_second", "lag")
TITLES = {
    "return_mean": "Return, mean of the last 100 episodes",
    "eval/return_mean": "Return in evaluation",
    "env_steps_per_second": "Speed, env steps a second",
    "lag": "Lag, versions behind",
}
LARGEST_PICTURE = 4 * 2**20


class Reported(NamedTuple):
    """A run, and the command that repeats it with what that cannot say."""

    run: RunView
    command: str = ""
    lacks: str = ""


def report(reported: Sequence[Reported], locked: frozenset[int] = frozenset()) -> str:
    """The page, HTML."""
    for one in reported:
        while one.run.records.refresh():
            pass
    runs = [one.run for one in reported]
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    made = time.strftime("%Y-%m-%d %H:%M %Z")
    parts = [f"<h1>{escape(title)}</h1>", f'<p class="made">Weft report, {escape(made)}</p>']
    if len(runs) > 1:
        parts += [_overview(runs, locked), _differences(runs), _curves(runs, together=True)]
    for one in reported:
        parts.append(_of_run(one, locked, alone=len(runs) == 1))
    style = (resources.files("weft.dashboard") / "static" / "report.css").read_text()
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{style}</style>'
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">{head}'
    width = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    return f'<!doctype html>\n<html lang="en"><head>{head}{width}</head>\n<body>{"".join(parts)}</body></html>\n'


def _of_run(one: Reported, locked: frozenset[int], *, alone: bool) -> str:
    run = one.run
    state, record, summary, live = run.state(locked), run.record(), run.summary, run.live
    config = run.config
    about = " on ".join(w for w in (text(config.get("algorithm")), text(config.get("environment"))) if w)
    flow = dataflow(run.plan, live, summary, record, state)
    tiles = [
        ("return", figure_of(record.get("return_mean")), f"{figure_of(record.get('episodes'))} episodes"),
        ("env steps", figure_of(record.get("env_steps")), f"{figure_of(record.get('learn_steps'))} learn steps"),
        (
            "speed",
            figure_of(summary.get("env_steps_per_second", record.get("env_steps_per_second"))),
            "env steps a second",
        ),
        ("time", duration(float(_number(record.get("wall_seconds")))), "of training"),
        ("restarts", figure_of(live.get("restarts", summary.get("restarts", 0))), "of workers"),
    ]
    head = f"<h2>{escape(run.name)}</h2>" if not alone else ""
    parts = [
        f'<section class="run">{head}<p class="about">{escape(about)} · <b class="{escape(state)}">{escape(state)}</b>'
        f" · seed {escape(str(config.get('seed', '–')))}</p>",
        '<div class="tiles">',
        *(f"<div><span>{n}</span><b>{escape(v)}</b><em>{escape(m)}</em></div>" for n, v, m in tiles),
        "</div>",
    ]
    if error := text(summary.get("error"), 4000):
        parts.append(f"<pre class='error'>{escape(error)}</pre>")
    if picture := scene_svg(draw_scene(flow).to_json()):
        advice = f"<p class='advice'>{escape(flow.advice)}</p>" if flow.advice else ""
        expression = escape(text(run.plan.get("expression")))
        parts.append(f"<h3>Plan</h3><p><code>{expression}</code></p>{picture}{advice}")
    if alone:
        parts.append(_curves([run], together=False))
    parts += [_evaluation(run), _samples(run), _members(summary), _pictures(run), _happened(flow.notes)]
    parts += [_repeat(one), _machine(live), _config(config), "</section>"]
    return "".join(parts)


def _overview(runs: Sequence[RunView], locked: frozenset[int]) -> str:
    rows = []
    for k, run in enumerate(runs):
        o = run.overview(locked)
        swatch = f'<i class="swatch" style="background:{COLOURS[k % len(COLOURS)]}"></i>'
        rate = figure_of(o["env_steps_per_second"])
        cells = [o["state"], o["algorithm"], o["environment"], o["plan"], figure_of(o["return_mean"])]
        cells += [figure_of(o["env_steps"]), rate, figure_of(o["restarts"])]
        rows.append(
            f"<tr><th>{swatch}{escape(run.name)}</th>" + "".join(f"<td>{escape(c)}</td>" for c in cells) + "</tr>"
        )
    heads = ("run", "state", "algorithm", "environment", "plan", "return", "env steps", "steps/s", "restarts")
    return f"<h3>The runs</h3><table>{_head(heads)}{''.join(rows)}</table>"


def _differences(runs: Sequence[RunView]) -> str:
    found = compare(list(runs))
    if not found["fields"]:
        return "<h3>What differs</h3><p>Nothing: their configs are the same.</p>"
    rows = "".join(
        f"<tr><th>{escape(row['field'])}</th>"
        + "".join(f"<td>{escape(_said(v))}</td>" for v in row["values"])
        + "</tr>"
        for row in found["fields"]
    )
    return f"<h3>What differs</h3><table>{_head(['field', *(run.name for run in runs)])}{rows}</table>"


def _curves(runs: Sequence[RunView], *, together: bool) -> str:
    names = list(CURVES)
    names += [n for n in runs[0].records.names if n.startswith("loss/")] if not together else []
    charts = []
    ends = [float(x.max()) for run in runs for x in run.records.columns("env_steps") if len(x)]
    high = max(ends, default=1.0) or 1.0
    for name in names:
        drawn = []
        for k, run in enumerate(runs):
            x, y = run.records.columns("env_steps", name)
            values = extremes(x, y, 0.0, high, POINTS)
            drawn.append(Curve(run.name, grid(0.0, high, POINTS), values, COLOURS[k % len(COLOURS)]))
        drawn += _seeds(runs[0], name, high) if not together else []
        if chart := curves_svg(drawn, TITLES.get(name, name), "env steps"):
            caption = escape(TITLES.get(name, name.replace("loss/", "Loss: ")))
            charts.append(f"<figure><figcaption>{caption}</figcaption>{chart}</figure>")
    return f'<h3>Curves</h3><div class="charts">{"".join(charts)}</div>' if charts else "<p>No records.</p>"


def _seeds(run: RunView, name: str, high: float) -> list[Curve]:
    """The range of a run's seeds around its curve, where it has several."""
    members = [n for n in run.records.names if n.startswith(f"{name}/")]
    if len(members) < 2:
        return []
    columns = []
    for member in members:
        x, y = run.records.columns("env_steps", member)
        columns.append(means(x, y, 0.0, high, POINTS))
    mean, lowest, highest = spread(columns)
    return [Curve("seeds", grid(0.0, high, POINTS)[::2], mean, COLOURS[0], lowest, highest)]


def _evaluation(run: RunView) -> str:
    found = run.summary.get("evaluation")
    found = (
        found if isinstance(found, Mapping) else {n[5:]: v for n, v in run.record().items() if n.startswith("eval/")}
    )
    if not found:
        return ""
    mean, low, high = (figure_of(found.get(f"return_{n}")) for n in ("mean", "low", "high"))
    words = f"return {mean}, 95 % interval {low} to {high}, of {figure_of(found.get('episodes'))} episodes"
    best = found.get("best")
    if isinstance(best, Mapping):
        words += f"; the best was {figure_of(best.get('score'))}, at {figure_of(best.get('env_steps'))} env steps"
    return f"<h3>Evaluation</h3><p>{escape(words)}</p>"


def _samples(run: RunView) -> str:
    ended = run.summary.get("samples")
    samples = ended if isinstance(ended, Mapping) else run.live.get("samples")
    if not isinstance(samples, Mapping):
        return ""
    rows = [(name, samples[name]) for name in ("produced", "added", "trained") if samples.get(name) is not None]
    dropped = samples.get("dropped")
    rows += [(f"dropped: {why}", n) for why, n in (dropped.items() if isinstance(dropped, Mapping) else ())]
    rows.append(("in flight", samples.get("in_flight")))
    return f"<h3>Ledger</h3><p>What became of every sample, one env step each.</p>{_pairs(rows)}"


def _members(summary: Mapping[str, Any]) -> str:
    members = summary.get("members")
    if not isinstance(members, list):
        return ""
    rows = "".join(
        f"<tr><th>{escape(_said(m.get('member')))}</th><td>{figure_of(m.get('return_mean'))}</td>"
        f"<td>{figure_of(m.get('env_steps'))}</td><td>{escape(_said(m.get('values')))}</td></tr>"
        for m in members
        if isinstance(m, Mapping)
    )
    return f"<h3>Members</h3><table>{_head(('member', 'return', 'env steps', 'values'))}{rows}</table>"


def _pictures(run: RunView) -> str:
    """The run's own pictures, as images: whatever is in them does not run."""
    parts = []
    for name, title in (("lineage.svg", "Lineage"), ("payoffs.svg", "Pay-offs")):
        with suppress(OSError), opened(run.path / name) as file:
            content = file.read(LARGEST_PICTURE + 1)
            if len(content) <= LARGEST_PICTURE:
                data = base64.b64encode(content).decode()
                parts.append(f'<h3>{title}</h3><img alt="{title}" src="data:image/svg+xml;base64,{data}">')
    return "".join(parts)


def _happened(notes: list[dict[str, Any]]) -> str:
    rows = "".join(
        f"<tr><th>{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(n['at']))}</th><td>{escape(n['text'])}</td></tr>"
        for n in notes
    )
    return f"<h3>What happened</h3><table>{rows}</table>" if rows else ""


def _repeat(one: Reported) -> str:
    if not one.command:
        return ""
    lacks = f"<p>{escape(one.lacks)}</p>" if one.lacks else ""
    return f"<h3>To repeat it</h3><pre>{escape(one.command)}</pre>{lacks}"


def _machine(live: Mapping[str, Any]) -> str:
    machine = live.get("machine")
    if not isinstance(machine, Mapping):
        return "<h3>Machine and versions</h3><p>Not recorded by the version that made this run.</p>"
    memory = machine.get("memory_bytes")
    rows = [("host", text(live.get("host"))), ("system", text(machine.get("system")))]
    rows += [("cores", figure_of(machine.get("cores"))), ("accelerators", figure_of(machine.get("accelerators")))]
    rows += [
        ("memory", describe_bytes(memory) if isinstance(memory, int) else "–"),
        ("Python", text(machine.get("python"))),
    ]
    versions = machine.get("versions")
    rows += [(str(n), text(v)) for n, v in (versions.items() if isinstance(versions, Mapping) else ())]
    return f"<h3>Machine and versions</h3>{_pairs(rows)}"


def _config(config: Mapping[str, Any]) -> str:
    rows = [(name, _said(value)) for name, value in flat(dict(config)).items()]
    return f"<h3>Config</h3><div class='config'>{_pairs(rows)}</div>"


def _pairs(rows: Iterable[tuple[str, Any]]) -> str:
    said = (
        f"<tr><th>{escape(str(n))}</th><td>{escape(v if isinstance(v, str) else figure_of(v))}</td></tr>"
        for n, v in rows
    )
    return f"<table class='pairs'>{''.join(said)}</table>"


def _head(names: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<th>{escape(name)}</th>" for name in names) + "</tr>"


def _said(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else str(value)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def figure_of(value: Any) -> str:
    """A number for people; ``–`` for what is none."""
    if not isinstance(value, int | float):
        return "–"
    return figure(int(value)) if float(value).is_integer() and abs(value) < 1e15 else figure(float(value))


def write_report(path: Path, page: str) -> None:
    """Write the page. Raises OSError."""
    path.write_text(page, encoding="utf-8")
