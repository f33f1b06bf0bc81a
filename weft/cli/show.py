"""``weft show``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from weft.algorithms.registry import ALGORITHMS
from weft.cli.fields import parse_with_algorithm, split_env_options
from weft.cli.flags import HELP, Flags, parse, positional_words

ABOUT = (
    "Draw what a plan makes of an algorithm: groups, fragments, streams with their shapes and sizes. Starts nothing. "
    "With one name, `weft show RUN`: a run as it was laid out, with the messages and bytes per second that were "
    "measured on each stream between its workers; --root is the folder that runs are kept in."
)


@dataclass(frozen=True)
class ShowFlags:
    """What to draw."""

    algorithm: str = field(metadata={"name": "ALGO"})  # a name (`weft algorithms`), or package.module:Class
    environment: str = field(
        metadata={"name": "ENV"}  # a Gymnasium id, weft:NAME, gymnax:NAME (`weft envs`), or package.module:factory
    )
    plan: str = "inline"  # where the fragments run: a name (`weft plans`) or an expression
    envs: int | None = None  # environments in the whole run; unless set: tuned for the environment
    ring: int = 2  # slices of an env worker's environments: lanes are of that size
    mermaid: bool = False  # as a Mermaid flowchart instead of text


@dataclass(frozen=True)
class ShowRunFlags:
    """Which run to draw."""

    run: str = field(metadata={"name": "RUN"})  # the run's name, or its folder
    root: Path = Path("runs")  # the folder that runs are kept in
    mermaid: bool = False  # as a Mermaid flowchart instead of text


def main(command: str, arguments: list[str]) -> int:
    """Parse and draw; nothing is started."""
    if _names_a_run(arguments):
        (given,) = parse("weft show", "Draw a run.", arguments, Flags(ShowRunFlags, "the drawing"))
        print(_draw_run(ShowRunFlags(**given)))
        return 0
    (asked,), fields, env_options = parse_with_algorithm("weft show", ABOUT, arguments, Flags(ShowFlags, "the drawing"))
    flags = ShowFlags(**asked)

    from weft.runtimes.prepare.config import RunConfig, Settings, prepare
    from weft.runtimes.prepare.drawing import draw

    config = RunConfig(flags.algorithm, flags.environment, fields, flags.plan, envs=flags.envs, env_options=env_options)
    settings = Settings(ring=flags.ring)
    print(draw(prepare(config, must_run=False), settings, mermaid=flags.mermaid))
    return 0


def _names_a_run(arguments: list[str]) -> bool:
    """One name, which is no algorithm's: the rest of the command line belongs to it."""
    if any(argument in HELP for argument in arguments):
        return False
    words = positional_words(split_env_options(arguments)[0], Flags(ShowFlags), Flags(ShowRunFlags))
    return len(words) == 1 and words[0] not in ALGORITHMS and ":" not in words[0]


def _draw_run(flags: ShowRunFlags) -> str:
    from weft.api import draw_run_folder

    return draw_run_folder(flags.run, flags.root, mermaid=flags.mermaid)
