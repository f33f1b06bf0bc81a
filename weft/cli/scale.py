"""``weft scale RUN env=64``: other replicas for a run under way; without counts, what it has and what room there is."""

from __future__ import annotations

import json
import re
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from weft.cli.flags import Flags, parse
from weft.core.errors import ConfigError, PlanError, RunError
from weft.core.setting import REQUIRED, setting
from weft.plans.plan import Plan
from weft.plans.scale import HOW, read_counts, rescaled
from weft.runtimes.prepare.settings import Settings

ABOUT = (
    "Change the replicas of a run under way: each FRAGMENT=REPLICAS names a group by a fragment in it (env=64 act=2). "
    "As many environments as before are shared among them. Without any: what the run has, and what room there is. "
    "Exit code 0: it learns with them, or had them; 2: they cannot be; 1: it could not go over to them, or no run is "
    "under way."
)


@dataclass(frozen=True)
class ScaleFlags:
    """Which run, and what of it."""

    run: str = setting(REQUIRED, "the run's name, or its folder", argument="RUN")
    plan: str | None = setting(None, "a whole plan in place of counts, with as many learners as now")
    seconds: float = setting(300.0, "to wait for the run", above=0)
    json: bool = setting(False, "what became of it as one line of JSON")


def main(command: str, arguments: list[str]) -> int:
    """Parse, ask the run, print."""
    counts = [word for word in arguments if re.fullmatch(r"[^-=][^=]*=.*", word)]
    rest = [word for word in arguments if word not in counts]
    its_folder = Flags(Settings, "its folder", names=("root",))
    given, kept = parse("weft scale", ABOUT, rest, Flags(ScaleFlags), its_folder)
    flags, root = ScaleFlags(**given), Settings(**kept).root
    if flags.plan is not None and counts:
        raise ConfigError(f"--plan says the whole plan, and {' '.join(counts)} a part of one: give one of the two.")
    return _ask(flags, root, read_counts(counts)) if counts or flags.plan is not None else _show(flags, root)


def _ask(flags: ScaleFlags, root: Path, counts: dict[str, int]) -> int:
    from weft.services.run_owner import owner_of
    from weft.services.scale_request import ScaleRequest, ask

    path, plan = _open(root, flags.run)
    rescaled(plan, counts)  # a name that is mistyped is refused here, whatever the run does
    owner = owner_of(path)
    if owner is None:
        raise RunError(
            f"run {path} is not under way on this machine: only a run under way is scaled. One that is resumed has "
            f"the plan that it was begun with, {str(plan)!r} when it was laid out last."
        )
    try:
        became = ask(path, ScaleRequest(owner, counts, flags.plan or ""), flags.seconds)
    except KeyboardInterrupt:
        print(f"weft: interrupted: withdrawn, unless {path} had begun with it; then it goes on", file=sys.stderr)
        return 128 + signal.SIGINT
    if flags.json:
        print(json.dumps(asdict(became)))
    if became.became == "refused":
        raise PlanError(f"run {path} goes on as it was: {became.text}")
    if became.became == "failed":
        raise RunError(f"run {path} was not scaled: {became.text}")
    if not flags.json:
        print(f"{path}: {became.text}" + (f"\nplan: {became.plan}" if became.became == "scaled" else ""))
    return 0


def _open(root: Path, name: str) -> tuple[Path, Plan]:
    """A run's folder, and the plan that it has now. Raises UnknownName, and RunError for what has none."""
    from weft.services.run_folder import read_run

    folder = read_run(root, name)
    if folder.path.name != Path(name).name:
        raise RunError(f"{name} is a population: its members train in one program, and have no replicas of their own.")
    return folder.path, Plan.from_dict(folder.plan())


def _show(flags: ScaleFlags, root: Path) -> int:
    path, plan = _open(root, flags.run)
    try:
        live: Any = json.loads((path / "live.json").read_text())
        hosts = [(str(h["name"]), int(h["cores"]), int(h["room"])) for h in live.get("hosts", [])]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        hosts = []
    counts = {"+".join(group.fragments): group.replicas or 1 for group in plan.groups}
    workers, room = sum(counts.values()), sum(h[2] for h in hosts)
    if flags.json:
        rows = [{"name": name, "cores": cores, "room": room} for name, cores, room in hosts]
        print(json.dumps({"plan": str(plan), "replicas": counts, "workers": workers, "hosts": rows}))
        return 0
    print(f"{path}: {plan}")
    for name, count in counts.items():
        print(f"  {name:20} {count} replica{'s'[: count > 1]}")
    if len(plan.groups) == 1 and not hosts:
        print("One group, in one process: there is nothing to scale.")
    elif hosts:
        named = ", ".join(f"{name} ({cores} core{'s'[: cores > 1]})" for name, cores, _ in hosts)
        print(f"Hosts: {named}. It has {workers} workers there, and room for {max(0, room - workers)} more.")
    print(f"To change it: weft scale {path.name} {HOW.partition(',')[0]}")
    return 0
