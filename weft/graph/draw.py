"""A graph as a picture in plain text: boxes for groups, lanes for the streams between them, a table of what passes.

``groups`` maps a label to the names of the fragments that run together; without it every fragment has its own box. A
plan is drawn by ``weft.plans``, which makes the labels. Sizes are those of one message, as its schema has it; with
``rates``, what a run has measured stands beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from weft.core.errors import GraphError
from weft.graph.describe import Rates, describe_bytes, describe_rate, describe_rhythm, describe_schema, rate_of
from weft.graph.graph import Graph
from weft.graph.stream import Stream

Groups: TypeAlias = Mapping[str, Sequence[str]]


def draw_text(graph: Graph, groups: Groups | None = None, rates: Rates | None = None) -> str:
    """The picture, several lines without a newline at the end; box-drawing characters, no colour.

    ``rates`` were measured on streams between groups: they are shown there, and nowhere else.
    """
    placed = check_groups(graph, groups)
    lines = [*_picture(graph, placed, titled=groups is not None), ""]
    return "\n".join([*lines, *_table(graph, placed, with_places=groups is not None, rates=rates)])


def check_groups(graph: Graph, groups: Groups | None) -> dict[str, tuple[str, ...]]:
    """The groups to draw, each of the graph's fragments in exactly one; one for each fragment where None were given."""
    if groups is None:
        return {name: (name,) for name in graph.names}
    drawn = [name for names in groups.values() for name in names]
    if sorted(drawn) != sorted(graph.names):
        raise GraphError(
            f"cannot draw: the groups hold {', '.join(drawn)}, and the graph's fragments are {', '.join(graph.names)}"
        )
    return {label: tuple(names) for label, names in groups.items()}


def is_fused(graph: Graph, names: Sequence[str]) -> bool:
    """Whether fragments that run together become one compiled program: all of them are pure."""
    return all(graph.fragment(name).pure for name in names)


def travels(graph: Graph, groups: Mapping[str, Sequence[str]], stream: Stream) -> str:
    """How a stream's messages go under these groups: ``fused``, ``in memory``, or ``between groups``."""
    group = next(names for names in groups.values() if stream.source in names)
    if stream.target not in group:
        return "between groups"
    return "fused" if is_fused(graph, group) else "in memory"


@dataclass
class _Lane:
    """A stream that crosses, drawn as a vertical line to the right of the boxes."""

    name: str
    start: int = 0  # the row of its source's port
    stop: int = 0  # the row of its target's port
    column: int = 0  # counted from the boxes outwards

    @property
    def rows(self) -> range:
        return range(min(self.start, self.stop), max(self.start, self.stop) + 1)


def _picture(graph: Graph, groups: Mapping[str, Sequence[str]], titled: bool) -> list[str]:
    crossing = [(s, _Lane(s.name)) for s in graph.streams if travels(graph, groups, s) == "between groups"]
    rows: list[tuple[str, str]] = []  # a fragment and one of its ports; or "top" or "bottom", and what its border says
    for label, names in groups.items():
        rows.append(("top", label if titled else ""))
        for name in names:
            fragment = name if graph.fragment(name).pure else f"{name} (host)"
            for stream, lane in crossing:
                if name not in (stream.source, stream.target):
                    continue
                if stream.source == name:
                    lane.start = len(rows)
                else:
                    lane.stop = len(rows)
                rows.append((fragment, stream.name))
                fragment = ""
            if fragment:
                rows.append((fragment, ""))
        inside = [s for s in graph.streams if s.source in names and s.target in names]
        rows.extend((f"  {s.source} ─{s.name}→ {s.target}", "") for s in inside)
        rows.append(("bottom", "one XLA program" if inside and is_fused(graph, names) else ""))
    lanes = [lane for _, lane in crossing]
    _assign_columns(lanes)
    return _render(rows, lanes)


