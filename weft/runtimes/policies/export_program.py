"""A traced policy as a program of plain values: JAX's primitives, to be run by NumPy in an exported ``policy.py``.

Tracing takes any network, also a user's, where a loader for each kind of network would know only ours. What has no
NumPy form is refused by name, before anything is written.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from weft.core.errors import ConfigError
from weft.runtimes.policies.export_trace import Traced
from weft.runtimes.policies.exported.primitives import KNOWN

INLINED = {"pjit", "jit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "custom_vmap_call"}
INLINED |= {"custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_jvp_call_jaxpr"}
RANDOM = {"random_wrap", "random_unwrap", "random_split", "random_fold_in", "random_seed", "random_clone"}
NESTED = {"scan", "while", "cond"}

KEPT = {
    "integer_pow": ("y",),
    "broadcast_in_dim": ("shape", "broadcast_dimensions"),
    "reshape": ("new_sizes",),
    "squeeze": ("dimensions",),
    "expand_dims": ("dimensions",),
    "transpose": ("permutation",),
    "rev": ("dimensions",),
    "concatenate": ("dimension",),
    "split": ("sizes", "axis"),
    "stack": ("axis",),
    "unstack": ("axis",),
    "pad": ("padding_config",),
    "dynamic_slice": ("slice_sizes",),
    "sort": ("dimension", "num_keys"),
    "reduce_window_max": ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation"),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin"), ("axis", "reverse")),
    **dict.fromkeys(("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or"), ("axes",)),
}
KEPT["reduce_window_sum"] = KEPT["reduce_window_max"]
"""The parameters of a primitive that its NumPy form takes as they are; those of others are made in ``_parameters``."""


class CannotBeProgram(ConfigError):
    """A policy has an operation that the NumPy loader does not know."""

    def __init__(self, names: set[str]) -> None:
        words = ", ".join(sorted(names))
        super().__init__(
            f"the policy computes {words}, which the NumPy loader does not know. Export it as stablehlo, which takes "
            "every network; or write that part of the network with other operations."
        )


def as_program(traced: Traced) -> dict[str, Any]:
    """A traced policy as JSON: inputs, equations, outputs. Raises CannotBeProgram."""
    unknown: set[str] = set()
    program = _Writer(unknown).whole(traced.jaxpr)
    if unknown:
        raise CannotBeProgram(unknown)
    return program


class _Writer:
    """Numbers the values of one jaxpr and writes its equations; what is called within is written out in place."""

    def __init__(self, unknown: set[str]) -> None:
        self._unknown = unknown
        self._values: dict[Any, Any] = {}
        self._count = 0
        self._equations: list[list[Any]] = []

    def whole(self, closed: jex.ClosedJaxpr) -> dict[str, Any]:
        inputs = [self._new(v) for v in closed.jaxpr.invars]
        self._body(closed.jaxpr, closed.consts)
        outputs = [self._operand(v) for v in closed.jaxpr.outvars]
        return {"inputs": inputs, "equations": self._equations, "outputs": outputs}

    def _new(self, variable: Any) -> int:
        self._count += 1
        self._values[variable] = self._count
        return self._count

    def _operand(self, atom: Any) -> Any:
        aval: Any = atom.aval
        return _literal(atom.val, aval.dtype) if isinstance(atom, jex.Literal) else self._values[atom]

    def _body(self, jaxpr: Any, consts: Any) -> None:
        for variable, value in zip(jaxpr.constvars, consts, strict=True):
            self._values[variable] = _literal(value, value.dtype)
        for equation in jaxpr.eqns:
            name = equation.primitive.name
            taken = [self._operand(v) for v in equation.invars]
            if name in INLINED:
                self._inline(equation, taken)
                continue
            how = self._parameters(name, equation) if self._is_known(name) else {}
            self._equations.append([name, taken, [self._new(v) for v in equation.outvars], how])

    def _is_known(self, name: str) -> bool:
        known = name in KNOWN or name in RANDOM or name in NESTED or name == "random_bits"
        if not known:
            self._unknown.add(name)
        return known

    def _inline(self, equation: Any, taken: list[Any]) -> None:
        inner = next(equation.params[k] for k in ("jaxpr", "call_jaxpr", "fun_jaxpr", "call") if k in equation.params)
        jaxpr, consts = (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, ())
        outer = {v: self._values[v] for v in jaxpr.invars if v in self._values}  # a jaxpr that is called twice
        self._values.update(zip(jaxpr.invars, taken, strict=True))
        self._body(jaxpr, consts)
        found = [self._operand(v) for v in jaxpr.outvars]
        self._values.update(outer)
        self._values.update(zip(equation.outvars, found, strict=True))

    def _nested(self, inner: Any) -> dict[str, Any]:
        return _Writer(self._unknown).whole(inner)

    def _parameters(self, name: str, equation: Any) -> dict[str, Any]:
        given, aval = equation.params, equation.outvars[0].aval
        match name:
            case "convert_element_type" | "bitcast_convert_type":
                return {"new_dtype": _dtype(given["new_dtype"])}
            case "round":
                return {"to_even": int(given["rounding_method"]) == 1}
            case "argmax" | "argmin":
                return {"axes": _plain(given["axes"]), "index_dtype": _dtype(given["index_dtype"])}
            case "iota":
                return {"shape": _plain(given["shape"]), "dimension": given["dimension"]} | {
                    "dtype": _dtype(given["dtype"])
                }
            case "slice":
                starts, limits = given["start_indices"], given["limit_indices"]
                return {"places": _plain(list(zip(starts, limits, given["strides"] or [1] * len(starts), strict=True)))}
            case "dot_general":
                return {"dimension_numbers": _plain(given["dimension_numbers"]), "dtype": _dtype(aval.dtype)}
            case "conv_general_dilated":
                if given["batch_group_count"] != 1:
                    self._unknown.add("a convolution in groups of the batch")
                names = ("window_strides", "padding", "lhs_dilation", "rhs_dilation", "feature_group_count")
                kept = {k: _plain(given[k]) for k in names}
                return kept | {"specs": _plain(tuple(given["dimension_numbers"])), "dtype": _dtype(aval.dtype)}
            case "gather":
                numbers = given["dimension_numbers"]
                fields = ("offset_dims", "collapsed_slice_dims", "start_index_map", "operand_batching_dims")
                told = {k: _plain(getattr(numbers, k)) for k in (*fields, "start_indices_batching_dims")}
                mode = "fill" if "FILL" in str(given["mode"]).upper() else "clip"
                return {"numbers": told, "slice_sizes": _plain(given["slice_sizes"]), "mode": mode}
            case "random_bits":
                return {"bit_width": given["bit_width"], "shape": _plain(aval.shape)}
            case "scan":
                counts, told = _scan_counts(given), _plain(given["length"])
                return {"body": self._nested(given["jaxpr"]), "counts": counts, "length": told} | {
                    "reverse": bool(given["reverse"])
                }
            case "while":
                inner = {"condition": self._nested(given["cond_jaxpr"]), "body": self._nested(given["body_jaxpr"])}
                return inner | {"constants": [given["cond_nconsts"], given["body_nconsts"]]}
            case "cond":
                return {"branches": [self._nested(each) for each in given["branches"]]}
        if name in RANDOM:
            return {"shape": _plain(aval.shape)}
        return {k: _plain(given[k]) for k in KEPT.get(name, ())}


def _scan_counts(given: Any) -> list[int]:
    """How many of a scan's inputs are constants, and how many are carried. JAX has them as trees from 0.11 on."""
    if "ft_in" in given:
        constants, carried, _ = given["ft_in"].unpack()
        return [len(constants), len(carried)]
    return [given["num_consts"], given["num_carry"]]


