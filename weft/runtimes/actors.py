"""What the graph says of the fragments that act: which they are, for which team, and where their params come from."""

from __future__ import annotations

from weft.core.errors import GraphError
from weft.graph.graph import Graph
from weft.graph.stream import Delivery, Rhythm
from weft.runtimes.compiled.rollout import Actor
from weft.runtimes.stage import Leg


def steps_of(graph: Graph) -> str:
    """The fragment that owns the environments."""
    found = [f.name for f in graph.fragments if f.role.makes_steps]
    if len(found) != 1:
        raise GraphError(
            f"a graph needs exactly one fragment that steps environments, got {', '.join(found) or 'none'}"
        )
    return found[0]


def act_names(graph: Graph) -> list[str]:
    """The fragments that act, in the graph's order."""
    names = [f.name for f in graph.fragments if f.role.every_step and not f.role.makes_steps]
    if not names:
        raise GraphError("a graph needs a fragment that acts for its environments")
    return names


def team_of(graph: Graph, act: str) -> str:
    """The team that an act sees: what follows the dot in its stream of timesteps; empty where there are no teams."""
    seen = next(s.name for s in graph.into(act) if s.rhythm is Rhythm.STEP)
    return seen.partition(".")[2]


def actors_of(graph: Graph) -> list[Actor]:
    """The fragments that act, with their bound algorithms and their teams."""
    return [
        Actor(name, graph.fragment(name).code, team_of(graph, name), _finals_of(graph, name))
        for name in act_names(graph)
    ]


def params_legs(graph: Graph) -> dict[str, Leg]:
    """For each act, the leg on which its params come."""
    legs = {}
    for name in act_names(graph):
        stream = next(s for s in graph.into(name) if s.delivery is Delivery.LATEST)
        legs[name] = (stream.source, stream.name)
    return legs


def publishers_of(graph: Graph) -> list[str]:
    """The fragments whose state is the run's, in the graph's order."""
    return [f.name for f in graph.fragments if f.role.publishes]


def learner_of(graph: Graph, act: str) -> str | None:
    """The fragment whose params an act gets as they are; None where a map changes them on their way."""
    source = params_legs(graph)[act][0]
    return source if graph.fragment(source).role.publishes else None


def unroll_stream(graph: Graph, act: str) -> str:
    """The name of the stream of messages that an act gives."""
    return next(s.name for s in graph.out_of(act) if s.counted)


def _finals_of(graph: Graph, act: str) -> int:
    """How many final observations an act's unrolls have room for, as the graph declares them."""
    schema = graph.fragment(act).output(unroll_stream(graph, act)).schema
    finals = getattr(schema, "finals", None)
    return 0 if finals is None else int(finals.step.shape[0])


def goes_unmarked(graph: Graph, name: str) -> bool:
    """Whether an act's unrolls come to learn without marks of valid records where all of their records are.

    Learn then computes, to the last bit, as for an environment that never fails, and as quickly. Maps see what the
    graph declares; and an environment that has invalid records all the time is always computed in the same way.
    """
    if not graph.fragment(name).role.every_step:
        return False
    spec = graph.fragment(name).code.spec.environment
    eaters = [graph.fragment(s.target).role for s in graph.out_of(name) if s.counted]
    return spec.may_fail and not spec.next_step_reset and all(role.computes_gradients for role in eaters)


def samples_eaten(graph: Graph, publishers: list[str], made: int) -> dict[str, int]:
    """Environment steps in one learn call of each learner, where an act makes ``made`` of them in an unroll.

    A map may hand on more or fewer steps than it takes: the lengths in time say in which ratio.
    """
    eaten = {}
    for name in publishers:
        lengths = [_length(graph, name), _length(graph, next(n for n in act_names(graph)), outgoing=True)]
        eaten[name] = made * lengths[0] // lengths[1] if all(lengths) else made
    return eaten


def _length(graph: Graph, name: str, *, outgoing: bool = False) -> int:
    streams = graph.out_of(name) if outgoing else graph.into(name)
    rewards = [getattr(s.schema, "reward", None) for s in streams if s.counted]
    found = [r.shape[0] for r in rewards if r is not None and len(r.shape) > 1]
    return int(found[0]) if found else 0
