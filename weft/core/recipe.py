"""Objects as recipes that another process can follow: JSON, and never pickle.

A recipe names importable things and says how they are put together. Plain values, tuples, dicts, NumPy arrays,
dataclass instances, NamedTuples, enums, ``functools.partial`` and module-level functions and classes have one. What a
script defines at its top level is found again by importing it under another name, as ``multiprocessing`` does.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import importlib
import importlib.util
import math
import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from weft.core.errors import ConfigError

SCRIPT = "__weft_main__"
"""What the user's script is called where a worker imports it: not ``__main__``, so that it does not run again."""


def to_recipe(thing: Any, what: str = "", *, session: bool = False) -> Any:
    """The recipe of ``thing``, JSON-serialisable; ``what`` it is, for the message.

    With ``session`` what a notebook or a prompt defines has one too, which can be followed where it is defined again.
    Raises ConfigError where there is none: a lambda, a function inside a function, an object of no known kind.
    """
    return _recipe(thing, what or repr(thing), session)


def _recipe(thing: Any, what: str, session: bool) -> Any:
    if thing is None or isinstance(thing, bool | str) or type(thing) is int:
        return thing
    if isinstance(thing, float):
        return thing if math.isfinite(thing) else {"float": repr(thing)}
    if isinstance(thing, np.ndarray | np.generic):
        array = np.asarray(thing)
        if array.dtype == object:
            raise ConfigError(f"{what}: an array of Python objects cannot be sent to a worker process")
        data = base64.b64encode(array.tobytes()).decode()
        return {"array": data, "dtype": array.dtype.str, "shape": list(array.shape)}
    if isinstance(thing, enum.Enum):
        return {"enum": _reference(type(thing), what, session), "value": _recipe(thing.value, what, session)}
    if isinstance(thing, type) or _is_function(thing):
        return {"name": _reference(thing, what, session)}
    if isinstance(thing, Mapping):
        if not all(isinstance(key, str) for key in thing):
            raise ConfigError(f"{what}: only dicts with text as keys can be sent to a worker process")
        return {"dict": {key: _recipe(value, f"{what}[{key!r}]", session) for key, value in thing.items()}}
    if isinstance(thing, list):
        return {"list": [_recipe(value, what, session) for value in thing]}
    if isinstance(thing, functools.partial):
        parts = (thing.func, tuple(thing.args), dict(thing.keywords))
        return {"partial": [_recipe(part, what, session) for part in parts]}
    if isinstance(thing, tuple):
        values = [_recipe(value, what, session) for value in thing]
        return (
            {"tuple": values, "class": _reference(type(thing), what, session)} if hasattr(thing, "_fields") else values
        )
    if dataclasses.is_dataclass(thing):
        fields = {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing) if f.init}
        made = {name: _recipe(value, f"{what}.{name}", session) for name, value in fields.items()}
        return {"make": _reference(type(thing), what, session), "fields": made}
    raise ConfigError(
        f"{what} is a {type(thing).__qualname__}, and a worker process cannot be told how to make one. Give a "
        "function or a class that makes it, at the top level of a module, or a dataclass."
    )


def from_recipe(recipe: Any, allowed: Callable[[str], bool] = lambda name: True) -> Any:
    """What a recipe describes, made anew in this process; imports what it names.

    Calls nothing but dataclasses, NamedTuples and enums. A name that is not ``allowed`` (``module:name``) is refused
    before anything of it is imported. Raises ConfigError for what is no recipe.
    """

    def made(part: Any) -> Any:
        return from_recipe(part, allowed)

    def found(name: Any, kind: str = "") -> Any:
        if not isinstance(name, str) or not allowed(name):
            raise ConfigError(f"a recipe names {name!r}, which must not be made from one here")
        thing = _find(name)
        if kind and not _KINDS[kind](thing):
            raise ConfigError(f"a recipe would make {name!r}, which is not a {kind}: it is {type(thing).__name__}")
        return thing

    if isinstance(recipe, list):
        return tuple(made(value) for value in recipe)
    if not isinstance(recipe, dict):
        return recipe
    match recipe:
        case {"float": text}:
            return float(text)
        case {"array": data, "dtype": dtype, "shape": shape}:
            array = np.frombuffer(base64.b64decode(data), np.dtype(dtype)).reshape(shape)
            return array.copy() if shape else array.reshape(())[()]
        case {"name": name}:
            return found(name)
        case {"enum": name, "value": value}:
            return found(name, "enum")(made(value))
        case {"dict": dict(items)}:
            return {key: made(value) for key, value in items.items()}
        case {"list": list(values)}:
            return [made(value) for value in values]
        case {"partial": [function, args, keywords]}:
            return functools.partial(made(function), *made(args), **made(keywords))
        case {"tuple": list(values), "class": name}:
            return found(name, "NamedTuple")(*(made(value) for value in values))
        case {"make": name, "fields": dict(fields)}:
            return found(name, "dataclass")(**{key: made(value) for key, value in fields.items()})
    raise ConfigError(f"not a recipe: {recipe!r}")


