"""Which stage a run waits for, and what to change about it.

In one process the stages take turns, and ``time/STAGE`` says what each takes of the time. In workers they run side by
side: there ``busy/STAGE`` says what part of its own time each works, and the busiest one sets the pace.
"""

from __future__ import annotations

import math

from weft.telemetry.sink import Record

HINTS = {
    "env": 'more environment workers (--plan "env*N | act+learn"), or a native vector or JAX environment',
    "act": "more environments per act call, a smaller network, or act on an accelerator (act@gpu)",
    "learn": "larger minibatches, fewer epochs, or more learners ((env+act+learn)*N, learn@gpu)",
}
"""For a plan in one process, by the stage that takes most of the time."""

WORKER_HINTS = {
    "env": "more env workers (a larger N in env*N), or a quicker environment: a native vector one, or one in JAX",
    "act": "larger batches (more --envs, a smaller --ring), a smaller network, or more of it (act*2, act@gpu)",
    "env+act": "more workers of both (a larger N in (env+act)*N), or a quicker environment",
    "learn": "fewer epochs, larger minibatches, or more learners (learn*2, learn@gpu)",
    "replay": "fewer samples_per_insert, or more shards (a larger R in replay*R)",
    "grad": "more workers that compute gradients (a larger N), or a smaller network",
    "apply": "one worker applies all gradients: larger batches (more --envs, a longer unroll) make fewer of them",
}
"""For a plan in workers, by the busiest stage."""

_BALANCED = 0.1  # stages whose shares are closer than this are as good as even
_IDLE = 0.6  # where no stage works more of its time than this, none of them sets the pace
_CROWDED = 1.0  # sides at work for each core: from here on they wait for each other's core


def shares(record: Record) -> dict[str, float]:
    """The stages' shares of the time in a record, ``time/STAGE``, the largest first."""
    return _ranked(record, "time/")


def busy(record: Record) -> dict[str, float]:
    """The part of its own time that each stage works, ``busy/STAGE``, the busiest first; empty in one process."""
    return _ranked(record, "busy/")


def bottleneck(record: Record) -> str:
    """The stage that sets the pace, and what to change; empty where the record does not tell.

    Where two stages are nearly even it says so instead: speeding up one of them would gain little.
    """
    in_workers = list(busy(record).items())
    if in_workers:
        return _of_workers(record, in_workers)
    ranked = list(shares(record).items())
    if not ranked or ranked[0][1] <= 0:
        return ""
    stage, share = ranked[0]
    if len(ranked) > 1 and share - ranked[1][1] < _BALANCED * share:
        return f"balanced: {stage} and {ranked[1][0]} take {share:.0%} and {ranked[1][1]:.0%} of the time"
    hint = _hint(HINTS, stage)
    return f"{stage}-bound: {hint}" if hint else f"{stage}-bound: {share:.0%} of the time goes there"


def _of_workers(record: Record, ranked: list[tuple[str, float]]) -> str:
    load = record.get("load", 0.0)
    if not isinstance(load, str) and load > _CROWDED:
        return f"cores-bound: {load:.1f} busy threads for each core: fewer workers, or a machine with more cores"
    stage, share = ranked[0]
    if share < _IDLE:
        return _waiting(record, ranked)
    if len(ranked) > 1 and share - ranked[1][1] < _BALANCED * share:
        return f"balanced: {stage} and {ranked[1][0]} are busy {share:.0%} and {ranked[1][1]:.0%} of their time"
    hint = _hint(WORKER_HINTS, stage) or f"it is busy {share:.0%} of its time"
    return f"{stage}-bound: {hint}"


def _hint(hints: dict[str, str], stage: str) -> str:
    """The hint for a stage: by what its fragments are without whose (``act.red+act.blue``: act), or by its last one."""
    bases = list(dict.fromkeys(name.partition(".")[0] for name in stage.split("+")))
    return hints.get("+".join(bases)) or hints.get(bases[-1], "")


def _waiting(record: Record, ranked: list[tuple[str, float]]) -> str:
    """No stage is busy: each waits for another, or for messages on their way."""
    told = ", ".join(f"{stage} {share:.0%}" for stage, share in ranked)
    if "lag" not in record:
        return f"waiting: in lockstep stages take turns (busy: {told}); without --lockstep they overlap"
    return f"waiting: no stage is busy for long ({told}): try a larger --ring or --max-lag, or more --envs"


def _ranked(record: Record, prefix: str) -> dict[str, float]:
    found = {
        name.removeprefix(prefix): float(value)
        for name, value in record.items()
        if name.startswith(prefix) and not isinstance(value, str) and math.isfinite(value)
    }
    return dict(sorted(found.items(), key=lambda item: -item[1]))
