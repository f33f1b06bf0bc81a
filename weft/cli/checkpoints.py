"""``weft checkpoints``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from weft.cli.flags import Flags, parse
from weft.core.setting import REQUIRED, setting
from weft.runtimes.prepare.settings import Settings
from weft.telemetry.figures import figure

if TYPE_CHECKING:
    from weft.services.checkpoint_list import Checked

ABOUT = (
    "List a run's checkpoints and check every byte of them. Nothing in the folder is imported or changed. Exit code 1 "
    "where there is none, or one is damaged, renamed or another run's."
)


@dataclass(frozen=True)
class CheckpointsFlags:
    """Which run, and how to say it."""

    run: str = setting(REQUIRED, "the run's name, or its folder", argument="RUN")
    json: bool = setting(False, "the list as one line of JSON")


def main(command: str, arguments: list[str]) -> int:
    """Parse, check, print."""
    given, kept = parse(
        "weft checkpoints", ABOUT, arguments, Flags(CheckpointsFlags), Flags(Settings, "its folder", names=("root",))
    )
    flags, root = CheckpointsFlags(**given), Settings(**kept).root
    folder, found = _check(flags.run, root)
    if flags.json:
        print(msgspec.json.encode([_as_json(one, found) for one in found]).decode())
    elif not found:
        print(f"{folder}: no checkpoint")
    else:
        print(_table(found))
    return 0 if found and not any(one.problem for one in found) else 1


def _check(run: str, root: Path) -> tuple[Path, list[Checked]]:
    from weft.services.checkpoint_list import check_all
    from weft.services.run_folder import read_run

    folder = read_run(root, run)
    return folder.path, check_all(folder.checkpoints, folder.id)


def _is_latest(one: Checked, found: list[Checked]) -> bool:
    return one is next((other for other in found if not other.problem), None)


def _as_json(one: Checked, found: list[Checked]) -> dict[str, Any]:
    return {
        "learn_steps": one.step,
        "env_steps": one.label.env_steps if one.label else None,
        "return_mean": one.label.return_mean if one.label else None,
        "bytes": one.nbytes,
        "path": str(one.path),
        "whole": not one.problem,
        "problem": one.problem,
        "latest": _is_latest(one, found),
        "best": one.is_best,
    }


def _table(found: list[Checked]) -> str:
    rows = [("learn step", "env steps", "return", "size", "")]
    for one in reversed(found):
        marks = ["latest"] * _is_latest(one, found) + ["best"] * one.is_best
        mean = one.label.return_mean if one.label else None
        rows.append(
            (
                str(one.step),
                figure(one.label.env_steps) if one.label else "?",
                figure(math.nan if mean is None else mean),
                f"{one.nbytes / 1e6:.2f} MB",
                one.problem or ", ".join(["whole", *marks]),
            )
        )
    widths = [max(len(row[k]) for row in rows) for k in range(4)]
    return "\n".join(
        "  ".join([*(cell.rjust(width) for cell, width in zip(row[:4], widths, strict=True)), row[4]]).rstrip()
        for row in rows
    )
