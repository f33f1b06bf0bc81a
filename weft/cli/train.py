"""``weft train``."""

from __future__ import annotations

import signal
import sys
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from weft.cli.fields import parse_with_algorithm
from weft.cli.flags import Flags
from weft.cli.reserved import stdout_reserved
from weft.core.errors import ConfigError, RunError

ABOUT = "Train an algorithm in an environment. A run that exists is resumed; one that is finished is left as it is."


@dataclass(frozen=True)
class RunFlags:
    """What decides a run's result."""

    algorithm: str = field(metadata={"name": "ALGO"})  # a name (`weft algorithms`), or package.module:Class
    environment: str = field(
        metadata={"name": "ENV"}  # a Gymnasium id, weft:NAME, gymnax:NAME (`weft envs`), or package.module:factory
    )
    plan: str = "inline"  # where the fragments run: a name (`weft plans`) or an expression
    lockstep: bool = False  # learn only from what the current params did: the result is then the same for every plan
    max_lag: int | None = None  # otherwise: versions that params may be behind, 1 unless set; older is dropped
    on: Literal["local", "ray"] = "local"  # the runtime; ray is not in this version yet
    steps: int | None = None  # environment steps for each seed; unless set: tuned for the environment
    seed: int = 0  # of everything that is random
    seeds: int | None = None  # train this many seeds side by side, from --seed on
    envs: int | None = None  # environments in the whole run; unless set: tuned for the environment
    vector: Literal["auto", "native", "each"] = "auto"  # Gymnasium: its own vector environment, or one by one


@dataclass(frozen=True)
class OutputFlags:
    """What becomes of it: nothing here changes the result."""

    run: str | None = None  # the run's name, its folder in --root; unless set: ALGO-ENV-sSEED
    root: Path = Path("runs")  # the folder that runs are kept in
    checkpoint_seconds: float = 30.0  # from one checkpoint to the next; there is always one at the end
    ring: int = 2  # slices of an env worker's environments: one is stepped while others wait for their actions
    channel: Literal["shm", "tcp"] = "shm"  # what joins worker processes: shared memory, or sockets on this machine
    hang_seconds: float = 60.0  # a worker that is stuck for so long is killed and replaced
    tensorboard: bool = True  # write no TensorBoard files
    wandb: str | None = None  # a W&B project to log to
    quiet: bool = False  # show nothing but warnings
    json: bool = False  # the summary as one line of JSON on stdout, and nothing else there


def main(command: str, arguments: list[str]) -> int:
    """Parse, train, tell how it went."""
    (asked, shown), fields, env_options = parse_with_algorithm(
        "weft train",
        ABOUT,
        arguments,
        Flags(RunFlags, "the run"),
        Flags(OutputFlags, "its folder, and what is shown"),
    )
    flags, output = RunFlags(**asked), OutputFlags(**shown)
    if flags.on == "ray":
        raise ConfigError("--on ray: the Ray runtime is not in this version yet; leave --on out")
    with stdout_reserved() if output.json else nullcontext():
        summary = _train(flags, output, fields, env_options)
    if output.json:
        _print_json(summary)
    elif not output.quiet:
        with suppress(OSError):  # nobody reads any more (`2>&1 | head -1`): how it went, the exit code says
            print(closing(summary), file=sys.stderr)
    return _exit_code(summary)


def _print_json(summary: dict[str, Any]) -> None:
    try:
        print(msgspec.json.encode(summary).decode(), flush=True)  # NaN, which JSON has not, becomes null
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RunError(
            f"the summary could not be written to stdout: {error.strerror}. The run {summary['exit']}; it is in "
            f"{summary['run']}/summary.json."
        ) from error


def closing(summary: dict[str, Any]) -> str:
    """A summary in a few lines for people."""
    steps, rate = summary["env_steps"], summary["env_steps_per_second"]
    lines = [
        f"{summary['exit']}: {_return(summary)}",
        f"  {steps:,} env steps in {summary['wall_seconds']:.1f} s, {rate:,.0f} a second after compilation",
    ]
    lines += [f"  seed {row['seed']}: {_return(row)}" for row in summary.get("seeds", [])]
    lines.append(f"  run: {summary['run']}")
    if summary["exit"] == "interrupted":
        lines.append("  the same command goes on from here")
    return "\n".join(lines)


def _train(flags: RunFlags, output: OutputFlags, fields: dict[str, Any], env_options: dict[str, Any]) -> dict[str, Any]:
    from weft.runtimes.prepare.config import RunConfig, Settings
    from weft.runtimes.prepare.jax_setup import set_up

    set_up(cache=True)
    from weft.runtimes.loop.train import train

    config = RunConfig(
        algorithm=flags.algorithm,
        environment=flags.environment,
        fields=fields,
        plan=flags.plan,
        steps=flags.steps,
        seed=flags.seed,
        seeds=_seeds(flags),
        envs=flags.envs,
        vector=flags.vector,
        env_options=env_options,
        lockstep=flags.lockstep,
        max_lag=flags.max_lag,
    )
    settings = Settings(
        root=output.root,
        run=output.run,
        quiet=output.quiet or (output.json and not sys.stderr.isatty()),
        tensorboard=output.tensorboard,
        wandb=output.wandb,
        checkpoint_seconds=output.checkpoint_seconds,
        ring=output.ring,
        channel=output.channel,
        hang_seconds=output.hang_seconds,
    )
    return train(config, settings).summary


def _seeds(flags: RunFlags) -> int:
    if flags.seeds is None:
        return 0
    if flags.seeds < 1:
        raise ConfigError(f"--seeds must be at least 1, got {flags.seeds}")
    return flags.seeds


def _return(row: dict[str, Any]) -> str:
    mean, episodes = row["return_mean"], row["episodes"]
    if mean is None or not episodes:
        return "no episode has ended yet"
    over = f"the last 100 of {episodes:,} episodes" if episodes > 100 else f"{episodes} episode{'s'[: episodes > 1]}"
    return f"return {mean:.1f} over {over}"


def _exit_code(summary: dict[str, Any]) -> int:
    if summary["exit"] == "interrupted":
        return 128 + signal.Signals[summary.get("signal", "SIGINT")].value
    return 0 if summary["exit"] == "finished" else 1
