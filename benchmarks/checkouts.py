"""Two checkouts of Weft side by side: the flags that name them, a temporary one of a commit, whose code is imported."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.worker import ROOT, variables


class NoCheckout(Exception):
    """A folder or a commit that cannot be compared."""


class Sides(NamedTuple):
    """The two that are compared."""

    old: Path
    new: Path


def add_flags(parser: argparse.ArgumentParser) -> None:
    """``--old`` or ``--old-commit``, and ``--new``."""
    old = parser.add_mutually_exclusive_group(required=True)
    old.add_argument("--old", type=Path, metavar="DIR", help="a checkout of the commit to compare with")
    old.add_argument("--old-commit", metavar="COMMIT", help="or the commit: checked out to a temporary worktree")
    parser.add_argument("--new", type=Path, metavar="DIR", default=ROOT, help="the other checkout (this one)")


@contextmanager
def opened(flags: argparse.Namespace) -> Iterator[Sides]:
    """The checkouts that the flags name. Raises :class:`NoCheckout` where a process there would not import its Weft."""
    with _worktree(flags.old_commit) if flags.old_commit else _folder(flags.old) as old:
        sides = Sides(old, flags.new.resolve())
        for side in sides:
            require_own_weft(side)
        yield sides


def require_own_weft(checkout: Path) -> None:
    """Raise :class:`NoCheckout` unless a process there imports its Weft: else one would be compared with itself."""
    if not (checkout / "weft").is_dir():
        raise NoCheckout(f"{checkout} is no checkout of Weft: it has no folder 'weft'")
    command = [sys.executable, "-c", "import weft; print(weft.__file__)"]
    said = subprocess.run(command, cwd=checkout, env=variables(checkout), capture_output=True, text=True, check=False)
    if said.returncode or not Path(said.stdout.strip()).is_relative_to(checkout):
        raise NoCheckout(f"in {checkout} weft comes from elsewhere: {(said.stdout or said.stderr).strip()}")


@contextmanager
def _folder(given: Path) -> Iterator[Path]:
    yield given.resolve()


@contextmanager
def _worktree(commit: str) -> Iterator[Path]:
    """The commit in a temporary worktree of this repository, which is removed afterwards."""
    git = ["git", "-C", str(ROOT), "worktree"]
    with tempfile.TemporaryDirectory(prefix="weft-old-") as folder:
        path = Path(folder).resolve() / "weft"
        made = subprocess.run([*git, "add", "--detach", str(path), commit], capture_output=True, text=True, check=False)
        if made.returncode:
            raise NoCheckout(f"commit {commit!r} cannot be checked out: {made.stderr.strip().splitlines()[-1]}")
        try:
            yield path
        finally:
            subprocess.run([*git, "remove", "--force", str(path)], capture_output=True, check=True)
