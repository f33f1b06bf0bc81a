"""``weft chaos``."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from weft.chaos.schedule import kinds_of, schedule
from weft.chaos.storm import storm
from weft.cli.flags import Flags, parse
from weft.core.errors import ConfigError
from weft.core.setting import check_settings, setting

ABOUT = """Train under a seeded schedule of faults, and say what became of it: the ledger, how long it took to learn
again, the throughput beside a run without faults, and what was left behind. ALGO, ENV and every flag that is not named
here are those of `weft train`. Nothing is kept of either run. Exit code 0: the run survived."""


@dataclass(frozen=True)
class ChaosFlags:
    """What is done to the run, and for how long."""

    faults: str = setting("kill", "kinds, joined by commas: kill, stop, slow, disk, raise; or all")
    every: float = setting(15.0, "seconds between two faults, on average", above=0.0)
    seconds: float = setting(60.0, "how long each of the two runs learns", above=0.0)
    schedule_seed: int = setting(0, "of the schedule: the same seed, the same faults", at_least=0)
    raises: float = setting(0.001, "the share of the environments' steps that raise, where faults has raise", above=0.0)
    json: bool = setting(False, "the verdict as one line of JSON on stdout")

    def __post_init__(self) -> None:
        check_settings(self)


def main(command: str, arguments: list[str]) -> int:
    """Parse, run both, print the verdict."""
    flags = Flags(ChaosFlags, "the faults")
    own, train = _apart(arguments, {flags.flag(name) for name in flags.fields()})
    (given,) = parse("weft chaos", ABOUT, own, flags)
    chaos, kinds = ChaosFlags(**given), kinds_of(given.get("faults", "kill"))
    if len(train) < 2 or any(word.startswith("-") for word in train[:2]):
        raise ConfigError(
            f"weft chaos needs an algorithm and an environment first, got {' '.join(train) or 'nothing'}. For example: "
            'weft chaos ppo CartPole-v1 --plan "env*2 | act | learn" --faults kill,stop'
        )
    faults = schedule(kinds, chaos.every, chaos.seconds, chaos.schedule_seed)
    with tempfile.TemporaryDirectory(prefix="weft-chaos-") as root:
        verdict = storm(
            train,
            faults,
            chaos.seconds,
            Path(root),
            raises=chaos.raises if "raise" in kinds else 0.0,
            tell=lambda text: print(text, file=sys.stderr, flush=True),
        )
    print(msgspec.json.encode(verdict.to_json()).decode() if chaos.json else verdict.table())
    return 1 if verdict.problems else 0


def _apart(arguments: list[str], own: set[str]) -> tuple[list[str], list[str]]:
    """The arguments of this command, and those of ``weft train``."""
    mine: list[str] = []
    theirs: list[str] = []
    words = iter(arguments)
    for word in words:
        name, equals, _ = word.partition("=")
        if name in ("-h", "--help"):
            mine.append(word)
        elif name in own:
            mine.append(word)
            if not equals and name != "--json":
                mine += [value for value in [next(words, None)] if value is not None]
        else:
            theirs.append(word)
    return mine, theirs
