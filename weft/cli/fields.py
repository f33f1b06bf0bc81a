"""``--algo.FIELD VALUE`` and ``--env.OPTION VALUE``: from an algorithm's fields to flags, and from flags to values."""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Any

from weft.core.errors import ConfigError
from weft.graph.algorithm import Algorithm


def flag_fields(algorithm: type[Algorithm]) -> type:
    """A dataclass of the algorithm's fields that a command line can say: numbers, text, and tuples of them."""
    hints = typing.get_type_hints(algorithm)
    rows: list[tuple[str, Any, Any]] = [
        (f.name, hints[f.name], dataclasses.field(default=f.default))
        for f in dataclasses.fields(algorithm)
        if hints[f.name] is not Any and f.default is not dataclasses.MISSING
    ]
    made = dataclasses.make_dataclass("AlgorithmFields", rows, frozen=True)
    made.__doc__ = f"Fields of {algorithm.__name__}; unless set, as tuned for the environment, or as shown here."
    return made


def mentioned(arguments: list[str], prefix: str) -> set[str]:
    """The fields that a command line names, by their Python names: ``--algo.learning-rate 1`` gives learning_rate."""
    names = (a[len(prefix) :].partition("=")[0] for a in arguments if a.startswith(prefix))
    return {name.replace("-", "_") for name in names}


def split_env_options(arguments: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Take ``--env.OPTION VALUE`` out of a command line: (the rest, the options).

    Values are read as JSON where they are JSON (``200``, ``true``, ``[1, 2]``), else as text.
    """
    rest: list[str] = []
    options: dict[str, Any] = {}
    waiting = iter(arguments)
    for argument in waiting:
        if not argument.startswith("--env."):
            rest.append(argument)
            continue
        name, equals, text = argument[len("--env.") :].partition("=")
        value = text if equals else next(waiting, None)
        if value is None or not name:
            raise ConfigError(f"{argument!r} needs a name and a value: --env.OPTION VALUE")
        options[name.replace("-", "_")] = _value(value)
    return rest, options


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)
