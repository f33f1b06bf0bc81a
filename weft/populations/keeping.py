"""A population's folder: what it goes on from, and its members as runs like any other.

runs/NAME/config.json       what was asked; the same again goes on
          lineage.json      every round: returns, values, who copied whom       lineage.svg  drawn
          metrics.jsonl     one record a line
          summary.json      how it ended: every member's values and return, and which is the best
          checkpoints/      all members together: what an interrupted population goes on from
          member-00/ …      each a run of its own: weft eval NAME/member-00
          best              the best of them: weft eval NAME
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from weft.core.errors import RunError
from weft.populations.cohort import Cohort
from weft.populations.lineage import Lineage
from weft.populations.member import Member
from weft.populations.picture import picture
from weft.runtimes.actors import publishers_of
from weft.runtimes.loop.engine import params_of
from weft.runtimes.loop.opening import OLDER
from weft.runtimes.loop.summary import summarise
from weft.runtimes.prepare.config import Settings
from weft.runtimes.prepare.drawing import laid_out
from weft.runtimes.prepare.origin import origin_of
from weft.services import checkpoints
from weft.services.checkpoints import Label, Retention
from weft.services.run_folder import BEST, RunFolder, open_run


class Keeping:
    """Saves a population and brings it back; one thread uses it."""

    def __init__(self, folder: RunFolder, settings: Settings, lineage: Lineage) -> None:
        self.folder, self._settings, self.lineage = folder, settings, lineage

    def restore(self, cohort: Cohort, warn: Callable[[str], None]) -> int | None:
        """Bring members and cohort back to the newest whole checkpoint: the rounds that were done; None: there is none.

        Raises CheckpointError where there are checkpoints and none can be used.
        """
        # Its document alone first: it says how many members there were, and so what the arrays are.
        found = checkpoints.load_latest(self.folder.checkpoints, {}, warn, run=self.folder.id, part=True)
        if found is None:
            return None
        _, document, path = found
        for member, saved in zip(cohort.members, document["members"], strict=True):
            member.restore(saved)
        tree, _ = checkpoints.load(path, cohort.template(document["cohort"]), run=self.folder.id)
        for lost in cohort.resume(tree, document["cohort"]):
            warn(lost)
        self.lineage = Lineage.from_json(document["lineage"])
        return int(document["rounds"])

    def save(self, cohort: Cohort, rounds: int) -> None:
        """Write a checkpoint of all members, and the lineage so far. Raises CheckpointError, OSError."""
        tree, document = cohort.saved()
        steps = sum(member.counters.env_steps for member in cohort.members)
        label = Label(self.folder.id, steps, _finite(max(map(_rank, cohort.members))))
        documents = [member.to_document() for member in cohort.members]
        whole = {"cohort": document, "members": documents, "rounds": rounds, "lineage": self.lineage.to_json()}
        learned = sum(member.counters.learn_steps for member in cohort.members)
        keep = Retention(self._settings.keep_checkpoints, 0, 0)
        checkpoints.save(self.folder.checkpoints, learned, tree, whole, label=label, keep=keep)
        self.lineage.write(self.folder.path / "lineage.json")

    def export(self, cohort: Cohort, member: Member, how: str) -> None:
        """Write a member's folder, as that of a run by itself that has come so far. Raises WeftError, OSError."""
        tree, document = cohort.state_of(member)
        prepared, counters = member.prepared, member.counters
        config = prepared.config()
        with open_run(
            self.folder.path,
            member.name,
            config,
            laid_out(prepared),
            may_differ=frozenset({"steps", "algo"}),
            may_lack=OLDER,
            origin=origin_of(prepared),
        ) as folder:
            folder.begin()
            label = Label(folder.id, counters.env_steps, _finite(member.return_mean))
            state = {"engine": document, "counters": counters.to_document()}
            keep = Retention(1, 0, 0)
            checkpoints.save(folder.checkpoints, counters.learn_steps, tree, state, label=label, keep=keep)
            params = params_of({name: tree.fragments[name] for name in publishers_of(prepared.graph)})
            summary = summarise(prepared, counters, folder.path, "failed" if member.failed else how, params)
            summary |= {"saved_learn_steps": counters.learn_steps, "id": folder.id, "values": member.values}
            if member.failed:
                summary["error"] = member.failed
            folder.write_summary(summary)

    def finish(self, cohort: Cohort, how: str, about: dict[str, Any], wall_seconds: float) -> dict[str, Any]:
        """Write every member that has learned, the summary, the lineage and its picture; gives the summary.

        A member that was stopped, or was at its end before others, is written already.
        """
        for member in cohort.members:
            if member.live and member.counters.learn_steps:
                self.export(cohort, member, how)
        rows = [self._row(member, how) for member in cohort.members]
        best = max(cohort.members, key=lambda m: (not m.stopped, _rank(m), m.counters.learn_steps, -m.index))
        total = sum(row["env_steps"] for row in rows)
        summary = {
            **about,
            "exit": how,
            "best": best.index,
            "return_mean": _finite(best.return_mean),
            "env_steps": total,
            "wall_seconds": round(wall_seconds, 3),
            "copies": sum(e.copied is not None for r in self.lineage.rounds for e in r.members),
            "members": rows,
            "run": str(self.folder.path),
            "id": self.folder.id,
        }
        if best.counters.learn_steps:
            point(self.folder.path / BEST, best.name)
        self.lineage.write(self.folder.path / "lineage.json")
        (self.folder.path / "lineage.svg").write_text(picture(self.lineage, best.index, str(about["title"])))
        self.folder.write_summary(summary)
        return summary

    def _row(self, member: Member, how: str) -> dict[str, Any]:
        ended = "failed" if member.failed else "stopped" if member.stopped else "finished" if member.finished else how
        ended = "waiting" if member.waiting else ended
        row: dict[str, Any] = {
            "member": member.index,
            "seed": member.prepared.seed,
            "values": member.values,
            "return_mean": _finite(member.return_mean),
            "episodes": sum(window.total for window in member.counters.windows),
            "env_steps": member.counters.env_steps,
            "exit": ended,
            "run": member.name,
        }
        return row | ({"error": member.failed} if member.failed else {})


def point(link: Path, to: str) -> None:
    """Have a name in a folder lead to another there, at once; what is there under the name must be such a link."""
    if link.exists() and not link.is_symlink():
        raise RunError(f"{link} is in the way: the best member's folder is linked there. Move it elsewhere.")
    new = link.with_name(f".{link.name}.tmp")
    with suppress(FileNotFoundError):
        new.unlink()
    os.symlink(to, new)
    os.replace(new, link)


def _rank(member: Member) -> float:
    mean = member.return_mean
    return mean if math.isfinite(mean) else -math.inf


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
