"""Who copied whom, when, and with which values: ``lineage.json``, as data.

One row for each round: the members' returns at its end, then whom each copied, and the values that it went on with.
Members that begin then are in it too, without a return.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from weft.core.errors import RunError
from weft.populations.member import Member
from weft.populations.rules import Decision
from weft.populations.space import Values
from weft.services.atomic import write_atomic


class Entry(msgspec.Struct, frozen=True):
    """A member at the end of a round."""

    member: int
    return_mean: float | None  # that it is ranked by, before it copied; None where it has none
    values: Values  # that it goes on with
    copied: int | None = None  # the member whose params it goes on with
    stopped: bool = False


class Round(msgspec.Struct, frozen=True):
    """The end of a round; round 0 is the beginning."""

    env_steps: int  # that each member has made; where members come in batches, those of the batches before as well
    members: list[Entry]


class Lineage(msgspec.Struct, frozen=True):
    """All rounds of a population; ``fields`` are those that are varied."""

    fields: list[str]
    rounds: list[Round] = []

    def add(self, env_steps: int, members: Sequence[Member], decision: Decision | None = None) -> None:
        """Note a round: the members as they are before ``decision`` is applied, and what it will change."""
        decided = decision or Decision()
        entries = [
            Entry(
                member.index,
                member.recent_return if math.isfinite(member.recent_return) else None,
                dict(decided.values.get(member.index, member.values)),
                decided.copies.get(member.index),
                member.index in decided.stops,
            )
            for member in members
            if member.live
        ]
        entries += [Entry(member, None, dict(values)) for member, values in sorted(decided.begins.items())]
        self.rounds.append(Round(env_steps, entries))

    def returns(self) -> list[dict[int, float]]:
        """What members were ranked by at the end of each round but the beginning; those without a return left out."""
        return [{e.member: e.return_mean for e in r.members if e.return_mean is not None} for r in self.rounds[1:]]

    def ancestors(self, member: int) -> list[int]:
        """Whose params a member had in each round, from the first to the last, itself at the end."""
        line = [member]
        for done in reversed(self.rounds[1:]):
            copied = {entry.member: entry.copied for entry in done.members}.get(line[-1])
            line.append(line[-1] if copied is None else copied)
        return line[::-1]

    def to_json(self) -> dict[str, Any]:
        """As a checkpoint's document and the file have it."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Lineage:
        """What ``to_json`` gave."""
        return msgspec.convert(saved, cls)

    @classmethod
    def read(cls, path: Path) -> Lineage:
        """What ``write`` wrote. Raises RunError where it is not there or damaged."""
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (OSError, msgspec.MsgspecError) as error:
            raise RunError(f"cannot read {path}: {error}. Restore it, or begin anew with --fresh.") from error

    def write(self, path: Path) -> None:
        """Write it at once and whole. Raises OSError."""
        write_atomic(path, [msgspec.json.format(msgspec.json.encode(self), indent=1), b"\n"])
