"""What may be called to make an environment, decided by its type before it is called.

    a class              a gymnasium.Env or VectorEnv, or one with reset and step, as a JAX environment has them
    a function           written in Python, not of Python's own library, and not annotated to give something else
    functools.partial    of one of these
    an object            with a __call__ that is such a function

So ``os:system`` is refused, however it was reached: as ``mine:os.system`` too, or inside a partial.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from typing import Any

import gymnasium as gym

from weft.core.errors import ConfigError
from weft.core.stdlib import is_stdlib
from weft.envs.protocol import EnvSource

HINT = (
    "Expected a gymnasium.Env class, a PettingZoo or a JAX environment (spec, reset, step), or a function of yours "
    "that makes one."
)


def check_factory(name: str, factory: Any) -> None:
    """Raise ConfigError where environment ``name`` would call what is neither an environment nor makes one.

    Calls nothing of it. What a function without annotations makes is known only when it is called.
    """
    reason = _refused(factory)
    if reason:
        raise ConfigError(f"environment {name!r}: {reason}. {HINT}")


def _refused(thing: Any) -> str:
    """Why it cannot be called as a factory; empty where it can."""
    if isinstance(thing, type):
        return _refused_class(thing)
    if isinstance(thing, functools.partial):
        return _refused(thing.func)
    if isinstance(thing, types.MethodType):
        return _refused(thing.__func__)
    inner = inspect.unwrap(thing) if callable(thing) else thing
    if isinstance(inner, types.FunctionType):
        return _refused_function(inner)
    if isinstance(inner, types.BuiltinFunctionType):
        return f"{_name(inner)} is a function written in C, which nothing says to make environments"
    call = getattr(type(inner), "__call__", None)  # noqa: B004  the method itself is wanted
    if isinstance(call, types.FunctionType) and not is_stdlib(type(inner).__module__):
        return _refused_function(call)
    return f"expected a function or a class, got {type(thing).__name__}"


def _refused_class(cls: type) -> str:
    if is_stdlib(cls.__module__):
        return f"{_name(cls)} is a class of Python's own library"
    return "" if _is_environment(cls) else f"the class {_name(cls)} is no environment: it has no reset and step"


def _refused_function(function: types.FunctionType) -> str:
    if is_stdlib(function.__module__ or ""):
        return f"{_name(function)} is a function of Python's own library"
    gives = _gives(function)
    if isinstance(gives, type) and not _is_environment(gives) and gives is not object:
        return f"the function {_name(function)} gives {gives.__qualname__}, by its annotation"
    return ""


def _gives(function: types.FunctionType) -> Any:
    """What a function is annotated to give, where that can be told: a class, or anything else for what cannot."""
    said = getattr(function, "__annotations__", {}).get("return", object)
    if isinstance(said, str):
        try:
            said = typing.get_type_hints(function, include_extras=False).get("return", object)
        except Exception:  # names that are there only for a type checker
            return object
    said = typing.get_origin(said) or said
    return {None: type(None), Any: object, typing.Union: object, types.UnionType: object}.get(said, said)


def _is_environment(cls: type) -> bool:
    if issubclass(cls, gym.Env | gym.vector.VectorEnv | EnvSource):
        return True
    return callable(getattr(cls, "reset", None)) and callable(getattr(cls, "step", None))


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"
