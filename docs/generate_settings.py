"""Writes the tables of settings in docs/runs.md from their declarations: python docs/generate_settings.py."""

from __future__ import annotations

from pathlib import Path

from weft.cli.flags import Flags
from weft.cli.values import metavar
from weft.core.setting import Declared, declared
from weft.runtimes.prepare.settings import RunConfig, Settings

PAGE = Path(__file__).resolve().parent / "runs.md"
BEGIN, END = "<!-- begin: settings, by docs/generate_settings.py -->\n", "<!-- end: settings -->\n"
ONLY = {"": "", "workers": "; only where a plan runs in workers", "lag": "; only where a plan has several groups"}


def table(cls: type) -> str:
    """The settings of a dataclass, a row for each that is a keyword."""
    rows = [_row(one, Flags(cls)) for one in declared(cls).values() if not one.says.argument]
    return "\n".join(["| flag | Python | may be | what |", "|---|---|---|---|", *rows]) + "\n"


def page(text: str) -> str:
    """The page with its tables written again; the rest of ``text`` stays."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    tables = (
        f"\nWhat decides a run's result, and is in its `config.json`:\n\n{table(RunConfig)}"
        f"\nHow it is carried out, which may be another each time:\n\n{table(Settings)}\n"
    )
    return before + BEGIN + tables + END + after


def _row(one: Declared, flags: Flags) -> str:
    default = str(one.default) if isinstance(one.default, Path) else one.default
    allowed = ", ".join(f"`{choice}`" for choice in one.says.choices) or one.says.range
    what = one.says.help + ONLY[one.says.only]
    cells = (_flag(one, flags), f"`{one.name}={default!r}`", allowed, what)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _flag(one: Declared, flags: Flags) -> str:
    if one.name not in flags.fields():
        return ""
    kind = flags.fields()[one.name][1]
    word = "" if kind is bool or one.says.choices else metavar(kind)
    return f"`{flags.flag(one.name)} {word}".rstrip() + "`"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
