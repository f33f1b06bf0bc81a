"""Snapshots of environments in other batches than they were taken in: the same environments, cut another way.

A snapshot is what ``HostEnv.snapshot`` gave of a batch. What a batch is made of is known here for each kind:

    replayed    "rows", a list with one for each environment; of agents also "rewards"
    in JAX      "leaves", the bytes of arrays whose first axis is the environments
    native      nothing of its rows: they begin a fresh episode wherever they are
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from weft.envs.protocol import Snapshot

Batches: TypeAlias = Sequence[Sequence[int]]
"""The first environment of each batch, and how many it has: all environments from 0 on, in order."""

_BY_ROW = ("rows", "rewards")


def cut_again(snapshots: Mapping[str, Snapshot], before: Batches, after: Batches) -> dict[str, Snapshot]:
    """Snapshots of the batches ``before``, by their numbers as text, as those of the batches ``after``."""
    whole = _joined([snapshots[str(k)] for k in range(len(before))], [rows for _, rows in before])
    return {str(k): _cut(whole, first, rows) for k, (first, rows) in enumerate(after)}


def _joined(parts: list[Snapshot], rows: list[int]) -> dict[str, Any]:
    """All environments as one: what is by row as lists with an entry for each, the rest as the first batch has it."""
    whole = dict(parts[0])
    for name in _BY_ROW:
        if name in whole:
            whole[name] = [row for part in parts for row in part[name]]
    if "leaves" in whole:
        leaves = zip(*(part["leaves"] for part in parts), strict=True)
        whole["leaves"] = [
            [row for text, count in zip(leaf, rows, strict=True) for row in _rows(base64.b64decode(text), count)]
            for leaf in leaves
        ]
    return whole


def _rows(data: bytes, count: int) -> list[bytes]:
    size = len(data) // count
    return [data[row * size : (row + 1) * size] for row in range(count)]


def _cut(whole: Mapping[str, Any], first: int, rows: int) -> Snapshot:
    part = dict(whole)
    for name in _BY_ROW:
        if name in part:
            part[name] = part[name][first : first + rows]
    if "leaves" in part:
        part["leaves"] = [base64.b64encode(b"".join(leaf[first : first + rows])).decode() for leaf in part["leaves"]]
    if "num_envs" in part:
        part["num_envs"] = rows
    return part
