"""``--policy PATTERN=ALGO[:FIELD=VALUE,...]``: several policies on a command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.core.errors import ConfigError

HOW = "--policy PATTERN=ALGO[:FIELD=VALUE,...], such as --policy 'seeker*=ppo:learning_rate=1e-4'"
ALGORITHM = "policies"


def split_policies(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Take every ``--policy`` out of a command line: (the rest, words by pattern)."""
    rest: list[str] = []
    found: dict[str, str] = {}
    waiting = iter(arguments)
    for argument in waiting:
        if argument != "--policy" and not argument.startswith("--policy="):
            rest.append(argument)
            continue
        said = argument.partition("=")[2] if "=" in argument else next(waiting, "")
        pattern, equals, words = said.partition("=")
        if not (pattern and equals and words):
            raise ConfigError(f"--policy {said!r} is no pattern and algorithm. Expected {HOW}")
        if pattern in found:
            raise ConfigError(f"--policy {pattern!r} was given twice, as {found[pattern]!r} and as {words!r}")
        found[pattern] = words
    return rest, found


def as_policies(algorithm: str, words: dict[str, str], root: str | Path) -> Any:
    """The policies that were given in words; ``frozen:run=NAME`` is that of a run below ``root``."""
    from weft.algorithms.policies import Policies

    if algorithm != ALGORITHM:
        raise ConfigError(
            f"--policy goes with the algorithm {ALGORITHM!r}, and {algorithm!r} was asked for. Every agent's policy is "
            f"said by a pattern: weft train {ALGORITHM} ENV "
            + " ".join(f"--policy '{p}={w}'" for p, w in words.items())
        )
    return Policies(
        {pattern: _frozen(said, root) if said.startswith("frozen:") else said for pattern, said in words.items()}
    )


def _frozen(words: str, root: str | Path) -> Any:
    """``frozen:run=NAME[,policy=NAME][,checkpoint=best]``."""
    from weft.api import load

    given = dict(part.partition("=")[::2] for part in words.removeprefix("frozen:").split(","))
    unknown = sorted(set(given) - {"run", "policy", "checkpoint"})
    if unknown or not given.get("run"):
        what = f"{', '.join(unknown)} is not known" if unknown else "no run is named"
        raise ConfigError(f"policy {words!r}: {what}. Expected frozen:run=NAME[,policy=NAME][,checkpoint=best]")
    checkpoint: str | int = given.get("checkpoint", "latest")
    opened = load(given["run"], root=root, checkpoint=int(checkpoint) if str(checkpoint).isdigit() else checkpoint)
    return opened.frozen(given.get("policy", ""))
