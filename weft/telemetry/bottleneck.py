"""Which stage a run waits for, and what to change about it."""

from __future__ import annotations

import math

from weft.telemetry.sink import Record

HINTS = {
    "env": 'more environment workers (--plan "env*N | act+learn"), or a native vector or JAX environment',
    "act": "more environments per act call, a smaller network, or act on an accelerator (act@gpu)",
    "learn": "larger minibatches, fewer epochs, or more learners ((env+act+learn)*N, learn@gpu)",
    "copy": "keep act and learn on one device (act+learn), or send smaller observations (uint8 and not float32)",
    "wait": "learn waits for samples: more env+act replicas, or a larger max_lag",
    "replay": "more replay replicas (replay*R), or larger batches",
    "compile": "still compiling: longer runs spread the cost, and fixed shapes compile once",
    "save": "save checkpoints less often",
}
_PREFIX = "time/"
_BALANCED = 0.1  # stages whose shares are closer than this are as good as even


def shares(record: Record) -> dict[str, float]:
    """The stages' shares of the time in a record, ``time/STAGE``, the largest first."""
    found = {
        name.removeprefix(_PREFIX): float(value)
        for name, value in record.items()
        if name.startswith(_PREFIX) and not isinstance(value, str) and math.isfinite(value)
    }
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def bottleneck(record: Record) -> str:
    """The stage with the largest share of the time, and what to change; empty where the record has no ``time/STAGE``.

    Where two stages are nearly even it says so instead: speeding up one of them would gain little.
    """
    ranked = list(shares(record).items())
    if not ranked or ranked[0][1] <= 0:
        return ""
    stage, share = ranked[0]
    if len(ranked) > 1 and share - ranked[1][1] < _BALANCED * share:
        return f"balanced: {stage} and {ranked[1][0]} take {share:.0%} and {ranked[1][1]:.0%} of the time"
    hint = HINTS.get(stage)
    return f"{stage}-bound: {hint}" if hint else f"{stage}-bound: {share:.0%} of the time goes there"
