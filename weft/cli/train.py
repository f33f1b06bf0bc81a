"""``weft train``."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from weft.algorithms.registry import ALGORITHMS, load_algorithm
from weft.cli.fields import flag_fields, mentioned, split_env_options
from weft.core.errors import ConfigError

EXIT_CODES = {"finished": 0, "interrupted": 130}


@dataclass(frozen=True)
class TrainFlags:
    """Train an algorithm in an environment; a run that exists is resumed."""

    algorithm: tyro.conf.Positional[str]  # `weft algorithms`, or package.module:Class
    environment: tyro.conf.Positional[str]  # a Gymnasium id, weft:NAME, gymnax:NAME, package.module:factory
    plan: str = "inline"  # where the fragments run: an expression or a name (`weft plans`)
    on: Literal["local", "ray"] = "local"
    steps: int | None = None  # environment steps for each seed; unless set, as tuned for the environment
    seed: int = 0
    seeds: int = 0  # train this many seeds side by side, from --seed on
    envs: int | None = None  # environments in the whole run; unless set, as tuned for the environment
    vector: Literal["auto", "native", "each"] = "auto"  # Gymnasium: its own vector environment, or one by one
    run: str | None = None  # the run's name; unless set: ALGO-ENV-sSEED
    root: Path = Path("runs")  # where runs are kept
    quiet: bool = False  # show nothing while training
    json: bool = False  # the summary as one line of JSON on stdout, and nothing else there
    tensorboard: Annotated[bool, tyro.conf.FlagConversionOff] = True
    wandb: str | None = None  # a W&B project to log to
    checkpoint_seconds: float = 30.0


def main(command: str, arguments: list[str]) -> int:
    """Parse, train, tell how it went."""
    arguments, env_options = split_env_options(arguments)
    flags, fields = parse(arguments)
    if flags.on == "ray":
        raise ConfigError("--on ray: the Ray runtime is not in this version yet; leave --on out")

    from weft.runtimes.config import RunConfig, Settings
    from weft.runtimes.jax_setup import set_up

    set_up(host_environment=not flags.environment.startswith(("weft:", "gymnax:")))
    from weft.runtimes.local import train

    config = RunConfig(
        algorithm=flags.algorithm,
        environment=flags.environment,
        fields=fields,
        plan=flags.plan,
        steps=flags.steps,
        seed=flags.seed,
        seeds=flags.seeds,
        envs=flags.envs,
        vector=flags.vector,
        env_options=env_options,
    )
    settings = Settings(
        root=flags.root,
        run=flags.run,
        quiet=flags.quiet or (flags.json and not sys.stderr.isatty()),
        tensorboard=flags.tensorboard,
        wandb=flags.wandb,
        checkpoint_seconds=flags.checkpoint_seconds,
    )
    summary = train(config, settings).summary
    if flags.json:
        print(json.dumps(summary))
    elif not flags.quiet:
        print(_closing(summary), file=sys.stderr)
    return EXIT_CODES.get(summary["exit"], 1)


def parse(arguments: list[str]) -> tuple[TrainFlags, dict[str, Any]]:
    """The flags, and the algorithm's fields that were named; leaves with a message where they cannot be read."""
    words = [a for a in arguments if not a.startswith("-")]
    name = next((w for w in words if w.lower() in ALGORITHMS), words[0] if words else "ppo")
    fields_type = flag_fields(load_algorithm(name))
    both = make_dataclass(
        "Train",
        [("algo", tyro.conf.FlagConversionOff[fields_type], field(default_factory=fields_type))],  # type: ignore[valid-type]
        bases=(TrainFlags,),
        frozen=True,
    )
    both.__doc__ = TrainFlags.__doc__
    parsed = tyro.cli(both, args=arguments, prog="weft train", description=TrainFlags.__doc__)
    values = {name: getattr(parsed.algo, name) for name in mentioned(arguments, "--algo.")}  # type: ignore[attr-defined]
    return parsed, values


def _closing(summary: dict[str, Any]) -> str:
    steps, rate = summary["env_steps"], summary["env_steps_per_second"]
    lines = [
        f"{summary['exit']}: return {summary['return_mean']:.1f} over the last 100 of {summary['episodes']:,} episodes",
        f"  {steps:,} env steps in {summary['wall_seconds']:.1f} s, {rate:,.0f} a second after compilation",
        f"  run: {summary['run']}",
    ]
    for row in summary.get("seeds", []):
        lines.append(f"  seed {row['seed']}: return {row['return_mean']:.1f} ({row['episodes']:,} episodes)")
    if summary["exit"] == "interrupted":
        lines.append("  the same command goes on from here")
    return "\n".join(lines)
