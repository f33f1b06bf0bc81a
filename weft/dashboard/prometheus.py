"""``/metrics``: how every watched run stands, in the text format that Prometheus reads."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from weft.dashboard.library import Library
from weft.dashboard.run_view import RunView

PLAIN = {
    "env_steps": ("weft_env_steps_total", "counter", "environment steps made"),
    "learn_steps": ("weft_learn_steps_total", "counter", "learn steps made"),
    "episodes": ("weft_episodes_total", "counter", "episodes that have ended"),
    "wall_seconds": ("weft_training_seconds_total", "counter", "seconds of training, of all executions"),
    "env_steps_per_second": ("weft_env_steps_per_second", "gauge", "environment steps a second, of late"),
    "return_mean": ("weft_return_mean", "gauge", "mean return of the last 100 episodes"),
    "episode_length_mean": ("weft_episode_length_mean", "gauge", "mean length of the last 100 episodes, in steps"),
    "lag": ("weft_lag_mean", "gauge", "versions that the params of what was trained on were behind"),
    "load": ("weft_load", "gauge", "busy sides for each core"),
    "eval/return_mean": ("weft_evaluation_return_mean", "gauge", "mean return of the last evaluation"),
}
GROUPED = {
    "loss/": ("weft_loss", "name", "losses and what else learn measured"),
    "busy/": ("weft_busy_share", "stage", "part of its own time that a stage works"),
    "time/": ("weft_time_share", "stage", "part of the time that a stage takes, in one process"),
    "queue/": ("weft_queue_fill", "stream", "how full a stream is, 0 to 1"),
}
STATES = ("training", "starting", "finished", "interrupted", "failed", "stopped", "gone")


def exposition(library: Library) -> str:
    """One sample a line, grouped by metric, with its help; runs are told apart by the label ``run``."""
    locked = library.locked()
    metrics: dict[str, tuple[str, str, list[str]]] = {}
    for run in library.runs():
        for name, kind, about, labels, value in _samples(run, locked):
            lines = metrics.setdefault(name, (kind, about, []))[2]
            said = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            lines.append(f"{name}{{{said}}} {value!r}")
    parts = []
    for name, (kind, about, lines) in metrics.items():
        parts += [f"# HELP {name} {about}", f"# TYPE {name} {kind}", *lines]
    return "\n".join([*parts, ""])


def _samples(run: RunView, locked: frozenset[int]) -> Iterator[tuple[str, str, str, dict[str, str], float]]:
    overview, record = run.overview(locked), run.record()
    own = {"run": run.name}
    about = {n: str(overview[n]) for n in ("algorithm", "environment", "plan", "seed")}
    yield "weft_run_info", "gauge", "what a run is; always 1", own | about, 1.0
    for state in STATES:
        yield (
            "weft_run_state",
            "gauge",
            "1 for the state that a run is in",
            own | {"state": state},
            float(overview["state"] == state),
        )
    yield "weft_run_steps_target", "gauge", "environment steps at its end", own, float(overview["total_steps"])
    yield "weft_worker_restarts_total", "counter", "workers that were replaced", own, float(overview["restarts"])
    for key, (name, kind, words) in PLAIN.items():
        if _is_number(record.get(key)):
            yield name, kind, words, own, float(record[key])
    for key, value in record.items():
        for prefix, (name, label, words) in GROUPED.items():
            if key.startswith(prefix) and _is_number(value):
                yield name, "gauge", words, own | {label: key.removeprefix(prefix)}, float(value)
    live = run.live if overview["state"] in ("training", "starting") else {}
    for worker in _dicts(live.get("workers")):
        labels = own | {"worker": str(worker.get("name", ""))}
        yield "weft_worker_up", "gauge", "1 where a worker is at work", labels, float(worker.get("state") == "ready")
        if _is_number(worker.get("life")):
            yield "weft_worker_life", "gauge", "how often a worker was replaced", labels, float(worker["life"])
    streams = live.get("streams")
    for stream, rate in (streams if isinstance(streams, dict) else {}).items():
        if isinstance(rate, dict) and _is_number(rate.get("messages_per_second")):
            each = rate.get("bytes_per_message")
            size = float(each) if isinstance(each, int | float) else 0.0
            value = rate["messages_per_second"] * size
            labels = own | {"stream": str(stream)}
            yield "weft_stream_bytes_per_second", "gauge", "bytes a second between workers", labels, float(value)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _escaped(text: str) -> str:
    return re.sub(r'([\\"])', r"\\\1", text).replace("\n", "\\n")
