"""``weft export``."""

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
    "Write a run's policy as a folder that runs without Weft, with its normaliser, its memory and its action scaling, "
    "once it was compared with the policy itself. The run stays as it is."
)


@dataclass(frozen=True)
class ExportFlags:
    """What to export, and where it goes."""

    run: str = setting(REQUIRED, "the run's name, or its folder", argument="RUN")
    to: str = setting("", "the folder to write; an export that is there is replaced; unless set: RUN's export/")
    format: str = setting(
        "", "numpy, stablehlo, or both with a comma between; unless set: all that can be written here"
    )
    checkpoint: str = setting(
        "latest", "which to export: latest, best, a learn step, step-ENV_STEPS, or a tag (`weft checkpoints RUN`)"
    )
    policy: str = setting("", "which of several policies")
    seed: int = setting(0, "which of several seeds, counted from 0")
    trust: bool = setting(
        False, "import the code that the run's folder names, although nothing says that you made the run"
    )
    json: bool = setting(False, "the manifest as one line of JSON on stdout, and nothing else there")


def main(command: str, arguments: list[str]) -> int:
    """Parse, export, print."""
    groups = Flags(ExportFlags), Flags(Settings, "the run's folder", names=("root",))
    given, kept = parse("weft export", ABOUT, arguments, *groups)
    flags, root = ExportFlags(**given), Settings(**kept).root
    hush_pygame()
    with stdout_reserved() if flags.json else nullcontext():
        folder, manifest = _export(flags, root)
    if flags.json:
        print(msgspec.json.encode({"folder": str(folder), **manifest}).decode())
        return 0
    checks = manifest["checks"]
    print(f"{folder}: {', '.join(manifest['formats'])}; {_words(checks)}")
    for name, why in manifest["left_out"].items():
        print(f"  without {name}: {why}")
    return 0


def _words(checks: dict[str, Any]) -> str:
    if not checks["random"]:
        return "its actions are drawn, so that there was nothing to compare"
    ties = f", but for {checks['ties']} ties" if checks["ties"] else ""
    return f"the policy's actions on {checks['random']} random and {checks['played']} played observations{ties}"


def _export(flags: ExportFlags, root: Path) -> tuple[Path, dict[str, Any]]:
    from weft.runtimes.policies.export import formats_of
    from weft.runtimes.prepare.jax_setup import set_up

    formats = [name.strip() for name in flags.format.split(",") if name.strip()]
    formats_of(formats)  # before anything is loaded
    set_up(cache=True)
    from weft.api import open_run_folder
    from weft.runtimes.prepare.stored import Opening

    opening = Opening(trust=flags.trust)
    run, _ = open_run_folder(flags.run, root, warn=warn, opening=opening, checkpoint=flags.checkpoint)
    folder = Path(flags.to) if flags.to else run.folder / "export"
    return folder, run.export(folder, formats=formats, seed=flags.seed, policy=flags.policy)
