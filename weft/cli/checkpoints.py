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
    "List a run's checkpoints and check every byte of them. Nothing in the folder is imported, and nothing but tags "
    "changed. Exit code 1 where there is none, or one is damaged, renamed or another run's."
)


@dataclass(frozen=True)
class CheckpointsFlags:
    """Which run, and how to say it."""

    run: str = setting(REQUIRED, "the run's name, or its folder", argument="RUN")
    tag: str | None = setting(None, "a name for one of them, which then stays: --checkpoint says which")
    checkpoint: str = setting("latest", "the one to tag: latest, best, a learn step, step-ENV_STEPS, or a tag")
    untag: str | None = setting(None, "a name of yours to take away again")
    json: bool = setting(False, "the list as one line of JSON")


def main(command: str, arguments: list[str]) -> int:
    """Parse, check, print."""
    given, kept = parse(
        "weft checkpoints", ABOUT, arguments, Flags(CheckpointsFlags), Flags(Settings, "its folder", names=("root",))
    )
    flags, root = CheckpointsFlags(**given), Settings(**kept).root
    folder, found = _check(flags, root)
    if flags.json:
        print(msgspec.json.encode([_as_json(one, found) for one in found]).decode())
    elif not found:
        print(f"{folder}: no checkpoint")
    else:
        print(_table(found))
    return 0 if found and not any(one.problem for one in found) else 1


def _check(flags: CheckpointsFlags, root: Path) -> tuple[Path, list[Checked]]:
    from weft.services.checkpoint_list import check_all
    from weft.services.checkpoints import put_tag_on
    from weft.services.run_folder import read_run
    from weft.services.tags import check_tag, remove_tag

    folder = read_run(root, flags.run)
    if flags.tag is not None:
        put_tag_on(folder.checkpoints, flags.tag, flags.checkpoint, folder.id)
    if flags.untag is not None:
        check_tag(flags.untag)
        remove_tag(folder.checkpoints, flags.untag)
    return folder.path, check_all(folder.checkpoints, folder.id)


def _is_latest(one: Checked, found: list[Checked]) -> bool:
    return one is next((other for other in found if not other.problem and not other.params_only), None)


def _as_json(one: Checked, found: list[Checked]) -> dict[str, Any]:
    return {
        "learn_steps": one.step,
        "env_steps": one.label.env_steps if one.label else None,
        "return_mean": one.label.return_mean if one.label else None,
        "score": one.label.score if one.label else None,
        "bytes": one.nbytes,
        "path": str(one.path),
        "whole": not one.problem,
        "problem": one.problem,
        "latest": _is_latest(one, found),
        "best": one.is_best,
        "tags": list(one.tags),
        "params_only": one.params_only,
    }


def _table(found: list[Checked]) -> str:
    rows = [("learn step", "env steps", "return", "size", "")]
    for one in reversed(found):
        marks = ["params only"] * one.params_only + ["latest"] * _is_latest(one, found) + ["best"] * one.is_best
        marks += [name for name in one.tags if name != "best"]
        score = one.label.score if one.label else None
        mean = score if score is not None or one.label is None else one.label.return_mean
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
