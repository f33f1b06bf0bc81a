"""``weft doctor --on``: every host of a cluster in one table, and what is unfit, with what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.runtimes.cluster.checkup import Finding

LONGEST = 24
"""Letters of a cell: what is unfit is told in full below the table."""


def look_at_hosts(on: str, *, trust_network: bool, json: bool) -> int:
    """Ask every host, and print; 1 where one is unfit. Raises ConfigError where there is no cluster to ask."""
    from weft.runtimes.cluster.examining import examined
    from weft.runtimes.cluster.opening import opened

    with opened(on, trust_network=trust_network) as cluster:
        found = examined(cluster)
    unfit = [one for one in found if one.bad]
    if json:
        import msgspec

        rows = [
            {"level": "bad" if one.bad else "ok", "host": one.host, "what": one.what, "text": one.text}
            | {"do": one.do if one.bad else ""}
            for one in found
        ]
        print(msgspec.json.encode(rows).decode())
        return int(bool(unfit))
    print(table(found))
    hosts = len({one.host for one in found})
    if not unfit:
        print(f"\nNothing is unfit on any of {hosts} hosts.")
    else:
        print()
    for one in unfit:
        print(f"! {one.host}: {one.what}: {one.text}. {one.do}")
    return int(bool(unfit))


def table(found: Sequence[Finding]) -> str:
    """A row for each host, a column for each thing; what is unfit has a ! before it."""
    hosts, columns = list(dict.fromkeys(one.host for one in found)), list(dict.fromkeys(one.what for one in found))
    cells = {(one.host, one.what): ("! " if one.bad else "") + _short(one.text) for one in found}
    rows = [["host", *columns], *([host, *(cells.get((host, what), "") for what in columns)] for host in hosts)]
    wide = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, wide, strict=True)).rstrip() for row in rows
    )


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
