"""What passes along each wire: arrays for a lane's environments, and act's extras where nobody finds them again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest
from drafts import UNROLL, drafted, same

import weft
from weft.core.errors import ConfigError, GraphError
from weft.core.specs import Box, Discrete, EnvSpec, Spec
from weft.graph.graph import Graph
from weft.runtimes.hosted.blocks import Block
from weft.runtimes.hosted.programs import can_recall
from weft.runtimes.workers.layout import schemas as schemas_module
from weft.runtimes.workers.layout.blueprint import Wire
from weft.runtimes.workers.layout.schemas import Schemas, array_specs_of

ENVS, ROWS = 8, 4


@dataclass(frozen=True)
class Changed(weft.A2C):
    """A2C whose graph is changed by a function."""

    change: Callable[[Graph], Graph] = lambda graph: graph

    def graph(self) -> Graph:
        return self.change(super().graph())


@dataclass(frozen=True)
class Proximal(weft.PPO):
    """PPO whose graph is changed by a function; it has extras that learn needs."""

    change: Callable[[Graph], Graph] = lambda graph: graph

    def graph(self) -> Graph:
        return self.change(super().graph())


def schemas(
    plan: str, kind: type = Proximal, *, pure_env: bool = False, lockstep: bool = True, **fields: Any
) -> Schemas:
    spec = EnvSpec("schemas:Env", Box((3,)), Discrete(2), pure=pure_env)
    algorithm = kind(**{"unroll": UNROLL, "hidden": (8,), **fields}).with_spec(Spec(spec, ENVS, 10))
    graph = algorithm.graph()
    return Schemas(drafted(plan, ENVS, graph=graph, ring=1, lockstep=lockstep), algorithm, pure_env=pure_env)


def mapped(graph: Graph) -> Graph:
    return graph.insert("mine", same)


def on_params(graph: Graph) -> Graph:
    return graph.insert("mine", same, on="params")


def act_wire(found: Schemas) -> Wire:
    return next(w for w in found.blueprint.wires if w.samples and w.source == "act")


@pytest.mark.parametrize(
    ("plan", "options", "recalls"),
    [
        ("env*2 | act | learn", {}, True),
        ("env*2 | act | learn*2", {}, True),
        ("(env+act)*2 | learn", {}, True),
        ("env*2 | act | learn", {"pure_env": True}, True),
        ("env*2 | act | grad | apply", {"kind": Changed}, True),
        ("(env+act)*2 | mine+learn", {"change": mapped}, True),
        ("env*2 | act | learn", {"lockstep": False}, False),
        ("env*2 | act | learn", {"recurrent": "gru"}, False),
        ("(env+act)*2 | learn", {"pure_env": True}, False),
        ("(env+act)*2 | mine | learn", {"change": mapped}, False),
        ("(env+act)*2 | learn+mine", {"change": on_params}, False),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_extras_are_found_again_only_where_the_reader_has_acts_own_params_and_noise(plan, options, recalls):
    found = schemas(plan, **options)
    wire = act_wire(found)
    assert found.recalls(wire) is recalls
    assert found.sends_extras(wire) is not recalls
    block = found.form(wire).schema
    assert isinstance(block, Block)
    sent = jax.tree.leaves(block.extras)
    assert bool(sent) is not recalls


def test_in_lockstep_large_networks_are_recalled_too_and_an_act_is_looked_at_once(monkeypatch):
    asked = []

    def counted(algorithm):
        asked.append(algorithm)
        return can_recall(algorithm)

    monkeypatch.setattr(schemas_module, "can_recall", counted)
    small, large = schemas("(env+act)*4 | learn"), schemas("(env+act)*4 | learn", hidden=(512, 512))
    assert small.recalls(act_wire(small))
    assert large.recalls(act_wire(large)), "its numbers must not depend on how many environments an act has"
    small.channels()
    assert len(asked) == 2


def test_what_a_map_gives_has_the_extras_that_it_was_given():
    found = schemas("(env+act)*2 | mine | learn", change=mapped)
    wire = next(w for w in found.blueprint.wires if w.source == "mine")
    unroll = found.form(wire).schema
    assert isinstance(unroll, weft.Unroll)
    assert unroll.reward.shape == (UNROLL, ROWS)
    extras = found.graph.stream("unroll").schema.extras
    assert set(unroll.extras) == set(extras)
    assert extras, "PPO remembers log-probabilities and values"
    assert not found.recalls(wire)


def test_wires_carry_a_lanes_environments():
    found = schemas("env*2 | act | learn")
    specs = found.channels()
    assert list(specs) == [wire.name for wire in found.blueprint.wires]
    for wire in found.blueprint.wires:
        spec, form = specs[wire.name], found.form(wire)
        assert (spec.capacity, spec.delivery, spec.scheme) == (wire.capacity, wire.delivery, wire.scheme)
        shapes = [(array.shape, array.dtype) for array in spec.arrays]
        assert shapes == [(s.shape, str(s.dtype)) for s in jax.tree.leaves(form.schema)]
        axes = set(jax.tree.leaves(form.axes))
        assert axes <= ({0, 1} if wire.lane >= 0 else {-1})
    action = specs["action/0"].arrays
    assert [(array.shape, array.dtype) for array in action] == [((ROWS,), "int32")]
    observation = found.form(found.blueprint.wire("unroll/1")).schema.steps.observation
    assert observation.shape == (UNROLL + 1, ROWS, 3)
    assert all(array.shape[0] == ROWS for array in specs["timestep/1"].arrays)


def test_params_and_gradients_are_of_the_networks_shapes():
    found = schemas("(env+act+grad)*2 | apply", Changed)
    params = found.form(found.blueprint.wire("params")).schema
    gradients = found.form(found.blueprint.wire("gradients/0")).schema
    shapes = [leaf.shape for leaf in jax.tree.leaves(params)]
    assert [leaf.shape for leaf in jax.tree.leaves(gradients.tree)] == shapes


def test_a_share_is_all_environments_of_a_sides_lanes():
    found = schemas("(env+act)*4 | mine*2 | learn", change=mapped)
    first = found.blueprint.sides_of("mine")[0]
    assert len(first.lanes) == 2
    whole = found.share("mine", "unroll", first)
    assert whole.schema.reward.shape == (UNROLL, 4)
    assert whole.axes.reward == 1


def halved(state, unroll):
    """The first half of an unroll, with something more remembered."""
    half = UNROLL // 2
    timed = {name: jax.tree.map(lambda x: x[:half], getattr(unroll, name)) for name in TIMED}
    extras = {**timed.pop("extras"), "mine": timed["observation"]}
    return state, unroll._replace(**timed, extras=extras)


TIMED = ("observation", "first", "action", "extras", "reward", "terminated", "truncated", "bootstrap")


def test_a_map_that_changes_what_passes_changes_the_wires_after_it():
    found = schemas("(env+act)*2 | mine | learn", change=lambda graph: graph.insert("mine", halved))
    before, after = ([w for w in found.blueprint.wires if w.samples and w.source == name] for name in ("act", "mine"))
    assert {wire.samples for wire in before} == {UNROLL * ROWS}
    assert {wire.samples for wire in after} == {UNROLL // 2 * ROWS}, "as many steps as its rewards have"
    unroll = found.form(after[0]).schema
    assert unroll.extras["mine"].shape == (UNROLL // 2, ROWS, 3)
    assert "mine" not in found.form(before[0]).schema.extras


def turned(state, unroll):
    """Environments on the third axis of what learn does not look at."""
    extras = {**unroll.extras, "mine": jax.numpy.zeros((2, 3, unroll.reward.shape[1]))}
    return state, unroll._replace(extras=extras)


def test_an_array_whose_environments_are_on_no_usual_axis_is_refused_by_the_streams_name():
    found = schemas("(env+act)*2 | mine | learn", change=lambda graph: graph.insert("mine", turned))
    with pytest.raises(GraphError, match=r"stream 'unroll' of 'mine': an array of shape \[2, 3, 4\] changes"):
        found.channels()


def test_a_key_cannot_pass_between_processes():
    schema = {"key": jax.eval_shape(lambda: jax.random.key(0))}
    with pytest.raises(ConfigError, match=r"the algorithm's unroll hold a PRNG key.*plan 'inline'"):
        array_specs_of(schema, "unroll")


def test_arrays_are_named_by_their_place_in_jaxs_order():
    schema = {"b": jax.ShapeDtypeStruct((2,), np.float32), "a": (jax.ShapeDtypeStruct((), np.bool_),)}
    assert [(spec.path, spec.shape, spec.dtype) for spec in array_specs_of(schema, "x")] == [
        ("['a'][0]", (), "bool"),
        ("['b']", (2,), "float32"),
    ]
