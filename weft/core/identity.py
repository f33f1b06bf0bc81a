"""Which code an object is, in plain data: what tells one run's network or environment from another's.

    a function             its module and name, the constants that it closes over, and a hash of its source, unless it
                           is an installed library's
    a class                its module and name
    both                   ``reached``: a hash of all code of the user's that they reach (``core.reached``)
    a record, a tuple      its parts: NamedTuples and dataclasses by field, others by place
    an array               dtype, shape, and a hash of its bytes
    anything else          its type, and its repr where that is the same in every process

The same code gives the same identity in every process: no memory address is in it.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import hashlib
import inspect
import re
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from weft.core.reached import code_hash, source_of
from weft.core.recipe import SCRIPT

MAX_DEPTH = 6
"""How far parts of parts are followed; a function may close over itself."""

MAX_REPR = 200
"""Characters of a repr that are kept; of a longer one its hash."""

REACHED = "reached"
"""The key of the hash of the code that a function or a class reaches; runs of earlier versions have none."""

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+")


def is_plain(value: object) -> bool:
    """Whether a value is plain data, which can be compared as it is: None, a number, text, or a tuple of these."""
    if isinstance(value, tuple):
        return all(is_plain(v) for v in value)
    return value is None or isinstance(value, bool | int | float | str | np.number | np.bool_)


def identity(thing: Any, depth: int = MAX_DEPTH) -> Any:
    """What ``thing`` is, as JSON can hold it; a dict, unless ``thing`` is plain. Calls nothing but its repr."""
    if is_plain(thing):
        return list(thing) if isinstance(thing, tuple) else thing
    if depth == 0:
        return {"type": _name(type(thing))}
    if isinstance(thing, type):
        return {"class": _name(thing), **_reached(thing)}
    if isinstance(thing, MethodType):
        own = {"function": _name(thing.__func__), **_reached(thing.__func__)}
        return {**own, "of": identity(thing.__self__, depth - 1)}
    if isinstance(thing, functools.partial):
        parts = {"args": thing.args, "keywords": thing.keywords}
        return {"partial": identity(thing.func, depth - 1), **_each(parts, depth)}
    function = _as_function(thing)
    return _object(thing, depth) if function is None else _function(function, depth)


def _as_function(thing: Any) -> FunctionType | BuiltinFunctionType | None:
    """A function, also from below what ``jax.jit`` or ``functools.wraps`` made of it; None for what is none."""
    inner = inspect.unwrap(thing) if callable(thing) else thing
    return inner if isinstance(inner, FunctionType | BuiltinFunctionType) else None


def _function(function: FunctionType | BuiltinFunctionType, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {"function": _name(function)}
    if isinstance(function, FunctionType):
        source = source_of(function)
        if source is not None:
            found["source"] = _sha256(source.encode())
        found |= _reached(function)
        constants = {name: value for name, value in _enclosed(function) if _constant(value)}
        if constants:
            found["with"] = _each(constants, depth)
    return found


def _object(thing: Any, depth: int) -> dict[str, Any]:
    kind = {"type": _name(type(thing)), **_reached(type(thing))}
    if isinstance(thing, tuple) and hasattr(thing, "_fields"):
        return {**kind, **_each(dict(zip(thing._fields, thing, strict=True)), depth)}
    if isinstance(thing, tuple | list):
        return _each({str(place): part for place, part in enumerate(thing)}, depth)
    if isinstance(thing, Mapping):
        return _each({str(key): part for key, part in thing.items()}, depth)
    if isinstance(thing, set | frozenset):  # its repr is in another order in each process
        return {**kind, "repr": _repr(sorted(map(repr, thing)))}
    if dataclasses.is_dataclass(thing):
        return {**kind, **_each({f.name: getattr(thing, f.name, None) for f in dataclasses.fields(thing)}, depth)}
    if hasattr(thing, "dtype") and hasattr(thing, "shape"):
        array = {"array": f"{thing.dtype}[{','.join(map(str, thing.shape))}]"}
        try:
            return {**array, "bytes": _sha256(np.asarray(thing).tobytes())}
        except TypeError:  # a typed JAX key
            return array
    text = _repr(thing)
    return kind if text is None else {**kind, "repr": text}


def _reached(thing: Any) -> dict[str, str]:
    found = code_hash(thing)
    return {} if found is None else {REACHED: found}


def _each(parts: Mapping[str, Any], depth: int) -> dict[str, Any]:
    return {name: identity(part, depth - 1) for name, part in parts.items()}


def _name(thing: Any) -> str:
    module = getattr(thing, "__module__", None)
    module = "__main__" if module == SCRIPT else module  # the script that trained, opened again
    return f"{module}:{getattr(thing, '__qualname__', type(thing).__qualname__)}"


def _repr(thing: Any) -> str | None:
    """Its repr, shortened; None where it has a memory address in it, or raises."""
    try:
        text = repr(thing)
    except Exception:  # the user's own, and no reason not to train
        return None
    if _ADDRESS.search(text):
        return None
    return text if len(text) <= MAX_REPR else _sha256(text.encode())


def _sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()[:16]}"


def _enclosed(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Defaults and closed-over variables by name, but those that the function itself sets anew."""
    code = function.__code__
    positional = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    yield from zip(positional[len(positional) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()
    written = {i.argval for i in dis.get_instructions(code) if i.opname == "STORE_DEREF"}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # not set yet
            continue
        if name not in written:
            yield name, value


def _constant(value: Any) -> bool:
    """Whether a value cannot change by itself between two runs: what is plain, functions, classes, tuples of these."""
    if isinstance(value, tuple):
        return all(_constant(v) for v in value)
    return is_plain(value) or isinstance(value, type) or _as_function(value) is not None
