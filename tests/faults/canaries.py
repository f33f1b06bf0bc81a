"""Pickled canaries in every file of a run: ``python canaries.py ROOT RUN``, which hears of every unpickling.

A canary makes a file, if it is ever unpickled. What happened is printed as JSON: for each file and command the exit
code, and what ``pickle`` looked up meanwhile.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from weft.cli.main import main

LOOKED_UP: list[str] = []


class Canary:
    """Makes the file ``path`` where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.path),))


def hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "pickle.find_class":
        LOOKED_UP.append(".".join(map(str, arguments)))


def outcome(arguments: list[str]) -> int:
    """The exit code of a command; what it says is not looked at."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            return main(arguments)
        except SystemExit as left:
            return int(left.code or 0)


def look(root: Path, run: str) -> dict[str, Any]:
    """Put a canary into each file of a copy of the run, in turn, and use the run."""
    dead = root / "canary"
    told: dict[str, Any] = {}
    files = sorted(path.relative_to(root / run) for path in (root / run).rglob("*") if path.is_file())
    for file in files:
        for way in ("instead", "in front"):
            shutil.rmtree(root / "copy", ignore_errors=True)
            shutil.copytree(root / run, root / "copy")
            canary, before = pickle.dumps(Canary(dead)), (root / "copy" / file).read_bytes()
            (root / "copy" / file).write_bytes(canary if way == "instead" else canary + before)
            where = ["--root", str(root)]
            codes = [
                outcome(["show", "copy", *where]),
                outcome(["checkpoints", "copy", *where]),
                outcome(["eval", "copy", *where, "--episodes", "1"]),
            ]
            told[f"{file} {way}"] = codes
    return {"codes": told, "looked_up": sorted(set(LOOKED_UP)), "dead": dead.exists()}


if __name__ == "__main__":
    sys.addaudithook(hear)
    pickle.loads(pickle.dumps(Path))  # the hook hears
    assert LOOKED_UP
    LOOKED_UP.clear()
    print(json.dumps(look(Path(sys.argv[1]), sys.argv[2])))
