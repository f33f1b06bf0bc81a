"""``weft record``."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from weft.cli.evaluate import hush_pygame, warn
from weft.cli.flags import Flags, parse
from weft.cli.reserved import stdout_reserved
from weft.core.setting import REQUIRED, setting
from weft.runtimes.prepare.settings import Settings

ABOUT = (
    "Play with a trained run's policy in fresh environments, and write what happened as a data set into a new folder. "
    "The run stays as it is."
)


@dataclass(frozen=True)
class RecordFlags:
    """What to play, and where it goes."""

    run: str = setting(REQUIRED, "the run's name, or its folder", argument="RUN")
    folder: str = setting(REQUIRED, "the data set's folder, which must not be there yet", argument="DIR")
    steps: int = setting(10_000, "how many to play at least")
    explore: bool = setting(False, "act as at the end of training, instead of taking the likeliest actions")
    checkpoint: str = setting(
        "latest", "which to play: latest, best, a learn step, step-ENV_STEPS, or a tag (`weft checkpoints RUN`)"
    )
    seed: int | None = setting(None, "of the episodes; unless set: follows from the run's, and never one trained on")
    trust: bool = setting(
        False, "import the code that the run's folder names, although nothing says that you made the run"
    )
    json: bool = setting(False, "what was recorded as one line of JSON on stdout, and nothing else there")


def main(command: str, arguments: list[str]) -> int:
    """Parse, play, print."""
    groups = Flags(RecordFlags), Flags(Settings, "the run's folder", names=("root",))
    given, kept = parse("weft record", ABOUT, arguments, *groups)
    flags, root = RecordFlags(**given), Settings(**kept).root
    hush_pygame()
    with stdout_reserved() if flags.json else nullcontext():
        told = _record(flags, root)
    if flags.json:
        print(msgspec.json.encode(told).decode())
        return 0
    mean = "" if told["return_mean"] is None else f", mean return {told['return_mean']:.2f} of those that ended"
    print(f"{flags.folder}: {told['steps']:,} steps in {told['episodes']:,} episodes{mean}")
    return 0


def _record(flags: RecordFlags, root: Path) -> dict[str, Any]:
    """Play and write; what ``about.json`` says, but for the spec."""
    from weft.data.files import about, check_free
    from weft.runtimes.prepare.jax_setup import set_up

    check_free(Path(flags.folder))
    set_up(cache=True)
    from weft.api import open_run_folder
    from weft.runtimes.prepare.stored import Opening

    opening = Opening(trust=flags.trust)
    run, _ = open_run_folder(flags.run, root, warn=warn, opening=opening, checkpoint=flags.checkpoint)
    data = run.record(flags.folder, steps=flags.steps, explore=flags.explore, seed=flags.seed)
    told = about(data)
    del told["spec"]
    return {"folder": flags.folder, **told}
