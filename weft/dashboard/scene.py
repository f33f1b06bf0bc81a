"""The dataflow as shapes to draw: computed here once, drawn by the page (live) and by the report (as SVG).

Wide, the groups stand side by side in the order in which data passes; streams between neighbours run in the gap, each
at its own height, and the others below. Narrow, for a phone, the groups stand one above the other.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from weft.dashboard.dataflow import Dataflow, Edge, GroupBox
from weft.graph.describe import describe_bytes, describe_rate

ROOMY, TIGHT = (218, 172), (176, 118)  # the widths of a group's box and of the gap between two: of few, of many
PAD = 14  # the space inside a box
ROW, EDGE = 20, 66  # the height of a line in a box, and of a stream in a gap
NARROW = 340  # the width of the narrow picture
LISTED = 8  # replicas that have a line each; of more, each has a square
MARGIN = 12
FRAME = 22  # above the boxes of one process, for its name


class Shapes:
    """Collects shapes; each has an ``id``, under which the page finds it again when it draws the next picture."""

    def __init__(self) -> None:
        self.shapes: list[dict[str, Any]] = []
        self.width = self.height = 0.0

    def rect(self, ident: str, x: float, y: float, w: float, h: float, cls: str, r: float = 0, tip: str = "") -> None:
        """A rectangle with corners of radius ``r``."""
        self._add("rect", ident, cls, tip, x=x, y=y, width=max(0.0, w), height=h, rx=r)

    def text(self, ident: str, x: float, y: float, words: str, cls: str, anchor: str = "start") -> None:
        """Words whose baseline begins, ends or has its middle at ``(x, y)``."""
        self._add("text", ident, cls, "", x=x, y=y, words=words, anchor=anchor)

    def path(self, ident: str, d: str, cls: str, width: float, tip: str = "", seconds: float = 0.0) -> None:
        """A line; ``seconds`` is how long its dashes take for their way, 0 where they stand still."""
        self._add("path", ident, cls, tip, d=d, stroke=width, seconds=seconds)

    def _add(self, kind: str, ident: str, cls: str, tip: str, **values: Any) -> None:
        shape = {"kind": kind, "id": ident, "cls": cls}
        if tip:
            shape["tip"] = tip
        self.shapes.append(shape | {n: round(v, 2) if isinstance(v, float) else v for n, v in values.items()})

    def to_json(self) -> dict[str, Any]:
        """The picture: its size and its shapes, in the order in which they are drawn."""
        return {"width": round(self.width, 1), "height": round(self.height, 1), "shapes": self.shapes}


def draw_scene(flow: Dataflow, *, narrow: bool = False) -> Shapes:
    """The picture of a dataflow; empty where there is no group."""
    shapes = Shapes()
    if not flow.groups:
        return shapes
    most = max((e.bytes_per_second for e in flow.edges if math.isfinite(e.bytes_per_second)), default=0.0)
    alone = len(flow.groups) == 1 and len(flow.groups[0].fragments) > 1
    drawn, lift = (_opened(flow), FRAME) if alone else (flow, 0)
    if alone:
        shapes.rect("frame", 1, 1, 1, 1, "frame", 14)  # behind everything; its size is known at the end
    (_narrow if narrow else _wide)(shapes, drawn, most, lift)
    if alone:
        group = flow.groups[0]
        together = "one process" if group.host_code else "one XLA program"
        copies = f", {group.replicas} replicas" if group.replicas > 1 else ""
        shapes.shapes[0] |= {"width": shapes.width - 2, "height": shapes.height - 2}
        shapes.text("frame.t", MARGIN + 4, 24, f"{together}{copies}", "small")
    return shapes


def _opened(flow: Dataflow) -> Dataflow:
    """One group that is all there is, drawn fragment by fragment: there is nothing else to see."""
    (group,) = flow.groups
    boxes = tuple(
        GroupBox(
            label=name,
            fragments=(name,),
            host_code=tuple(n for n in group.host_code if n == name),
            replicas=1,
            device=group.device,
            workers=group.workers if k == 0 else (),
            shares={stage: part for stage, part in group.shares.items() if stage.split("+")[0] == name},
            bound=group.bound and flow.advice.startswith(f"{name}-bound"),
        )
        for k, name in enumerate(group.fragments)
    )
    at = {name: k for k, name in enumerate(group.fragments)}
    edges = tuple(replace(e, source=at[e.fragments[0]], target=at[e.fragments[1]]) for e in flow.edges)
    return replace(flow, groups=boxes, edges=edges)


def _wide(shapes: Shapes, flow: Dataflow, most: float, lift: float) -> None:
    crossing = [(k, e) for k, e in enumerate(flow.edges) if e.crosses]
    beside: dict[int, list[tuple[int, Edge]]] = {}  # by the left one of two neighbours
    around = []
    for k, edge in crossing:
        if abs(edge.source - edge.target) == 1:
            beside.setdefault(min(edge.source, edge.target), []).append((k, edge))
        else:
            around.append((k, edge))
    tallest = max(max((len(found) for found in beside.values()), default=0) * EDGE + 8, 0)
    heights = [_box_height(flow, group) for group in flow.groups]
    height = max(*heights, tallest, 60)
    box, gap = ROOMY if len(flow.groups) <= 3 else TIGHT
    lefts = [MARGIN + k * (box + gap) for k in range(len(flow.groups))]
    top = MARGIN + 8 + lift
    shapes.width = lefts[-1] + box + MARGIN
    shapes.height = top + height + MARGIN + (len(around) * 40 + 22 if around else 0)
    for left, found in beside.items():
        room = height / len(found)
        for row, (k, edge) in enumerate(found):
            y = top + room * (row + 0.5) + 6
            begin, end = lefts[left] + box, lefts[left + 1]
            forward = edge.source < edge.target
            _line(shapes, k, edge, (begin, y, end, y) if forward else (end, y, begin, y), most)
            _label(shapes, k, edge, (begin + end) / 2, y, "middle")
    for row, (k, edge) in enumerate(around):
        y = top + height + 36 + row * 40
        a = lefts[edge.source] + box * (0.35 + 0.06 * row)
        b = lefts[edge.target] + box * (0.65 - 0.06 * row)
        _line(shapes, k, edge, (a, top + height, b, top + height), most, bend=y)
        _label(shapes, k, edge, (a + b) / 2, y, "middle")
    for k, group in enumerate(flow.groups):
        _box(shapes, k, flow, group, lefts[k], top, box, height)


def _narrow(shapes: Shapes, flow: Dataflow, most: float, lift: float) -> None:
    crossing = [(k, e) for k, e in enumerate(flow.edges) if e.crosses]
    around = [(k, e) for k, e in crossing if abs(e.source - e.target) != 1]
    side = 26 * len(around)
    width, y = NARROW - 2 * MARGIN - side, float(MARGIN + 8 + lift)
    spans = []
    for k, group in enumerate(flow.groups):
        height = _box_height(flow, group)
        spans.append((y, y + height))
        _box(shapes, k, flow, group, MARGIN, y, width, height)
        y += height
        between = [(i, e) for i, e in crossing if {e.source, e.target} == {k, k + 1}]
        gap = 74 if between else 26
        for column, (i, edge) in enumerate(between):
            x = MARGIN + 26 + column * (width - 30) / max(1, len(between))
            ends = (x, y, x, y + gap) if edge.source == k else (x, y + gap, x, y)
            _line(shapes, i, edge, ends, most)
            _label(shapes, i, edge, x + 12, y + gap / 2 + 2, "start", stacked=True)
        y += gap if k + 1 < len(flow.groups) else 0
    for row, (k, edge) in enumerate(around):
        x = MARGIN + width
        a, b = (spans[index][0] + 30 + 10 * row for index in (edge.source, edge.target))
        _line(shapes, k, edge, (x, a, x, b), most, bend=x + 18 + 26 * row, across=True)
    shapes.width, shapes.height = NARROW, y + MARGIN


def _box_height(flow: Dataflow, group: GroupBox) -> float:
    inside = sum(1 for e in flow.edges if not e.crosses and e.fragments[0] in group.fragments)
    rows = len(group.shares) + inside
    rows += 1 if not rows and not group.workers else 0
    if group.workers:
        rows += len(group.workers) if len(group.workers) <= LISTED else math.ceil(len(group.workers) / 13)
    return 50 + rows * ROW + PAD + (6 if group.shares else 0) + (8 if group.workers else 0) + (6 if inside else 0)


def _box(
    shapes: Shapes, k: int, flow: Dataflow, group: GroupBox, x: float, y: float, width: float, height: float
) -> None:
    shapes.rect(f"g{k}", x, y, width, height, "group bound" if group.bound else "group", 10)
    copies = f" ×{group.replicas}" if group.replicas > 1 else ""
    shapes.text(f"g{k}.t", x + PAD, y + 26, _cut(group.label + copies, int(width / 9)), "title")
    if group.bound:
        shapes.rect(f"g{k}.m", x + width - PAD - 80, y - 9, 80, 18, "mark", 9)
        shapes.text(f"g{k}.mt", x + width - PAD - 40, y + 4, "bottleneck", "marked", "middle")
    pure = "host code" if group.host_code else "one XLA program" if len(group.fragments) > 1 else "compiled"
    shapes.text(f"g{k}.s", x + PAD, y + 42, f"{pure}{f' · {group.device}' if group.device else ''}", "small")
    at = y + 50 + ROW * 0.75 + 4
    for stage, share in group.shares.items():
        own = stage == "+".join(group.fragments)
        label = ("busy" if flow.in_workers else "time") if own else stage
        _bar(shapes, f"g{k}.b.{stage}", x + PAD, at, width - 2 * PAD, label, share)
        at += ROW
    at += 6 if group.shares else 0
    at = _workers(shapes, k, group, x, at + (2 if group.workers else 0), width)
    inside = [(n, e) for n, e in enumerate(flow.edges) if not e.crosses and e.fragments[0] in group.fragments]
    for n, edge in inside:
        size = describe_bytes(edge.message_bytes)
        shapes.text(
            f"e{n}.in", x + PAD, at, _cut(f"{edge.fragments[0]} → {edge.fragments[1]}", int(width / 12)), "small"
        )
        shapes.text(f"e{n}.is", x + width - PAD, at, _cut(f"{edge.name} {size}", int(width / 11)), "small dim", "end")
        at += ROW


def _workers(shapes: Shapes, k: int, group: GroupBox, x: float, at: float, width: float) -> float:
    if len(group.workers) <= LISTED:
        for n, worker in enumerate(group.workers):
            shapes.rect(f"g{k}.w{n}", x + PAD, at - 9, 9, 9, f"worker {_class(worker.state)}", 3)
            words = worker.name if worker.state in ("ready", "ended", "") else f"{worker.name} · {worker.state}"
            shapes.text(f"g{k}.wn{n}", x + PAD + 16, at, _cut(words, 26), "row")
            if worker.life:
                lives = f"life {worker.life + 1}"
                shapes.text(f"g{k}.wl{n}", x + width - PAD, at, lives, "row again", "end")
            elif math.isfinite(worker.busy):
                shapes.text(f"g{k}.wb{n}", x + width - PAD, at, f"{worker.busy:.0%}", "row dim", "end")
            at += ROW
        return at + (6 if group.workers else 0)
    across = int((width - 2 * PAD) // 14)
    for n, worker in enumerate(group.workers):
        left, down = x + PAD + (n % across) * 14, at - 10 + (n // across) * 14
        life = f", life {worker.life + 1}" if worker.life else ""
        tip = f"{worker.name}: {worker.state}{life}"
        shapes.rect(f"g{k}.w{n}", left, down, 10, 10, f"worker {_class(worker.state)}", 3, tip)
    return at + math.ceil(len(group.workers) / across) * 14 + 8


def _bar(shapes: Shapes, ident: str, x: float, y: float, width: float, label: str, share: float) -> None:
    name = 58 if width > 160 else 44
    begin, room = x + name, width - name - 38
    shapes.text(f"{ident}.n", x, y, _cut(label, 9), "row dim")
    shapes.rect(f"{ident}.r", begin, y - 8, room, 7, "rail", 3.5)
    shapes.rect(f"{ident}.f", begin, y - 8, max(2.0, room * min(max(share, 0.0), 1.0)), 7, "fill", 3.5)
    shapes.text(f"{ident}.p", x + width, y, f"{share:.0%}", "row", "end")


def _line(
    shapes: Shapes,
    k: int,
    edge: Edge,
    ends: tuple[float, float, float, float],
    most: float,
    bend: float | None = None,
    across: bool = False,
) -> None:
    """A stream's line, as wide as its bytes per second, on a logarithmic scale; an arrowhead at its end."""
    x0, y0, x1, y1 = ends
    known = math.isfinite(edge.bytes_per_second)
    width = 1.5
    if known and edge.bytes_per_second > 0 and most > 0:
        # Four decades below the widest are as thin as a line can be.
        width = 1.5 + 7.5 * max(0.0, 1 + math.log10(edge.bytes_per_second / most) / 4)
    head = 5 + width * 0.7
    tip = _tip(edge)
    seconds = 0.0
    if known and edge.messages_per_second > 0:
        seconds = min(4.0, max(0.4, 2.4 - 0.5 * math.log10(edge.messages_per_second)))
    if bend is None:
        dx, dy = (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0)
        d = f"M{x0:.1f},{y0:.1f} L{x1 - dx * head:.1f},{y1 - dy * head:.1f}"
        arrow = _arrow(x1, y1, dx, dy, head)
    elif across:
        d = f"M{x0:.1f},{y0:.1f} L{bend - 8:.1f},{y0:.1f} Q{bend:.1f},{y0:.1f} {bend:.1f},{y0 + _sign(y1 - y0) * 8:.1f}"
        d += f" L{bend:.1f},{y1 - _sign(y1 - y0) * 8:.1f} Q{bend:.1f},{y1:.1f} {bend - 8:.1f},{y1:.1f}"
        d += f" L{x1 + head:.1f},{y1:.1f}"
        arrow = _arrow(x1, y1, -1, 0, head)
    else:
        side = _sign(x1 - x0) * 10
        d = f"M{x0:.1f},{y0:.1f} L{x0:.1f},{bend - 10:.1f} Q{x0:.1f},{bend:.1f} {x0 + side:.1f},{bend:.1f}"
        d += f" L{x1 - side:.1f},{bend:.1f} Q{x1:.1f},{bend:.1f} {x1:.1f},{bend - 10:.1f} L{x1:.1f},{y1 + head:.1f}"
        arrow = _arrow(x1, y1, 0, -1, head)
    shapes.path(f"e{k}", d, "stream" if known else "stream unmeasured", width, tip)
    if seconds:
        shapes.path(f"e{k}.flow", d, "flow", max(1.2, width * 0.45), tip, seconds)
    shapes.path(f"e{k}.head", arrow, "head", 0, tip)


