"""``--algo.FIELD VALUE`` and ``--env.OPTION VALUE``: an algorithm's fields as flags, and an environment's options."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from weft.algorithms.registry import load_algorithm
from weft.cli.flags import HELP, Flags, parse, positional_words
from weft.core.errors import ConfigError, WeftError
from weft.envs.importing import find_modules_here
from weft.graph.algorithm import Algorithm

if TYPE_CHECKING:
    from weft.algorithms.tuned import Tuned

AFTER = (
    "--env.OPTION VALUE hands an option to the environment: --env.gravity 3.7. With the algorithm 'policies': --policy "
    "PATTERN=ALGO[:FIELD=VALUE,...] for each, --policy 'seeker*=ppo:learning_rate=1e-4'"
)


def parse_with_algorithm(
    command: str, about: str, arguments: Sequence[str], *groups: Flags
) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]:
    """What a command line gives each group, the algorithm's fields that it names, and the environment's options.

    The first two positionals are ALGO and ENV: which fields there are follows from them, and what the help says they
    are without a flag.
    """
    find_modules_here()  # `package.module:factory` on a command line is the user's own
    rest, options = split_env_options(arguments)
    name, environment = (*positional_words(rest, *groups), "", "")[:2]
    algorithm = load_algorithm(name or "ppo")
    fields = Flags(
        algorithm,
        title=f"fields of {algorithm.__name__}",
        prefix="algo.",
        about="Unless set: tuned for the environment, or as shown.",
        kind=f"field of {algorithm.__name__}:",
    )
    if environment and any(argument in HELP for argument in rest):
        tuned = _tuned(algorithm, environment, options)
        if tuned is not None:
            fields = replace(fields, about=f"As shown, unless set: tuned for {environment}.", defaults=tuned.fields)
            groups = tuple(replace(g, defaults={"steps": tuned.steps, "envs": tuned.envs}) for g in groups)
    *values, named = parse(command, about, rest, *groups, fields, after=AFTER)
    return values, named, options


def split_env_options(arguments: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
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
        name, equals, text = argument.removeprefix("--env.").partition("=")
        value = text if equals else next(waiting, "--")
        if not name or (not equals and value.startswith("--")):
            raise ConfigError(f"{argument!r} needs a name and a value: --env.OPTION VALUE")
        options[name.replace("-", "_")] = _value(value)
    return rest, options


def _tuned(algorithm: type[Algorithm], environment: str, options: dict[str, Any]) -> Tuned | None:
    """What is tuned for an environment; None where it cannot be opened: a help text must not fail for that."""
    from weft.algorithms.registry import algorithm_name
    from weft.algorithms.tuned import tuned
    from weft.envs.registry import open_environment

    try:
        source = open_environment(environment, **options)
    except WeftError:
        return None
    return tuned(algorithm_name(algorithm()), source.name, source.spec)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)
