"""A replay is changed in place by the programs that also draw from it: a copy of what is held would be seen in them.

Memory that a program takes besides what it is given is looked at, and not only copies by their name: XLA may write what
it has copied in many ways.
"""

from __future__ import annotations

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weft
from weft.core.specs import Box, EnvSpec
from weft.envs.builtin import load
from weft.runtimes.compiled.engine import FusedEngine
from weft.runtimes.compiled.replicas import Layout
from weft.runtimes.flow import Flow

SLOTS = 43_210
SPEC = EnvSpec("toys:Flat", Box((3,)), Box((1,), "float32", -1.0, 1.0), max_episode_steps=100)
SIZES = {"unroll": 1, "hidden": (8,), "batch": 8, "capacity": SLOTS, "learning_begins": 1}


def assert_in_place(compiled, held) -> None:
    """That a program copies nothing of ``held``, and has no room to: the smallest part of it are flags."""
    large = [x for x in jax.tree.leaves(held) if x.shape and x.shape[0] >= SLOTS]
    assert min(math.prod(x.shape) * np.dtype(x.dtype).itemsize for x in large) == SLOTS
    text = compiled.as_text()
    copies = [line.strip()[:90] for line in text.splitlines() if re.search(rf"= \w+\[{SLOTS},\S* copy\(", line)]
    assert re.search(rf"\[{SLOTS},", text)
    assert copies == []
    assert compiled.memory_analysis().temp_size_in_bytes < SLOTS


@pytest.mark.parametrize(
    ("draws", "fields"),
    [(1, {}), (3, {}), (1, {"prioritised": True}), (3, {"prioritised": True}), (1, {"n_step": 3})],
)
def test_a_program_around_host_environments_copies_nothing_that_is_held(draws, fields):
    algorithm = weft.SAC(**SIZES, samples_per_insert=8.0 * draws, **fields)
    graph = algorithm.bind(weft.Spec(SPEC, 1, 10, 100)).graph()
    flow = Flow(graph, ["replay", "learn"])
    states = jax.eval_shape(flow.init_pure, jax.ShapeDtypeStruct((), jnp.int32))
    (unroll,) = (s.schema for s in graph.streams if s.name == "unroll")
    assert graph.fragment("replay").code.draws(unroll) == draws

    def run(held, learner, unroll):
        return flow.run({"replay": held, "learn": learner}, {("act", "unroll"): [unroll]}, {})

    compiled = jax.jit(run, donate_argnums=0).lower(states["replay"], states["learn"], unroll).compile()
    assert_in_place(compiled, states["replay"])


@pytest.mark.parametrize("prioritised", [False, True])
def test_a_compiled_run_copies_nothing_that_is_held(prioritised):
    env = load("Pendulum-v1")
    algorithm = weft.SAC(**SIZES, samples_per_insert=8.0, prioritised=prioritised)
    graph = algorithm.bind(weft.Spec(env.spec, 1, 10, 100)).graph()
    engine = FusedEngine(graph, env, Layout((jax.devices()[0],)), 1, 0)
    state = engine.template()
    assert_in_place(engine._run.lower(engine.values, state, jnp.int32(1)).compile(), state.fragments["replay"])