def _assign_columns(lanes: list[_Lane]) -> None:
    """Short lanes near the boxes, long ones outside; two lanes that share a row never share a column."""
    placed: list[_Lane] = []
    for lane in sorted(lanes, key=lambda lane: len(lane.rows)):
        taken = {other.column for other in placed if set(other.rows) & set(lane.rows)}
        lane.column = next(column for column in range(len(lanes)) if column not in taken)
        placed.append(lane)


def _render(rows: list[tuple[str, str]], lanes: list[_Lane]) -> list[str]:
    width = max(max(len(left) + len(right) + 4 for left, right in rows), 24)
    lines = []
    for row, (left, right) in enumerate(rows):
        if left == "top":
            line = _border("╭╮", right, width)
        elif left == "bottom":
            line = _border("╰╯", right, width)
        else:
            gives, takes = (
                any(row == end for end in ends) for ends in ([x.start for x in lanes], [x.stop for x in lanes])
            )
            edge = "├" if gives else "◀" if takes else "│"
            line = f"│ {left}{' ' * (width - 4 - len(left) - len(right))}{right} {edge}"
        lines.append((line + _margin(row, lanes)).rstrip())
    return lines


def _border(corners: str, words: str, width: int) -> str:
    title = f" {words} " if words else ""
    return f"{corners[0]}─{title}{'─' * (width - 3 - len(title))}{corners[1]}"


def _margin(row: int, lanes: list[_Lane]) -> str:
    """What stands to the right of the boxes in a row: lines that pass, turn, or cross each other."""
    cells = [" "] * (3 * len(lanes) + 3)
    for lane in lanes:
        if row in lane.rows:
            cells[3 * lane.column + 2] = "│"
    for lane in lanes:
        if row not in (lane.start, lane.stop):
            continue
        turn = 3 * lane.column + 2
        for column in range(turn):
            cells[column] = "┼" if cells[column] == "│" else "─"
        cells[turn] = "╮" if row == lane.rows[0] else "╯"
    return "".join(cells)


def _table(
    graph: Graph, groups: Mapping[str, Sequence[str]], with_places: bool, rates: Rates | None = None
) -> list[str]:
    """A line for each stream: what, from where to where, how often, how large, how delivered, and the arrays."""
    if not graph.streams:
        return ["no streams"]
    columns: list[tuple[str, list[str]]] = [
        ("stream", [s.name for s in graph.streams]),
        ("from → to", [f"{s.source} → {s.target}" for s in graph.streams]),
    ]
    if with_places:
        columns.append(("goes", [travels(graph, groups, s) for s in graph.streams]))
    columns.append(("passes", [describe_rhythm(s) for s in graph.streams]))
    columns.append(("message", [describe_bytes(s.message_bytes) for s in graph.streams]))
    columns += _measured(graph, groups, rates) if rates else []
    columns.append(("if full", [s.delivery.value for s in graph.streams]))
    columns.append(("arrays", [describe_schema(s.schema) for s in graph.streams]))
    cells = [[head, *column] for head, column in columns]
    widths = [max(map(len, column)) for column in cells]
    numbers = {"message", *MEASURED}
    lines = []
    for row in zip(*cells, strict=True):
        set_out = [
            cell.rjust(width) if column[0] in numbers else cell.ljust(width)
            for cell, width, column in zip(row, widths, cells, strict=True)
        ]
        lines.append("  ".join(set_out).rstrip())
    return lines


MEASURED = ("messages/s", "each", "bytes/s")
"""The columns of what a run has measured."""


def _measured(graph: Graph, groups: Mapping[str, Sequence[str]], rates: Rates) -> list[tuple[str, list[str]]]:
    columns: tuple[list[str], ...] = ([], [], [])
    for stream in graph.streams:
        rate = rate_of(rates, stream) if travels(graph, groups, stream) == "between groups" else None
        if rate is None:
            words = ("", "", "")
        else:
            per_second = f"{describe_bytes(round(rate.bytes_per_second))}/s"
            words = (describe_rate(rate.messages_per_second), describe_bytes(rate.bytes_per_message), per_second)
        for column, word in zip(columns, words, strict=True):
            column.append(word)
    return list(zip(MEASURED, columns, strict=True))
