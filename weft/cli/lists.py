"""``weft plans``, ``weft algorithms`` and ``weft envs``: what there is to choose from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.cli.flags import Flags, parse
from weft.core.setting import setting


@dataclass(frozen=True)
class NoFlags:
    """Nothing to say."""


@dataclass(frozen=True)
class EnvsFlags:
    """Which environments to list."""

    match: str = setting("", "only names or descriptions that contain this", argument="MATCH")
    all: bool = setting(False, "every registered version, not only the latest")


def main(command: str, arguments: list[str]) -> int:
    """Parse and list."""
    match command:
        case "envs":
            about = "List the environments that are usable here, and what to install for the rest."
            (given,) = parse("weft envs", about, arguments, Flags(EnvsFlags))
            return _envs(EnvsFlags(**given))
        case "plans":
            parse("weft plans", "List the named plans.", arguments, Flags(NoFlags))
            return _plans()
        case _:
            parse("weft algorithms", "List the algorithms.", arguments, Flags(NoFlags))
            return _algorithms()


def _plans() -> int:
    from weft.plans import catalogue

    _table([(name, expression, who, "" if now else "not yet") for name, expression, who, now in catalogue()])
    print('\n"not yet": auto needs the planner, which this version does not have.')
    print('Any expression over the fragments is a plan too: --plan "(env+act)*4 | learn@gpu".')
    return 0


def _algorithms() -> int:
    from weft.algorithms.registry import ALGORITHMS

    _table([(name, entry.summary) for name, entry in ALGORITHMS.items()])
    print("\n`weft train ALGO --help` lists an algorithm's fields.")
    print("Your own: weft train package.module:Class ENV  (a subclass of weft.Algorithm)")
    return 0


def _envs(flags: EnvsFlags) -> int:
    from weft.envs.listing import usable

    rows = [
        (row.name, row.summary if row.usable else f"needs: {row.install}")
        for row in usable(all_versions=flags.all)
        if row.kind != "yours"
    ]
    asked = flags.match.lower()
    _table([row for row in rows if asked in " ".join(row).lower()])
    print(
        "\nYour own: weft train ppo package.module:factory  (makes a gymnasium.Env, a PettingZoo or a JAX environment)"
    )
    return 0


def _table(rows: Sequence[Sequence[str]]) -> None:
    if not rows:
        print("none")
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
