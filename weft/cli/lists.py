"""``weft plans``, ``weft algorithms`` and ``weft envs``: what there is to choose from."""

from __future__ import annotations

from dataclasses import dataclass

import tyro


@dataclass(frozen=True)
class ListFlags:
    """List what there is."""


@dataclass(frozen=True)
class EnvsFlags:
    """List the environments that are usable here, and what to install for the rest."""

    match: tyro.conf.Positional[str] = ""  # only names that contain this
    all: bool = False  # every registered version, not only the latest


def main(command: str, arguments: list[str]) -> int:
    """Parse and list."""
    if command == "envs":
        return _envs(tyro.cli(EnvsFlags, args=arguments, prog="weft envs"))
    tyro.cli(ListFlags, args=arguments, prog=f"weft {command}")
    return _plans() if command == "plans" else _algorithms()


def _plans() -> int:
    from weft.plans import catalogue

    rows = [
        (name, expression, who, "" if now else "not in this version yet") for name, expression, who, now in catalogue()
    ]
    _table(rows)
    print('\nAny expression over the fragments is a plan too: --plan "(env+act)*4 | learn@gpu".')
    return 0


def _algorithms() -> int:
    from weft.algorithms.registry import ALGORITHMS

    _table([(name, entry.summary) for name, entry in ALGORITHMS.items()])
    print("\nYour own: weft train package.module:Class ENV  (a subclass of weft.Algorithm)")
    return 0


def _envs(flags: EnvsFlags) -> int:
    from weft.envs.listing import usable

    listed = [row for row in usable(all_versions=flags.all) if flags.match.lower() in row.name.lower()]
    _table([(row.name, row.summary if row.usable else f"needs: {row.install}") for row in listed])
    print(
        "\nYour own: weft train ppo package.module:factory  (a function that makes a gymnasium.Env or a JAX environment)"
    )
    return 0


def _table(rows: list[tuple[str, ...]]) -> None:
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(len(rows[0]))] if rows else []
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
