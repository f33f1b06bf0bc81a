"""A ring is written in place, in the program that also draws from it: a copy of all that is held would be seen.

Where a single batch is drawn for each unroll XLA still makes one: it fuses the write into what is drawn.
"""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import pytest

import weft
from weft.core.specs import Box, EnvSpec
from weft.runtimes.flow import Flow

SLOTS = 4321
SPEC = EnvSpec("toys:Flat", Box((3,)), Box((1,), "float32", -1.0, 1.0), max_episode_steps=100)


@pytest.mark.parametrize("prioritised", [False, True])
def test_nothing_of_the_size_of_the_ring_is_copied(prioritised):
    sizes = {"unroll": 1, "hidden": (8,), "batch": 8, "capacity": SLOTS, "learning_begins": 1}
    algorithm = weft.SAC(**sizes, samples_per_insert=8.0 * 3, prioritised=prioritised)
    graph = algorithm.bind(weft.Spec(SPEC, 1, 10, 100)).graph()
    flow = Flow(graph, ["replay", "learn"])
    states = jax.eval_shape(flow.init_pure, jax.ShapeDtypeStruct((), jnp.int32))
    (unroll,) = (s.schema for s in graph.streams if s.name == "unroll")

    def run(held, learner, unroll):
        return flow.run({"replay": held, "learn": learner}, {("act", "unroll"): [unroll]}, {})

    text = jax.jit(run, donate_argnums=0).lower(states["replay"], states["learn"], unroll).compile().as_text()
    assert re.search(rf"\[{SLOTS},", text)
    copies = [line.strip()[:90] for line in text.splitlines() if re.search(rf"= \w+\[{SLOTS},\S* copy\(", line)]
    assert copies == []
