"""Settings as keyword arguments of a function: its signature and its docstring follow from their declarations."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from weft.core.setting import REQUIRED, Declared, declared

F = TypeVar("F", bound=Callable[..., Any])


def takes(*records: type) -> Callable[[F], F]:
    """Decorate a function that takes the settings of ``records`` in its ``**rest``.

    Gives it the signature that ``help`` shows, with each setting's type and default, and lists them in its docstring.
    ``rest`` stays, for what is no setting.
    """

    def give(function: F) -> F:
        signature = inspect.signature(function)
        *own, rest = signature.parameters.values()
        taken = {parameter.name for parameter in own}
        found = [one for record in records for one in declared(record).values() if one.name not in taken]
        signature = signature.replace(parameters=[*own, *map(_parameter, found), rest])
        function.__signature__ = signature  # type: ignore[attr-defined]
        lines = "\n".join(map(_line, found))
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nSettings:\n{lines}\n"
        return function

    return give


def split(given: Mapping[str, Any], *records: type) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What is ``given`` by keyword: the part that each record declares, and the rest."""
    parts = [{name: given[name] for name in declared(record) if name in given} for record in records]
    known = {name for part in parts for name in part}
    return parts, {name: value for name, value in given.items() if name not in known}


def _parameter(one: Declared) -> inspect.Parameter:
    default = inspect.Parameter.empty if one.default is REQUIRED else one.default
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=one.annotation)


def _line(one: Declared) -> str:
    allowed = ", ".join(map(repr, one.says.choices)) or one.says.range
    text = f"{one.name}: {one.says.help}" + (f" ({allowed})" if allowed else "")
    return textwrap.fill(text, 112, initial_indent="    ", subsequent_indent="        ")