def _label(shapes: Shapes, k: int, edge: Edge, x: float, y: float, anchor: str, stacked: bool = False) -> None:
    """The name and below it what passes; then, of samples, how full the stream is and how old what is in it."""
    if math.isfinite(edge.bytes_per_second):
        words = [f"{describe_bytes(round(edge.bytes_per_second))}/s"]
    else:
        words = [f"{describe_bytes(edge.message_bytes)} every {edge.rhythm}"]
    more = [f"lag {edge.lag:.1f}"] if math.isfinite(edge.lag) else []
    more += [f"{edge.fill:.0%} full"] if math.isfinite(edge.fill) else []
    words += [" · ".join(more)] if more else []
    below = 5 if stacked else 19
    shapes.text(f"e{k}.n", x, y - 10, _cut(edge.name, 22), "name", anchor)
    for n, line in enumerate(words):
        shapes.text(f"e{k}.r{n}", x, y + below + 14 * n, line, "rate", anchor)


def _tip(edge: Edge) -> str:
    parts = [f"{edge.name}: {edge.fragments[0]} → {edge.fragments[1]}, every {edge.rhythm}"]
    parts.append(f"{describe_bytes(edge.message_bytes)} for all environments together; if full: {edge.delivery}")
    if math.isfinite(edge.messages_per_second):
        parts.append(f"{describe_rate(edge.messages_per_second)} messages")
    return "\n".join(parts)


def _arrow(x: float, y: float, dx: float, dy: float, head: float) -> str:
    half = head * 0.62
    a = (x - dx * head + dy * half, y - dy * head + dx * half)
    b = (x - dx * head - dy * half, y - dy * head - dx * half)
    return f"M{x:.1f},{y:.1f} L{a[0]:.1f},{a[1]:.1f} L{b[0]:.1f},{b[1]:.1f} Z"


def _class(state: str) -> str:
    return {"ready": "ready", "starting": "starting", "gone": "gone", "given up": "gone"}.get(state, "ended")


def _cut(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