def _literal(value: Any, dtype: Any) -> Any:
    array = np.asarray(value, dtype if not jnp.issubdtype(dtype, jax.dtypes.extended) else np.uint32)
    if array.ndim == 0 and array.dtype.kind == "f" and not math.isfinite(array):
        return [_dtype(dtype), str(float(array))]
    return [_dtype(dtype), array.tolist()]


def _dtype(dtype: Any) -> str:
    """By its name; what only JAX has is taken as float32, which has every value of it."""
    if jnp.issubdtype(dtype, jax.dtypes.extended):
        return "uint32"  # keys, whose bits are never looked at
    name = np.dtype(dtype).name
    return "float32" if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2") else name


def _plain(x: Any) -> Any:
    """Sizes and places as JSON; a size that depends on the batch, as what it is a multiple of."""
    if isinstance(x, dict):
        return {k: _plain(v) for k, v in x.items()}
    if isinstance(x, tuple | list):
        return [_plain(v) for v in x]
    if x is None or isinstance(x, bool | int | str | np.integer):
        return int(x) if isinstance(x, np.integer) else x
    sizes = [int(x._evaluate({"b": n})) for n in (1, 2, 3)]
    if sizes[2] - sizes[1] != sizes[1] - sizes[0]:
        raise CannotBeProgram({f"a size of {x} for a batch of b"})
    return {"times": sizes[1] - sizes[0], "plus": 2 * sizes[0] - sizes[1]}
