"""A graph under a plan, as a picture: the plan's groups become the boxes."""

from __future__ import annotations

from weft.graph.describe import Rates
from weft.graph.draw import draw_text as draw_graph_text
from weft.graph.graph import Graph
from weft.graph.mermaid import draw_mermaid as draw_graph_mermaid
from weft.graph.split import split
from weft.plans.plan import Plan


def draw_text(graph: Graph, plan: Plan | None = None, rates: Rates | None = None) -> str:
    """The graph in plain text, in the groups of a resolved ``plan`` where one is given; loads JAX to read shapes.

    ``rates``: what a run under this plan has measured between the groups.
    """
    if plan is None:
        return draw_graph_text(graph)
    return draw_graph_text(split(graph, plan.fragments), _groups(plan), rates)


def draw_mermaid(graph: Graph, plan: Plan | None = None, rates: Rates | None = None) -> str:
    """The graph as a Mermaid flowchart; arguments as in ``draw_text``; loads JAX."""
    if plan is None:
        return draw_graph_mermaid(graph)
    return draw_graph_mermaid(split(graph, plan.fragments), _groups(plan), rates)


def _groups(plan: Plan) -> dict[str, tuple[str, ...]]:
    return {str(group): group.fragments for group in plan.groups}
