"""A run's hold on its folder while it lives: noticed when the folder is removed or replaced, and made again.

as it was                    nothing happens
removed, or moved away       made again, with the config and plan of this run; what was in it is gone
back, from a copy            taken again, where it has this run's id
of another run, or in use    nothing in it is touched; training goes on without saving
"""

from __future__ import annotations

import os
from contextlib import suppress

import msgspec

from weft.core.errors import RunError
from weft.services.atomic import write_atomic
from weft.services.run_folder import PLAN, RunFolder, lock_folder


class Tenure:
    """The hold of this process on a run's folder; made once the run has begun."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._files: dict[str, bytes] = {}  # what makes the folder a run, to write it again
        for path in sorted(folder.path.glob("*.json")):
            if path.name != "summary.json":
                with suppress(OSError):
                    self._files[path.name] = path.read_bytes()

    def confirm(self) -> str:
        """See that the folder is this run's; get it back where it is not. Gives what happened, in words, or nothing.

        Raises RunError where it is another's, and OSError where it cannot be written.
        """
        folder = self._folder
        if folder.is_held():
            missing = self._write_missing()
            with suppress(OSError):  # a run that was scaled has written another
                self._files[PLAN] = (folder.path / PLAN).read_bytes()
            return f"{', '.join(missing)} had been removed from {folder.path}, and was written again" if missing else ""
        was_there = folder.path.is_dir()
        folder.path.mkdir(parents=True, exist_ok=True)
        lock = lock_folder(folder.path)
        try:
            self._refuse_another()
            missing = self._write_missing()
        except BaseException:
            os.close(lock)
            raise
        folder.close()
        object.__setattr__(folder, "lock", lock)
        if was_there and "config.json" not in missing:
            return f"the folder {folder.path} had been replaced by a copy: the run goes on in it"
        return (
            f"the folder {folder.path} had been removed or moved: it was made again, and the run is saved there. What "
            "was in it, checkpoints and records, is not"
        )

    def _refuse_another(self) -> None:
        path = self._folder.path / "config.json"
        try:
            found = path.read_bytes()
        except FileNotFoundError:
            return
        try:
            same = bool(self._folder.id) and msgspec.json.decode(found, type=dict).get("id") == self._folder.id
        except (msgspec.MsgspecError, UnicodeDecodeError):
            same = False
        if not same and found != self._files.get("config.json"):
            raise RunError(f"{self._folder.path} is another run's folder now, and this run cannot be saved in it.")

    def _write_missing(self) -> list[str]:
        missing = [name for name in self._files if not (self._folder.path / name).exists()]
        for name in missing:
            write_atomic(self._folder.path / name, [self._files[name]])
        return missing
