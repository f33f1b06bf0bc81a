"""``weft show``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from weft.algorithms.registry import ALGORITHMS
from weft.cli.fields import parse_with_algorithm, split_env_options
from weft.cli.flags import HELP, Flags, parse, positional_words
from weft.core.setting import REQUIRED, setting
from weft.runtimes.prepare.settings import RunConfig, Settings

ABOUT = (
    "Draw what a plan makes of an algorithm: groups, fragments, streams with their shapes and sizes. Starts nothing. "
    "With one name, `weft show RUN`: a run as it was laid out, with the messages and bytes per second that were "
    "measured on each stream between its workers; --root is the folder that runs are kept in."
)


@dataclass(frozen=True)
class DrawingFlags:
    """How to draw."""

    mermaid: bool = setting(False, "as a Mermaid flowchart instead of text")


@dataclass(frozen=True)
class ShowRunFlags:
    """Which run to draw."""

    run: str = setting(REQUIRED, "the run's name, or its folder", argument="RUN")


PLANNED = (
    Flags(RunConfig, "the run", names=("algorithm", "environment", "plan", "envs")),
    Flags(Settings, "how it is carried out", names=("ring",)),
    Flags(DrawingFlags, "the drawing"),
)
"""What may be said where a plan is drawn."""

MADE = (Flags(ShowRunFlags, "the run"), Flags(Settings, "its folder", names=("root",)), PLANNED[-1])
"""What may be said where a run is drawn that was made before."""


def main(command: str, arguments: list[str]) -> int:
    """Parse and draw; nothing is started."""
    if _names_a_run(arguments):
        named, kept, drawn = parse("weft show", "Draw a run.", arguments, *MADE)
        print(_draw_run(ShowRunFlags(**named).run, Settings(**kept).root, DrawingFlags(**drawn).mermaid))
        return 0
    (asked, how, drawn), fields, env_options = parse_with_algorithm("weft show", ABOUT, arguments, *PLANNED)

    from weft.runtimes.prepare.config import prepare
    from weft.runtimes.prepare.drawing import draw

    config, settings = RunConfig(**asked, fields=fields, env_options=env_options), Settings(**how)
    print(draw(prepare(config, must_run=False), settings, mermaid=DrawingFlags(**drawn).mermaid))
    return 0


def _names_a_run(arguments: list[str]) -> bool:
    """One name, which is no algorithm's: the rest of the command line belongs to it."""
    if any(argument in HELP for argument in arguments):
        return False
    words = positional_words(split_env_options(arguments)[0], *PLANNED, *MADE)
    return len(words) == 1 and words[0] not in ALGORITHMS and ":" not in words[0]


def _draw_run(run: str, root: Path, mermaid: bool) -> str:
    from weft.api import draw_run_folder

    return draw_run_folder(run, root, mermaid=mermaid)
