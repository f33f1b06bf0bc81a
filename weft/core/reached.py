"""The code that the user brought, followed from a function or a class: what changes it, changes what it does.

A function reaches the functions, classes and upper-case constants that it names, of its own module or of another of
the user's; a class reaches what its methods do, and its bases. Installed libraries, Python's own and Weft are left out:
another version of one is not another environment.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import sys
import sysconfig
import textwrap
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

MAX_REACHED = 500
"""Functions and classes that are followed; beyond, what is left is not looked at."""

_INSTALLED = tuple(f"{sysconfig.get_path(which)}{os.sep}" for which in ("stdlib", "purelib", "platlib"))


def is_users(thing: Any) -> bool:
    """Whether a function or a class is of the user's own code, in a file."""
    module = str(getattr(thing, "__module__", None) or "")
    if module.partition(".")[0] == "weft":
        return False
    if isinstance(thing, FunctionType):
        return _users_file(thing.__code__.co_filename)
    return isinstance(thing, type) and _users_module(sys.modules.get(module))


def code_hash(thing: Any) -> str | None:
    """A hash of all code of the user's that a function or a class reaches, itself included; None where there is none.

    The same code gives the same hash in every process.
    """
    found: dict[str, str] = {}
    waiting = [thing]
    seen: set[int] = set()
    while waiting and len(seen) < MAX_REACHED:
        one = waiting.pop()
        one = inspect.unwrap(one) if callable(one) else one
        if id(one) in seen or not is_users(one):
            continue
        seen.add(id(one))
        source = source_of(one)
        if source is not None:
            found[f"{one.__qualname__} {len(source)} {hashlib.sha256(source.encode()).hexdigest()}"] = source
        for name, value in _named(one):
            if _is_constant(name, value):
                found[f"{name} = {value!r}"] = ""
            elif isinstance(value, FunctionType | type) or hasattr(value, "__wrapped__"):
                waiting.append(value)
    if not found:
        return None
    return f"sha256:{hashlib.sha256(chr(10).join(sorted(found)).encode()).hexdigest()[:16]}"


def _named(thing: Any) -> Iterator[tuple[str, Any]]:
    """What a function or a class names of the user's modules, with its values."""
    if isinstance(thing, type):
        yield from ((base.__qualname__, base) for base in thing.__bases__)
        for name, member in vars(thing).items():
            for part in (member, *(getattr(member, get, None) for get in ("fget", "fset", "__func__", "func"))):
                if isinstance(part, FunctionType):
                    yield name, part
        return
    names = list(dict.fromkeys(_names(thing.__code__)))
    modules = []
    for name in names:
        value = thing.__globals__.get(name)
        if isinstance(value, ModuleType):
            modules.append(value)
        elif value is not None:
            yield name, value
    for module in modules:
        if _users_module(module):
            yield from ((name, vars(module)[name]) for name in names if name in vars(module))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_constant(name: str, value: Any) -> bool:
    """Whether it is written as one: what is not may be counted up while the program runs."""
    if isinstance(value, tuple):
        return name.isupper() and all(_is_constant(name, part) for part in value)
    return name.isupper() and (value is None or isinstance(value, bool | int | float | str))


def source_of(thing: Any) -> str | None:
    """The source of a function or a class; None where there is none to be had, as of what was typed at a prompt.

    None too for what an installed library defines: another version of one is not another network.
    """
    code = getattr(thing, "__code__", None)
    if code is not None and not _users_file(code.co_filename) and not code.co_filename.startswith("<"):
        return None
    try:
        if code is not None and code.co_name == "<lambda>":
            return _lambda_source(code)
        return textwrap.dedent(inspect.getsource(thing))
    except (OSError, TypeError, SyntaxError, ValueError, IndexError):
        return None


def _lambda_source(code: CodeType) -> str:
    """A lambda's own text: what else stands in its line, say the number of steps, may change."""
    whole = "".join(inspect.findsource(code)[0])
    found = [n for n in ast.walk(ast.parse(whole)) if isinstance(n, ast.Lambda) and n.lineno == code.co_firstlineno]
    if len(found) > 1:
        places = set(code.co_positions())
        bodies = [n.body for n in found]
        spans = [(b.lineno, b.end_lineno, b.col_offset, b.end_col_offset) for b in bodies]
        found = [n for n, span in zip(found, spans, strict=True) if span in places] or found
    return "\n".join(ast.get_source_segment(whole, n) or "" for n in found)


def _users_module(module: ModuleType | None) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and module.__name__.partition(".")[0] != "weft" and _users_file(file)  # type: ignore[union-attr]


def _users_file(file: str) -> bool:
    return not file.startswith(("<", *_INSTALLED))
