"""A graph as a Mermaid flowchart, for pages that render it: subgraphs for groups, thick arrows between them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from weft.graph.describe import Rates, describe_bytes, describe_rate, describe_rhythm, describe_schema, rate_of
from weft.graph.draw import Groups, check_groups, travels
from weft.graph.graph import Graph

_ENTITIES = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;"}


def draw_mermaid(graph: Graph, groups: Groups | None = None, rates: Rates | None = None) -> str:
    """The flowchart's source, without a code fence. Arguments as in ``draw_text``; without groups, no subgraphs.

    Within a group arrows are thin; between groups they are thick. Host fragments have double sides.
    """
    placed = check_groups(graph, groups)
    ids = _ids(graph.names)
    lines = ["flowchart LR"]
    for number, (label, names) in enumerate(placed.items()):
        nodes = [f"{ids[name]}{_node(name, graph.fragment(name).pure)}" for name in names]
        if groups is None:
            lines += [f"    {node}" for node in nodes]
        else:
            title = f"    subgraph group{number}[{_text(label)}]"
            lines += [title, *(f"        {node}" for node in nodes), "    end"]
    for stream in graph.streams:
        arrow = "==>" if groups is not None and travels(graph, placed, stream) == "between groups" else "-->"
        what = [
            stream.name,
            describe_schema(stream.schema),
            f"{describe_bytes(stream.message_bytes)} {describe_rhythm(stream)}",
        ]
        if rates and arrow == "==>" and (rate := rate_of(rates, stream)) is not None:
            each = describe_bytes(rate.bytes_per_message)
            what.append(f"measured: {describe_rate(rate.messages_per_second)} of {each}")
        lines.append(f"    {ids[stream.source]} {arrow}|{_text(*what)}| {ids[stream.target]}")
    return "\n".join(lines)


def _node(name: str, pure: bool) -> str:
    return f"[{_text(name)}]" if pure else f"[[{_text(name, 'host')}]]"


def _text(*lines: str) -> str:
    """A quoted label, with what Mermaid would read as its own syntax escaped."""
    escaped = ("".join(_ENTITIES.get(character, character) for character in line) for line in lines)
    return f'"{"<br/>".join(escaped)}"'


def _ids(names: Iterable[str]) -> dict[str, str]:
    """An identifier for each fragment: prefixed, since words such as ``end`` are Mermaid's own, and unique."""
    ids: dict[str, str] = {}
    for name in names:
        wanted = "f_" + re.sub(r"\W", "_", name, flags=re.ASCII)
        while wanted in ids.values():
            wanted += "_"
        ids[name] = wanted
    return ids
