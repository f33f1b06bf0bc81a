"""The pages on writing your own: what they show is what the examples say, and what they tell to run, runs.

A block ``python title="examples/x.py"`` is found word for word in that example; one with another title is a file of
the reader's; one without a title is executed, in order, all of a page in one namespace. In a ``console`` block each
``$ weft`` command is run with few steps, and must say the lines below it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from weft.cli.main import main

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("your-environment", "your-network", "your-algorithm", "your-fragment", "your-dataflow", "workers")
AT_LENGTH = ("workers", "your-fragment", "your-environment")
FEW = "2_048"


class Block(NamedTuple):
    """A fenced block of a page."""

    line: int
    language: str
    title: str
    text: str


def blocks(page: str) -> Iterator[Block]:
    text = (DOCS / f"{page}.md").read_text()
    for found in re.finditer(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', text, re.MULTILINE | re.DOTALL):
        yield Block(text[: found.start()].count("\n") + 2, found[1], found[2] or "", found[3])


@pytest.mark.parametrize("page", [pytest.param(p, marks=pytest.mark.slow) if p in AT_LENGTH else p for p in PAGES])
def test_a_page_does_what_it_says(page: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks(page):
        where = f"docs/{page}.md, line {block.line}"
        match block.language, block.title:
            case "python", "":
                below = "\n" * (block.line - 1) + block.text  # so that a traceback points into the page
                exec(compile(below, str(DOCS / f"{page}.md"), "exec", dont_inherit=True), names)
            case "python", title if title.startswith("examples/"):
                assert block.text.strip(), f"{where}: nothing of {title}"
                assert block.text in (here / title).read_text(), f"{where}: not as in {title}"
            case "python", title:
                (here / title).write_text(block.text)
            case "console", "":
                _run_console(block.text, where, here, capsys)
            case other:
                pytest.fail(f"{where}: a block of {other}, which nothing checks")


def _run_console(text: str, where: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *said = part.splitlines()
        program, *arguments = shlex.split(command)
        if program == "python":  # the example's own test runs it
            assert (here / arguments[0]).exists(), f"{where}: {command}"
            continue
        assert program == "weft", f"{where}: {command}"
        if "--steps" in arguments:
            arguments[arguments.index("--steps") + 1] = FEW
        if arguments[0] == "train":
            arguments += ["--quiet", "--no-tensorboard"]
        code = main(arguments)
        out, err = capsys.readouterr()
        refused = any(line.startswith("weft: error:") for line in said)
        assert (code != 0) == refused, f"{where}: {command}\nexit code {code}\n{out}{err}"
        for line in said:
            assert line in out + err, f"{where}: {command}\nexpected: {line}\ngot: {out}{err}"
