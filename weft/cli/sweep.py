"""``weft sweep`` and ``weft pbt``: many members of one algorithm, with values of their own."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.cli.fields import parse_with_algorithm
from weft.cli.flags import Flags
from weft.cli.reserved import stdout_reserved
from weft.cli.train import OutputFlags, exit_code, print_json
from weft.core.errors import ConfigError
from weft.core.setting import setting
from weft.populations.settings import PbtConfig, SweepConfig
from weft.runtimes.prepare.settings import RunConfig, Settings

if TYPE_CHECKING:
    from weft.populations.result import Population

ABOUT = {
    "sweep": "Train many members with different values of some fields, in one program where the environment is in JAX. "
    "An interrupted sweep goes on; a finished one is left as it is.",
    "pbt": "Population based training: every so many steps the worst members copy the best, and change their values. "
    "An interrupted one goes on; a finished one is left as it is.",
}
SHOWN = 8
"""Members in the closing lines, the best first."""


@dataclass(frozen=True)
class VaryFlags:
    """What differs between members."""

    vary: str = setting("", "FIELD=LOW..HIGH, FIELD=LOW..HIGH:log or FIELD=VALUE,VALUE; once for each field")


def main(command: str, arguments: list[str]) -> int:
    """Parse, train, tell how it went."""
    config: type = PbtConfig if command == "pbt" else SweepConfig
    rest, said = taken_out(arguments)
    (_, asked, run, how, shown), fields, env_options = parse_with_algorithm(
        f"weft {command}",
        ABOUT[command],
        rest,
        Flags(VaryFlags, "what is varied"),
        Flags(config, "the population"),
        Flags(RunConfig, "each member", names=[f.name for f in dataclasses.fields(RunConfig) if f.name != "seeds"]),
        Flags(Settings, "how it is carried out", about="Nothing here changes the result."),
        Flags(OutputFlags, "output"),
    )
    output = OutputFlags(**shown)
    if output.json and not sys.stderr.isatty():
        how["quiet"] = True
    with stdout_reserved() if output.json else nullcontext():
        population = _train({**run, "fields": fields, "env_options": env_options}, how, config(**asked), said)
    if output.json:
        print_json(population.summary)
    elif not how.get("quiet"):
        with suppress(OSError):
            print(closing(population), file=sys.stderr)
    return exit_code(population.summary)


def taken_out(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """A command line without its ``--vary`` flags, and what they say: there is one for each field."""
    rest: list[str] = []
    said: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        flag, equals, value = argument.partition("=")
        if flag != "--vary":
            rest.append(argument)
        elif equals:
            said.append(value)
        elif (following := next(waiting, None)) is not None and not following.startswith("--"):
            said.append(following)
        else:
            raise ConfigError("--vary needs FIELD=LOW..HIGH or FIELD=VALUE,VALUE after it")
    return rest, said


def closing(population: Population) -> str:
    """How it went, in a few lines for people."""
    summary = population.summary
    seconds, steps = summary["wall_seconds"], summary["env_steps"]
    lines = [f"{summary['exit']}: {len(population.members)} members, {steps:,} env steps in {seconds:.1f} s"]
    ranked = sorted(
        population.members,
        key=lambda m: (m.exit == "stopped", not math.isfinite(m.return_mean), -m.env_steps, -m.return_mean),
    )
    for member in ranked[:SHOWN]:
        values = "  ".join(f"{n} {v:g}" if isinstance(v, int | float) else f"{n} {v}" for n, v in member.values.items())
        mark = "best" if member.index == summary["best"] else member.exit if member.exit != "finished" else ""
        lines.append(f"  member {member.index:>3}  return {member.return_mean:>9.4g}  {values}  {mark}".rstrip())
    if len(ranked) > SHOWN:
        lines.append(f"  and {len(ranked) - SHOWN} more, in {population.folder / 'summary.json'}")
    lines.append(f"  population: {population.folder}   lineage: {population.folder / 'lineage.svg'}")
    lines.append(f"  weft eval {population.folder} plays the best, weft eval {population.best.folder} that member")
    if summary["exit"] == "interrupted":
        lines.append("  the same command goes on from here")
    return "\n".join(lines)


def _train(run: dict[str, Any], how: dict[str, Any], asked: SweepConfig | PbtConfig, said: list[str]) -> Population:
    from weft.runtimes.prepare.jax_setup import set_up

    config, settings = RunConfig(**run), Settings(**how)
    set_up(cache=True)
    from weft.populations.space import split_said
    from weft.populations.sweep import train_population

    return train_population(config, settings, asked, split_said(said))
