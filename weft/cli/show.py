"""``weft show``."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.cli.fields import parse_with_algorithm
from weft.cli.flags import Flags

ABOUT = (
    "Draw what a plan makes of an algorithm: groups, fragments, streams with their shapes and sizes. Starts nothing."
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
    mermaid: bool = False  # as a Mermaid flowchart instead of text


def main(command: str, arguments: list[str]) -> int:
    """Parse and draw; nothing is started."""
    (asked,), fields, env_options = parse_with_algorithm("weft show", ABOUT, arguments, Flags(ShowFlags, "the drawing"))
    flags = ShowFlags(**asked)

    from weft.core.errors import PlanError
    from weft.plans import Machine, draw_mermaid, draw_text, executable
    from weft.runtimes.config import RunConfig, prepare

    config = RunConfig(flags.algorithm, flags.environment, fields, flags.plan, envs=flags.envs, env_options=env_options)
    prepared = prepare(config, must_run=False)
    print((draw_mermaid if flags.mermaid else draw_text)(prepared.graph, prepared.plan))
    if not flags.mermaid:
        try:
            executable(prepared.plan, prepared.graph, Machine.here(), envs=prepared.envs)
        except PlanError as error:
            print(f"\n{error}")
    return 0
