"""A graph as a plan cuts it: a fragment that the plan names by its parts is drawn, and wired, as those parts."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from weft.graph.fragment import Fragment, Port
from weft.graph.graph import Graph
from weft.graph.stream import Rhythm, Stream
from weft.plans.plan import Plan


def split(graph: Graph, plan: Plan) -> Graph:
    """The graph whose fragments are those that ``plan`` names: learn as grad and apply where the plan separates them.

    The first part takes what the fragment took, the last gives what it gave. Gradients pass from part to part, with the
    shapes of the params (the fragment's first output), and the params go back to the first part.
    """
    for fragment in graph.fragments:
        if fragment.parts and fragment.name not in plan.fragments:
            graph = _split(graph, fragment)
    return graph


def _split(graph: Graph, fragment: Fragment) -> Graph:
    parts = fragment.parts
    params = fragment.outputs[0]
    gradients = Port(_free_name("gradients", graph), params.schema)
    pieces = []
    for index, part in enumerate(parts):
        first, last = index == 0, index == len(parts) - 1
        inputs = (*fragment.inputs, params) if first else (gradients,)
        outputs = fragment.outputs if last else (gradients,)
        pieces.append(replace(fragment, name=part, inputs=inputs, outputs=outputs, parts=(), init=None, step=None))
    rewired = [
        replace(
            stream,
            source=parts[-1] if stream.source == fragment.name else stream.source,
            target=parts[0] if stream.target == fragment.name else stream.target,
        )
        for stream in graph.streams
    ]
    chain = [Stream(gradients.name, a, b, gradients.schema, rhythm=Rhythm.UPDATE) for a, b in pairwise(parts)]
    delivery = next((s.delivery for s in graph.streams if s.source == fragment.name and s.name == params.name), None)
    back = Stream(params.name, parts[-1], parts[0], params.schema, rhythm=Rhythm.UPDATE)
    chain.append(replace(back, delivery=delivery) if delivery else back)
    at = graph.names.index(fragment.name)
    return Graph((*graph.fragments[:at], *pieces, *graph.fragments[at + 1 :]), (*rewired, *chain))


def _free_name(name: str, graph: Graph) -> str:
    taken = {port.name for f in graph.fragments for port in (*f.inputs, *f.outputs)}
    while name in taken:
        name += "_"
    return name
