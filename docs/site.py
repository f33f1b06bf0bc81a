"""Build the site: ``make docs``, or ``python docs/site.py [FOLDER]`` where the extra ``docs`` is installed.

The pages are copied with the files that they link to into ``build/site``, in the layout of the repository, so that the
same relative links hold in a checkout, on a code host and in the site. Then mkdocs builds it, strictly: a link that
leads nowhere, or a page that is in no menu, fails.
"""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "build" / "site"
BAR = r"\|"
LINK = re.compile(r"\]\(([^)#\s]+)")


def main(target: str = "site") -> int:
    """Copy, then build."""
    gather(SOURCE)
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(Path(target).absolute()),
    ]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def gather(source: Path) -> None:
    """Put the pages, and what they link to, into an empty folder."""
    shutil.rmtree(source, ignore_errors=True)
    _copy(ROOT / "docs" / "site.css", source)
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"]
    for page in pages:
        _copy(page, source)
        for link in LINK.findall(page.read_text()):
            linked = (page.parent / link).resolve()
            if linked.is_file() and linked.is_relative_to(ROOT) and linked.suffix != ".md":
                _copy(linked, source)


def _copy(path: Path, source: Path) -> None:
    place = source / path.relative_to(ROOT)
    place.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".md":
        place.write_text(_with_bars(_without_folders(path)))
    else:
        shutil.copy(path, place)


def _without_folders(page: Path) -> str:
    """A page whose links to folders are text: a site has no listing of them."""

    def plain(found: re.Match[str]) -> str:
        target = (page.parent / found[2].partition("#")[0]).resolve()
        return found[1] if target.is_dir() else found[0]

    return re.sub(r"\[([^\]]*)\]\((?!https?:)([^)\s]+)\)", plain, page.read_text())


def _with_bars(text: str) -> str:
    """A page whose code in tables has its bars: a code host takes the backslash before them away, mkdocs shows it."""

    def plain(found: re.Match[str]) -> str:
        return f"<code>{html.escape(found[1]).replace(BAR, '&#124;')}</code>" if BAR in found[1] else found[0]

    rows = (re.sub(r"`([^`]+)`", plain, row) if row.startswith("|") else row for row in text.split("\n"))
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
