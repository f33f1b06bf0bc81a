"""``weft train``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from weft.cli.fields import parse_with_algorithm
from weft.cli.flags import Flags
from weft.cli.policies import as_policies, split_policies
from weft.cli.reserved import stdout_reserved
from weft.core.errors import ConfigError, RunError
from weft.core.setting import setting
from weft.runtimes.prepare.settings import RunConfig, Settings
from weft.telemetry.figures import figure

ABOUT = "Train an algorithm in an environment. A run that exists is resumed; one that is finished is left as it is."


@dataclass(frozen=True)
class OutputFlags:
    """What is shown beside the run, and printed when it has ended."""

    dashboard: bool = setting(False, "watch it in a browser while it trains, as `weft watch` does; the URL is printed")
    json: bool = setting(
        False, "the summary as one line of JSON on stdout, also of a run that fails, and nothing else there"
    )
    detach: bool = setting(
        False, "leave once the run has begun: it goes on by itself, and prints into logs/head.log of its folder"
    )

    def __post_init__(self) -> None:
        if self.dashboard and self.detach:
            raise ConfigError("--dashboard ends with this command, and --detach leaves at once: use `weft watch`.")


def main(command: str, arguments: list[str], on_begun: Callable[[Path], None] = lambda folder: None) -> int:
    """Parse, train, tell how it went; ``on_begun`` is given the folder once the run has begun."""
    rest, policies = split_policies(arguments)
    (asked, how, shown), fields, env_options = parse_with_algorithm(
        "weft train",
        ABOUT,
        rest,
        Flags(RunConfig, "the run", about="What decides its result."),
        Flags(Settings, "how it is carried out", about="Nothing here changes the result."),
        Flags(OutputFlags, "output"),
    )
    if policies:
        asked["algorithm"] = as_policies(str(asked["algorithm"]), policies, how.get("root", Settings.root))
    output = OutputFlags(**shown)
    if output.detach:
        from weft.cli import detached

        alone = [a for a in arguments if a.partition("=")[0] not in ("--detach", "--json")]
        return detached.start(alone, how.get("root", Settings.root), as_json=output.json)
    if output.json and not sys.stderr.isatty():
        how["quiet"] = True
    ended: list[dict[str, Any]] = []
    try:
        with (
            stdout_reserved() if output.json else nullcontext(),
            _dashboard(how) if output.dashboard else nullcontext(),
        ):
            whole = {**asked, "fields": fields, "env_options": env_options}
            summary = _train(whole, how, ended.append, on_begun)
    except Exception as error:
        if output.json:
            with suppress(OSError, RunError):  # the error itself says more, and the exit code
                print_json(ended[-1] if ended else {"exit": "failed", "error": str(error)})
        raise
    if output.json:
        print_json(summary)
    elif not how.get("quiet"):
        with suppress(OSError):  # nobody reads any more (`2>&1 | head -1`): how it went, the exit code says
            print(closing(summary), file=sys.stderr)
    return exit_code(summary)


def print_json(summary: dict[str, Any]) -> None:
    """A summary as one line on stdout. Raises RunError where that cannot be written."""
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
    if summary["exit"] == "stopped":
        lines.append(f"  stopped: {summary['stopped']}")
    if summary["exit"] in ("interrupted", "stopped"):
        lines.append("  the same command goes on from here")
    return "\n".join(lines)


def _train(
    asked: dict[str, Any],
    how: dict[str, Any],
    on_summary: Callable[[dict[str, Any]], None],
    on_begun: Callable[[Path], None],
) -> dict[str, Any]:
    from weft.runtimes.prepare.jax_setup import set_up

    config, settings = RunConfig(**asked), Settings(**how)
    set_up(cache=True)
    from weft.runtimes.loop.train import train

    return train(config, settings, on_summary, on_begun=on_begun).summary


@contextmanager
def _dashboard(how: dict[str, Any]) -> Iterator[None]:
    """A dashboard beside the run, in a process of its own. Raises RunError where it does not start."""
    from weft.dashboard.beside import Beside

    with Beside(how.get("root", Settings.root)) as beside:
        with suppress(OSError):
            print(f"dashboard: {beside.url}", file=sys.stderr)
        yield


def _return(row: dict[str, Any]) -> str:
    mean, episodes = row["return_mean"], row["episodes"]
    if mean is None or not episodes:
        return "no episode has ended yet"
    over = f"the last 100 of {episodes:,} episodes" if episodes > 100 else f"{episodes} episode{'s'[: episodes > 1]}"
    return f"return {figure(mean) if abs(mean) < 10 else f'{mean:.1f}'} over {over}"


def exit_code(summary: dict[str, Any]) -> int:
    """What a command ends with, by a run's summary."""
    if summary["exit"] == "interrupted":
        return 128 + signal.Signals[summary.get("signal", "SIGINT")].value
    return 0 if summary["exit"] in ("finished", "stopped") else 1