_KINDS: dict[str, Callable[[Any], bool]] = {
    "dataclass": lambda thing: isinstance(thing, type) and dataclasses.is_dataclass(thing),
    "NamedTuple": lambda thing: isinstance(thing, type) and issubclass(thing, tuple) and hasattr(thing, "_fields"),
    "enum": lambda thing: isinstance(thing, type) and issubclass(thing, enum.Enum),
}
"""What a recipe may call, which is found out before it is called."""


def recipe_names(recipe: Any) -> list[str]:
    """Every ``module:name`` in a recipe, in order: what following it would import. Imports nothing."""
    if isinstance(recipe, list):
        return list(dict.fromkeys(name for part in recipe for name in recipe_names(part)))
    if not isinstance(recipe, dict):
        return []
    own = [str(recipe[key]) for key in ("name", "enum", "class", "make") if key in recipe]
    items = recipe.get("dict") or recipe.get("fields") or {}
    parts = [recipe[key] for key in ("value", "list", "partial", "tuple") if key in recipe]
    return list(dict.fromkeys(own + recipe_names(parts + (list(items.values()) if isinstance(items, dict) else []))))


def script_path() -> str | None:
    """The ``.py`` file that runs as ``__main__``; None for ``-m``, a shell, a notebook, a command such as ``weft``."""
    main = sys.modules.get("__main__")
    path = str(getattr(main, "__file__", None) or "")
    return path if path.endswith(".py") and getattr(main, "__spec__", None) is None else None


_IMPORTING: list[str] = []
_OPENING: list[str] = []


class _EnoughDefined(BaseException):
    """Raised where a script that is being opened begins to train: what its run was made of stands above."""


def import_script(path: str) -> None:
    """Import the user's script as SCRIPT, so that what it defines can be found; its ``__main__`` part does not run."""
    spec = importlib.util.spec_from_file_location(SCRIPT, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"the script {path!r} cannot be imported by a worker process")
    module = importlib.util.module_from_spec(spec)
    sys.modules[SCRIPT] = module
    _IMPORTING.append(path)
    try:
        spec.loader.exec_module(module)
    finally:
        _IMPORTING.remove(path)


def open_script(path: str) -> None:
    """As ``import_script``, to open a run that the script has trained: its modules are found as they were for it.

    The import ends where the script trains at its top level, since what it trained stands above that line. Where this
    process runs the script already, nothing is imported. Raises ConfigError where it is not there.
    """
    if not os.path.isfile(path):
        raise ConfigError(f"the script {path!r} is not there any more")
    running = script_path()
    if running is not None and os.path.exists(running) and os.path.samefile(running, path):
        sys.modules[SCRIPT] = sys.modules["__main__"]
        return
    if (folder := os.path.dirname(path)) not in sys.path:
        sys.path.append(folder)
    _OPENING.append(path)
    try:
        import_script(path)
    except _EnoughDefined:
        pass
    finally:
        _OPENING.remove(path)


def refuse_while_importing(what: str) -> None:
    """Raise ConfigError if the user's script is being imported: ``what`` belongs into its ``__main__`` part."""
    if _OPENING:
        raise _EnoughDefined
    if _IMPORTING:
        raise ConfigError(
            f"{what} was called while a worker process imports the script {_IMPORTING[0]!r}, to find what it defines. "
            "Put the call under: if __name__ == '__main__':"
        )


def _is_function(thing: Any) -> bool:
    return callable(thing) and hasattr(thing, "__qualname__") and hasattr(thing, "__module__")


def _reference(thing: Any, what: str, session: bool) -> str:
    """``module:qualname``, checked to lead back to ``thing``; ``__main__:qualname`` where a ``session`` will do."""
    module_name, qualname = getattr(thing, "__module__", None), thing.__qualname__
    if module_name is not None and "<" not in qualname:
        found = _walk(sys.modules.get(module_name), qualname)
        if found is thing:
            spec = getattr(sys.modules.get("__main__"), "__spec__", None)
            if module_name == "__main__" and spec is not None:  # python -m package.module: it has a name to import by
                return f"{spec.name}:{qualname}"
            if module_name != "__main__" or script_path() is not None:
                return f"{SCRIPT if module_name == '__main__' else module_name}:{qualname}"
            if session:
                return f"__main__:{qualname}"
    raise ConfigError(
        f"{what} is {module_name}.{qualname}, which a worker process cannot import. Define it at the top level of a "
        "module or a script (no lambda, not inside a function, not in a notebook, from which %%writefile makes a "
        "module), or use the plan 'inline'."
    )


def _find(name: str) -> Any:
    module_name, _, qualname = name.partition(":")
    module = sys.modules.get(module_name) or importlib.import_module(module_name)
    found = _walk(module, qualname)
    if found is None:
        raise ConfigError(f"{name!r} is not there in this process")
    return found


def _walk(module: ModuleType | None, qualname: str) -> Any:
    found: Any = module
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found
