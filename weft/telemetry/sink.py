"""What takes a run's records: the contract of sinks.

A record is a flat dict of numbers and text. Names that mean the same everywhere: ``return_mean``,
``episode_length_mean``, ``episodes``, ``env_steps``, ``learn_steps``, ``env_steps_per_second``, ``wall_seconds``,
``saved_learn_steps`` (in the newest checkpoint);
``eval/return_mean`` and others of an evaluation, in one record alone, which every sink is given at once;
by group ``return_mean/SEED``, ``loss/NAME`` and ``time/STAGE`` (the stage's share of the time, 0 to 1). Of plans in
workers also ``busy/STAGE`` (the part of its own time that a stage works, 0 to 1), ``load`` (busy sides for each core),
``queue/STREAM`` (how full, 0 to 1), ``lag`` (mean), ``lag_max``, and ``lag/N`` (what part of the unrolls trained on was
N versions behind); where sockets join them ``refused/connections`` and ``refused/messages``, counts since the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias, runtime_checkable

Record: TypeAlias = Mapping[str, float | int | str]


class Sink(Protocol):
    """Takes records. One thread calls it.

    ``every`` is the least number of seconds between two writes: 0 to get each record, else the latest at that rhythm.
    OSError from any method means that what it writes to is in trouble; the run goes on without.
    """

    every: float

    def write(self, record: Record, env_steps: int) -> None:
        """Take the record made at ``env_steps``."""

    def close(self) -> None:
        """Let go of files and threads; nothing is written after it. More than once does no harm."""


@runtime_checkable
class Reopens(Protocol):
    """A sink with a file that may be cut or moved under it."""

    def reopen(self, env_steps: int) -> None:
        """Open the file anew for the next record; what was written past ``env_steps`` is no longer so."""


@runtime_checkable
class Hears(Protocol):
    """A sink that also takes what is said to the person at the screen."""

    def hear(self, kind: str, text: str) -> None:
        """Take a ``note`` or a ``warning``."""


@runtime_checkable
class Titled(Protocol):
    """A screen with the run's name, algorithm and plan above it, which may be set anew."""

    title: str


class Screen(Sink, Protocol):
    """A sink that a person watches; it writes to stderr, so that stdout stays free for ``--json``."""

    def open(self) -> None:
        """Take hold of the terminal, where there is one to hold."""

    def note(self, text: str) -> None:
        """Say something in passing."""

    def warn(self, text: str) -> None:
        """Say something that must be seen, also when the run is otherwise quiet."""
