"""``weft report``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from weft.cli.flags import Flags, parse
from weft.core.errors import RunError
from weft.core.setting import REQUIRED, setting
from weft.runtimes.prepare.settings import Settings

ABOUT = (
    "Write one page about runs, to hand on or to print: config, plan, curves, evaluation, ledger, restarts, machine, "
    "versions, and the command that repeats each. It stands by itself: pictures and style are inside, and no script."
)


@dataclass(frozen=True)
class ReportFlags:
    """Which runs, and where the page goes."""

    runs: tuple[str, ...] = setting(REQUIRED, "names of runs, or their folders", argument="RUN")
    root: Path = setting(Settings.root, "the folder that runs are in")
    output: Path = setting(Path("report.html"), "the file to write; -o is the same")


def main(command: str, arguments: list[str]) -> int:
    """Parse, write, say where it is."""
    spelt = ["--output" if argument == "-o" else argument for argument in arguments]
    (given,) = parse("weft report", ABOUT, spelt, Flags(ReportFlags))
    _write(ReportFlags(**given))
    return 0


def _write(flags: ReportFlags) -> None:
    from weft.cli.repeat import repeating_command
    from weft.dashboard.library import Library
    from weft.dashboard.report import Reported, report, write_report
    from weft.dashboard.run_view import RunView

    library = Library(flags.root, flags.runs)
    runs = [RunView(path, name) for path, name in library.named()]
    page = report([Reported(run, *repeating_command(run.config)) for run in runs], library.locked())
    try:
        write_report(flags.output, page)
    except OSError as error:
        raise RunError(f"cannot write {flags.output}: {error.strerror or error}. Name another file with -o.") from None
    print(flags.output)
