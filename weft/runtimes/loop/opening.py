"""Opening a run's folder to train in it: what is compared with the run that is there, and what is recorded of this."""

from __future__ import annotations

from weft.core.identity import REACHED
from weft.runtimes.prepare.config import Prepared, Settings
from weft.runtimes.prepare.drawing import laid_out
from weft.runtimes.prepare.origin import origin_of
from weft.services.made_here import key_trouble
from weft.services.run_folder import RunFolder, open_run

OLDER = frozenset({"code", "code.algorithm", f"code.*.{REACHED}", "env_errors", "env_bounds", "curriculum"})
"""What configs of earlier versions lack, and is not compared where it is not there."""


def open_folder(prepared: Prepared, settings: Settings, name: str) -> tuple[RunFolder, list[str]]:
    """The folder of a new run, or of one to resume, locked; and what the user should be warned of.

    Raises RunError where the run that is there is another, unless ``settings`` say that it may be.
    """
    origin = origin_of(prepared)
    may_differ = frozenset({"steps", "env_bounds", *(["code"] if settings.new_code else [])})
    folder = open_run(
        settings.root,
        name,
        prepared.config(),
        laid_out(prepared),
        may_differ=may_differ,
        may_lack=OLDER,
        origin=origin,
        fresh=settings.fresh,
    )
    trouble = key_trouble() if origin["modules"] or origin["script"] else ""
    return folder, [f"{trouble}. To open this run, weft eval will ask for --trust."] if trouble else []
