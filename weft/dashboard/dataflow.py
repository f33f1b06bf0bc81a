"""A run's dataflow as data: the groups of its plan with their workers, and the streams between fragments.

From ``plan.json``, ``live.json`` and ``summary.json``, all of which may be damaged or made by somebody else: what does
not fit is left out, and nothing here raises.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.dashboard.run_view import number, text
from weft.telemetry.bottleneck import bottleneck, busy, shares

MOST = 400
"""Groups, workers, fragments, streams: more than so many of each are not drawn."""

_SIZES = {"bool": 1, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class WorkerBox:
    """One replica of a group, as it is now."""

    name: str
    state: str  # starting, ready, gone, given up, ended; empty where nothing is known
    life: int  # 0: the first
    busy: float  # the busiest of its sides; NaN where not known


@dataclass(frozen=True)
class GroupBox:
    """A group of the plan."""

    label: str
    fragments: tuple[str, ...]
    host_code: tuple[str, ...]  # those of the fragments that are no pure functions
    replicas: int
    device: str
    workers: tuple[WorkerBox, ...]
    shares: dict[str, float]  # by stage, the part of its time that it works; in one process, its part of the time
    bound: bool  # the run waits for it


@dataclass(frozen=True)
class Edge:
    """A stream between two fragments."""

    name: str
    source: int  # the group's index
    target: int
    fragments: tuple[str, str]
    rhythm: str
    delivery: str
    message_bytes: int  # of all environments together
    bytes_per_second: float  # NaN where not measured
    messages_per_second: float
    fill: float  # how full it is, 0 to 1; NaN where not measured
    lag: float  # versions behind, a mean; NaN where it has none

    @property
    def crosses(self) -> bool:
        """Whether it goes from one group to another."""
        return self.source != self.target


@dataclass(frozen=True)
class Dataflow:
    """What is drawn."""

    groups: tuple[GroupBox, ...] = ()
    edges: tuple[Edge, ...] = ()
    advice: str = ""
    in_workers: bool = False
    measured: str = ""  # over which time the streams were: "now", "the run", or empty
    notes: list[dict[str, Any]] = field(default_factory=list)


def dataflow(
    plan: Mapping[str, Any], live: Mapping[str, Any], summary: Mapping[str, Any], record: Mapping[str, Any], state: str
) -> Dataflow:
    """What a run looks like at this moment, or looked like at its end."""
    numbers = {n: v for n, v in record.items() if isinstance(n, str) and isinstance(v, int | float)}
    advice = bottleneck(numbers)
    bound = advice.partition("-bound:")[0] if "-bound:" in advice else ""
    graph = _mapping(plan.get("graph"))
    pure = {text(f.get("name")): bool(f.get("pure")) for f in _mappings(graph.get("fragments"))}
    groups: list[GroupBox] = []
    parts = busy(numbers) or shares(numbers)
    for saved in _mappings(plan.get("groups")):
        names = tuple(text(name, 80) for name in saved.get("fragments") or () if isinstance(name, str))[:MOST]
        if not names:
            continue
        of_stage = {stage: part for stage, part in parts.items() if set(stage.split("+")) <= set(names)}
        groups.append(
            GroupBox(
                label=" + ".join(names),
                fragments=names,
                host_code=tuple(name for name in names if pure.get(name) is False),
                replicas=max(1, int(number(saved.get("replicas")))),
                device=text(saved.get("device"), 40),
                workers=_workers(live, names, state),
                shares=of_stage,
                bound=bool(bound) and bound in of_stage,
            )
        )
    measured, rates = ("now", live.get("streams")) if live.get("streams") else ("the run", summary.get("streams"))
    edges = _edges(graph, groups, _mapping(rates), numbers)
    some = any(math.isfinite(edge.bytes_per_second) for edge in edges)
    in_workers = len(groups) > 1 or any(group.workers for group in groups)
    return Dataflow(tuple(groups), tuple(edges), advice, in_workers, measured if some else "", _notes(live))


def _workers(live: Mapping[str, Any], names: tuple[str, ...], state: str) -> tuple[WorkerBox, ...]:
    found = []
    for worker in _mappings(live.get("workers")):
        stages = [stage for stage in worker.get("stages") or () if isinstance(stage, str)]
        if not stages or not set("+".join(stages).split("+")) <= set(names):
            continue
        parts = [float(part) for part in worker.get("busy") or () if isinstance(part, int | float)]
        at_work = state in ("training", "starting")
        found.append(
            WorkerBox(
                text(worker.get("name"), 80),
                text(worker.get("state"), 20) if at_work else "ended",
                int(number(worker.get("life"))),
                max(parts, default=math.nan) if at_work else math.nan,
            )
        )
    return tuple(found)


def _edges(
    graph: Mapping[str, Any], groups: list[GroupBox], rates: Mapping[str, Any], record: Mapping[str, float]
) -> list[Edge]:
    home = {name: index for index, group in enumerate(groups) for name in group.fragments}
    edges = []
    for stream in _mappings(graph.get("streams")):
        name, source, target = (text(stream.get(key), 80) for key in ("name", "source", "target"))
        if source not in home or target not in home:
            continue
        crosses = home[source] != home[target]
        rate = _mapping(rates.get(f"{name}.{source}", rates.get(name))) if crosses else {}
        messages = number(rate.get("messages_per_second")) if rate else math.nan
        samples = f"queue/{name}" in record
        edges.append(
            Edge(
                name=name,
                source=home[source],
                target=home[target],
                fragments=(source, target),
                rhythm=text(stream.get("rhythm"), 20),
                delivery=text(stream.get("delivery"), 20),
                message_bytes=sum(_array_bytes(array) for array in _lists(stream.get("arrays"))),
                bytes_per_second=messages * number(rate.get("bytes_per_message")) if rate else math.nan,
                messages_per_second=messages,
                fill=record[f"queue/{name}"] if samples and crosses else math.nan,
                lag=record.get("lag", math.nan) if samples and crosses else math.nan,
            )
        )
    return edges


def _array_bytes(array: list[Any]) -> int:
    if len(array) != 3 or not isinstance(array[1], str) or not isinstance(array[2], list):
        return 0
    kind = array[1]
    digits = kind.lstrip("abcdefghijklmnopqrstuvwxyz")
    size = _SIZES.get(kind, int(digits) // 8 if digits.isdecimal() and len(digits) < 4 else 4)
    return size * math.prod(max(0, int(number(n))) for n in array[2])


def _notes(live: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"at": number(note.get("at")), "kind": text(note.get("kind"), 20), "text": text(note.get("text"), 2000)}
        for note in _mappings(live.get("notes"))
    ]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value[:MOST] if isinstance(one, Mapping)] if isinstance(value, list) else []


def _lists(value: Any) -> list[list[Any]]:
    return [one for one in value[:MOST] if isinstance(one, list)] if isinstance(value, list) else []
