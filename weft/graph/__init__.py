"""Fragments, streams, the graph they make, and what an algorithm is. No hosts, no devices."""

from weft.graph.algorithm import Algorithm
from weft.graph.fragment import Fragment, MapCode, Port
from weft.graph.graph import Graph
from weft.graph.role import Role, Wants, register_role
from weft.graph.stream import Delivery, Rhythm, Sharing, Stream

__all__ = [
    "Algorithm",
    "Delivery",
    "Fragment",
    "Graph",
    "MapCode",
    "Port",
    "Rhythm",
    "Role",
    "Sharing",
    "Stream",
    "Wants",
    "register_role",
]
