"""A curriculum: what evaluation in the run found sets options of the environment, by a rule of the user's.

The rule is a pure function, ``rule(found, options) -> options``: of the figures of the last evaluation and the options
of now it gives those that episodes begin with from then on. Before there is any, ``rule(None, {})`` gives the options
that the run begins with, and with them their names. It runs in the process that was started, after each evaluation;
the options are all that it can remember, so a run that is resumed goes on as it would have.
"""

from __future__ import annotations

from typing import Any

from weft.core.errors import THEIRS, ConfigError
from weft.envs.dials import checked
from weft.runtimes.prepare.config import Prepared
from weft.runtimes.watcher import Look


class Curriculum:
    """The rule of a run, the options that it has set, and when; nothing at all where the run has none."""

    def __init__(self, prepared: Prepared) -> None:
        self._rule, self._dials = prepared.rule, prepared.dials
        self._first = self._dials.now() if self._dials else {}
        self.changes: list[dict[str, Any]] = []  # by version: the options from then on

    def take(self, one: Look) -> dict[str, float]:
        """Let the rule look at what an evaluation found; the options from now on, as figures."""
        if self._rule is None or self._dials is None:
            return {}
        now = self._dials.now()
        try:
            given = self._rule(dict(one.looked.figures), dict(now))
        except THEIRS as error:
            raise ConfigError(f"{self._what} raised {type(error).__name__}: {error}") from error
        wanted = checked(self._what, given, self._dials.names)
        if wanted != now:
            self._dials.turn(wanted)
            self.changes.append({"version": one.seen.version, "env_steps": one.seen.env_steps, "options": wanted})
        return {f"curriculum/{name}": value for name, value in wanted.items()}

    @property
    def _what(self) -> str:
        return f"the curriculum {getattr(self._rule, '__qualname__', self._rule)!r}"

    def to_document(self) -> dict[str, Any] | None:
        """For a checkpoint; ``go_on`` brings it back."""
        return None if self._dials is None else {"options": self._dials.now(), "changes": list(self.changes)}

    def go_on(self, document: dict[str, Any] | None) -> None:
        """As a checkpoint has it, or from the start; before the environments are made."""
        if self._dials is None:
            return
        saved = document or {"options": self._first, "changes": []}
        self._dials.turn(checked(self._what, saved["options"], self._dials.names))
        self.changes = list(saved["changes"])

    def summary(self) -> dict[str, Any]:
        """What ``summary.json`` has of it; empty where there is none."""
        if self._dials is None:
            return {}
        return {"curriculum": {"options": self._dials.now(), "first": self._first, "changes": self.changes}}
