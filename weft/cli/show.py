"""``weft show``."""

from __future__ import annotations

from dataclasses import dataclass

import tyro

from weft.cli.fields import split_env_options


@dataclass(frozen=True)
class ShowFlags:
    """Draw what a plan makes of an algorithm: groups, fragments, streams with their shapes and sizes."""

    algorithm: tyro.conf.Positional[str]
    environment: tyro.conf.Positional[str]
    plan: str = "inline"
    envs: int | None = None
    mermaid: bool = False  # as a Mermaid flowchart instead of text


def main(command: str, arguments: list[str]) -> int:
    """Parse and draw; nothing is started."""
    arguments, env_options = split_env_options(arguments)
    flags = tyro.cli(ShowFlags, args=arguments, prog="weft show")

    from weft.core.errors import PlanError
    from weft.plans import Machine, draw_mermaid, draw_text, executable
    from weft.runtimes.config import RunConfig, prepare

    config = RunConfig(flags.algorithm, flags.environment, plan=flags.plan, envs=flags.envs, env_options=env_options)
    prepared = prepare(config, must_run=False)
    print((draw_mermaid if flags.mermaid else draw_text)(prepared.graph, prepared.plan))
    if not flags.mermaid:
        try:
            executable(prepared.plan, prepared.graph, Machine.here(), envs=prepared.envs)
        except PlanError as error:
            print(f"\n{error}")
    return 0
