"""The members of a population in one program: seeds with hyper-parameters of their own, which may copy each other.

A member is what a run by itself would be, with its seed and its values. The values are arguments of the program and no
constants in it, so that they may change between two dispatches without compiling anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from weft.core.kinds import is_number
from weft.core.types import Array, Tree
from weft.envs.protocol import JaxEnv
from weft.graph.algorithm import Algorithm
from weft.graph.graph import Graph
from weft.runtimes.compiled.engine import FusedEngine, FusedState, Varied
from weft.runtimes.compiled.replicas import Layout, Spread


class MembersEngine(FusedEngine):
    """A FusedEngine whose seeds are members: row ``k`` has seed ``seed + k`` when it starts, and its own values.

    ``algorithm`` is bound; ``values`` has the varied fields, ``[members]`` numbers each.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        env: JaxEnv,
        device: Any,
        envs: int,
        seed: int,
        values: Mapping[str, Sequence[float]],
    ) -> None:
        varied = Varied(as_arrays(values), graph_of(algorithm))
        rows = len(next(iter(values.values())))
        super().__init__(algorithm.graph(), env, Layout((device,), rows), envs, seed, varied)

    @property
    def rows(self) -> int:
        """How many members there are."""
        return self.layout.seeds

    def vary(self, values: Mapping[str, Sequence[float]]) -> None:
        """Give every member new values, ``[members]`` of each field, from the next dispatch on."""
        self.values = as_arrays(values)

    def copy_learners(self, sources: Sequence[int]) -> None:
        """Member ``k`` gets params and optimiser state of member ``sources[k]``; environments and stores stay its own.

        Waits for nothing; the state of before is gone.
        """
        state = self._held()
        rows = jnp.asarray(sources, jnp.int32)
        fragments = dict(state.fragments)
        for name in self._publishers:
            learner = fragments[name]
            copied = jax.tree.map(lambda x: x[rows], (learner.params, learner.optimizer))
            fragments[name] = learner._replace(params=copied[0], optimizer=copied[1])
        self._state = state._replace(fragments=fragments)

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these members alone, in this order. A program for so many is compiled."""
        where = jnp.asarray(rows, jnp.int32)
        self._state = jax.tree.map(lambda x: x[where], self._held())
        self.values = {name: value[where] for name, value in self.values.items()}
        self.layout = replace(self.layout, seeds=len(rows))

    def begin(self, seed: int, values: Mapping[str, Sequence[float]]) -> None:
        """Begin from nothing with other members: row ``k`` has seed ``seed + k``. As many as before compile nothing."""
        rows = len(next(iter(values.values())))
        self.layout = replace(self.layout, seeds=rows)
        self.vary(values)
        seeds = self.layout.place(jnp.arange(seed, seed + rows), Spread.SHARED)
        self._arguments = (seeds, self.values), self._arguments[1]
        self._follower.forget()
        self.start()

    def begin_with(self, tree: Tree, values: Mapping[str, Sequence[float]], rows: int) -> None:
        """Go on from a saved state of so many members, with these values."""
        self.layout = replace(self.layout, seeds=rows)
        self.vary(values)
        self.resume(tree, {})

    def template_of(self, rows: int) -> Tree:
        """The structure, shapes and dtypes of the state of so many members."""
        return jax.tree.map(lambda s: jax.ShapeDtypeStruct((rows, *s.shape[1:]), s.dtype), self.template())

    def used(self) -> set[str]:
        """The varied fields that the program depends on. Traces everything that will be compiled, and computes nothing.

        Raises what the algorithm raises where it needs a value that is not known yet.
        """
        number = jax.ShapeDtypeStruct((), jnp.int32)
        begun = jax.make_jaxpr(self._init)(*self._arguments)
        run = jax.make_jaxpr(self._run)(self.values, self.template(), number)
        names = sorted(self.values)  # as a program sorts them
        seeds = len(jax.tree.leaves(self._arguments[0][0]))
        at_start = [name for name, var in zip(names, begun.jaxpr.invars[seeds:], strict=False) if _reads(begun, var)]
        return {name for name, var in zip(names, run.jaxpr.invars, strict=False) if _reads(run, var)} | set(at_start)

    def _held(self) -> FusedState:
        assert self._state is not None
        return self._state


def graph_of(algorithm: Algorithm) -> Any:
    """A function from a member's values, numbers or traced, to its graph; they are not checked here."""
    spec = algorithm.spec

    def graph(values: dict[str, Array]) -> Graph:
        return algorithm.with_fields(**values).with_spec(spec).graph()

    return graph


def untraceable(
    algorithm: Algorithm, env: JaxEnv, device: Any, envs: int, examples: Mapping[str, Sequence[Any]]
) -> dict[str, str]:
    """Which fields cannot be varied in one program, each with the reason: found by tracing each by itself.

    ``examples`` has some values of each field. One that sets a shape, or that Python code branches on, must be a plain
    number while a program is traced; one that nothing reads would vary nothing.
    """
    reasons = {}
    for name, values in examples.items():
        if not all(is_number(value) for value in values):
            reasons[name] = "its values are not all numbers"
            continue
        try:
            used = MembersEngine(algorithm, env, device, envs, 0, {name: values}).used()
        except Exception as error:  # whatever the algorithm's own code makes of a value that is not known yet
            kind = type(error).__name__
            reasons[name] = f"it sets a shape, or code branches on it ({kind} when it is an argument of the program)"
        else:
            if not used:
                reasons[name] = "with these settings nothing reads it"
    return reasons


def _reads(closed: Any, var: Any) -> bool:
    """Whether an input of a jaxpr is read by any of its equations, or by those inside of them."""

    def inside(jaxpr: Any, var: Any) -> bool:
        for equation in jaxpr.eqns:
            inner: Any = getattr(equation.params.get("jaxpr"), "jaxpr", None)
            passed = inner is not None and len(inner.invars) == len(equation.invars)
            for k, read in enumerate(equation.invars):
                if read is var and (not passed or inside(inner, inner.invars[k])):
                    return True
        return False

    return inside(closed.jaxpr, var)


def as_arrays(values: Mapping[str, Sequence[float]]) -> dict[str, Array]:
    """Values of fields as the program takes them: 32 bits, whole numbers where all of a field's are."""
    whole = {name: all(isinstance(value, int) for value in found) for name, found in values.items()}
    return {n: jnp.asarray(found, jnp.int32 if whole[n] else jnp.float32) for n, found in values.items()}
