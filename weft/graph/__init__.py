"""Fragments, streams, the graph they make, and what an algorithm is. No hosts, no devices."""

from weft.graph.algorithm import Algorithm
from weft.graph.fragment import Fragment, Port
from weft.graph.graph import Graph
from weft.graph.stream import Delivery, Rhythm, Stream

__all__ = ["Algorithm", "Delivery", "Fragment", "Graph", "Port", "Rhythm", "Stream"]
