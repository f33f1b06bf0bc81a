"""A policy as a pure function of flat lists of arrays: what every exported format is made from.

Weights, carry, observation, mask and flags in; the action, in the environment's own units, and the carry out. What the
action does not depend on (a value's head, a critic) is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.interpreters import partial_eval

from weft.core.errors import ConfigError
from weft.core.trees import tree_paths
from weft.core.types import Timestep, Tree
from weft.graph.algorithm import Algorithm
from weft.graph.loops import as_schema, policy_view, timestep_schema
from weft.nets.native import library
from weft.runtimes.policies.policy import END, Policy

KEY = jax.ShapeDtypeStruct((2,), jnp.uint32)


@dataclass(frozen=True)
class Traced:
    """One way to act, "greedy" or "sample", with a batch of any size or of one."""

    mode: str
    jaxpr: jex.ClosedJaxpr  # weights that are used, carry, observation, mask, first; where it samples, a key's data
    weights: dict[str, np.ndarray[Any, Any]]  # those that are used, by their path
    shapes: list[jax.ShapeDtypeStruct]  # of all inputs after the weights
    any_batch: bool

    def call(self, *inputs: Any) -> Any:
        """Action and carry, flat; a function that JAX can compile."""
        return jax.core.eval_jaxpr(self.jaxpr.jaxpr, self.jaxpr.consts, *inputs)

    @property
    def schema(self) -> list[jax.ShapeDtypeStruct]:
        """Of all inputs."""
        return [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in self.weights.values()] + self.shapes


def modes_of(policy: Policy) -> list[str]:
    """How a policy can act; only by drawing where its algorithm says nothing of the likeliest action."""
    return ["sample"] if type(policy.algorithm).greedy is Algorithm.greedy else ["greedy", "sample"]


def trace(policy: Policy, mode: str) -> Traced:
    """Trace it for batches of any size; where its code cannot be, for one environment."""
    try:
        (batch,) = export.symbolic_shape("b")
        return _trace(policy, mode, batch)
    except Exception as failed:  # whatever a user's network makes of a size that is not a number
        try:
            return _trace(policy, mode, 1)
        except ConfigError:
            raise
        except Exception:
            raise failed from None


def _trace(policy: Policy, mode: str, batch: Any) -> Traced:
    algorithm, spec = policy.algorithm, policy.algorithm.spec.environment

    def rows(schema: Tree) -> Tree:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((batch, *x.shape), x.dtype), schema)

    weights, weights_form = jax.tree.flatten(policy.params)
    carry, carry_form = jax.tree.flatten(rows(as_schema(algorithm.initial_carry())))
    seen = timestep_schema(spec, 1).observation
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), seen)
    observation, observation_form = jax.tree.flatten(rows(one))
    mask = [jax.ShapeDtypeStruct((batch, spec.mask_size), jnp.bool_)] if spec.action_mask else []
    shapes = [*carry, *observation, *mask, jax.ShapeDtypeStruct((batch,), jnp.bool_)]
    shapes += [KEY] if mode == "sample" else []

    def act(*flat: Any) -> Any:
        taken = _take(list(flat))
        params = jax.tree.unflatten(weights_form, taken(len(weights)))
        remembered = jax.tree.unflatten(carry_form, taken(len(carry)))
        seen = jax.tree.unflatten(observation_form, taken(len(observation)))
        allowed, first = (taken(1)[0] if mask else None), taken(1)[0]

        def one(carry: Tree, seen: Tree, allowed: Any, first: Any, key: Any) -> tuple[Tree, Tree]:
            no, nothing = jnp.zeros((), jnp.bool_), jnp.zeros(spec.reward_shape, jnp.float32)
            timestep = policy_view(Timestep(seen, nothing, first, no, action_mask=allowed))
            if key is None:
                acted = algorithm.greedy(params, carry, timestep)
            else:
                acted = algorithm.act_at(params, carry, timestep, key, jnp.asarray(END))
            return spec.to_native(acted.action, jnp), acted.carry

        keys = jax.random.split(jax.random.wrap_key_data(taken(1)[0]), first.shape[0]) if mode == "sample" else None
        return jax.tree.leaves(jax.vmap(one)(remembered, seen, allowed, first, keys))

    with library.set_aside():
        whole = jax.make_jaxpr(act)(*as_schema(weights), *shapes)
    inputs = len(whole.jaxpr.invars) - len(weights)
    keep = [False] * len(weights) + [True] * inputs
    pruned, used = partial_eval.dce_jaxpr(whole.jaxpr, [True] * len(whole.jaxpr.outvars), instantiate=keep)
    for target, function in _kernels(pruned):
        raise ConfigError(
            f"policy of {type(algorithm).__name__}: {function or 'a function of its network'} was traced before, with "
            f"{target} in it, a kernel that this machine's CPU alone has, and jax.jit has kept that. Leave jax.jit out "
            f"of the network (what calls it is compiled as a whole), or export with WEFT_NATIVE=0 in the environment."
        )
    names = [f"weight.{_dotted(path)}" for path, _ in jax.tree.leaves_with_path(policy.params)]
    kept = {name: np.asarray(x) for name, x, use in zip(names, weights, used, strict=False) if use}
    return Traced(mode, jex.ClosedJaxpr(pruned, whole.consts), kept, shapes, not isinstance(batch, int))


def _kernels(jaxpr: Any, function: str = "") -> Iterator[tuple[str, str]]:
    """The kernels of ours in a jaxpr, at any depth, each with the function of jax.jit that it is in."""
    for equation in jaxpr.eqns:
        target = str(equation.params.get("target_name", ""))
        if target in library.TARGETS:
            yield target, function
        name = equation.params.get("name")
        within = repr(name) if "jit" in equation.primitive.name and name else function
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):  # a cond has several
                if isinstance(inner, jex.Jaxpr | jex.ClosedJaxpr):
                    yield from _kernels(inner.jaxpr if isinstance(inner, jex.ClosedJaxpr) else inner, within)


def _take(flat: list[Any]) -> Callable[[int], list[Any]]:
    waiting = iter(flat)
    return lambda count: [next(waiting) for _ in range(count)]


def _dotted(path: Any) -> str:
    """A place in a tree of params, ``network.Dense_0.kernel``."""
    parts = (getattr(key, "key", getattr(key, "name", getattr(key, "idx", key))) for key in path)
    return ".".join(str(part).replace("/", "_") for part in parts) or "all"


def structure_of(tree: Tree) -> Any:
    """An observation's nesting as JSON, which exported loaders take apart; None for a leaf."""
    if isinstance(tree, dict):
        return {key: structure_of(tree[key]) for key in sorted(tree)}
    return [structure_of(part) for part in tree] if isinstance(tree, tuple) else None


def described(policy: Policy) -> dict[str, Any]:
    """What a loader must know besides the program: what comes in, what is remembered, what goes out."""
    spec = policy.algorithm.spec.environment
    seen = timestep_schema(spec, 1).observation
    action = np.zeros((1, *spec.action.shape), spec.action.dtype)
    leaves = [{"path": p, "shape": list(x.shape[1:]), "dtype": str(x.dtype)} for p, x in tree_paths(seen)]
    return {
        "observation": structure_of(seen),
        "leaves": leaves,
        "mask": spec.mask_size if spec.action_mask else None,
        "action_dtype": str(spec.to_native(action).dtype),  # as ``run.policy`` gives it
    }


def carry_of(policy: Policy) -> dict[str, np.ndarray[Any, Any]]:
    """What is remembered where an episode begins, by names."""
    leaves = jax.tree.leaves(policy.algorithm.initial_carry())
    return {f"carry.{i}": np.asarray(jnp.asarray(x)) for i, x in enumerate(leaves)}
