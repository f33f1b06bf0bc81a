"""The worker's side of a measurement: contenders live in a process of their own, and run when they are told to.

Requests are JSON lines on stdin, replies JSON lines on stdout:

    {"do": "prepare", "name": N, "kind": K, "seconds": S, ...}    make contender N, compile it, size a run to S seconds
    {"do": "measure", "name": N}                                  run it once

Only the standard library is used here: peers serve with it from their own environments.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Contender(NamedTuple):
    """Something to time: ``run(n)`` does ``n`` units of ``steps`` environment steps each, and blocks meanwhile."""

    steps: int
    run: Callable[[int], None]


Make = Callable[..., Contender]
"""Makes a contender from the fields of its ``prepare`` request."""


def serve(kinds: Mapping[str, Make]) -> None:
    """Answer requests until stdin ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints must not get between the replies
    contenders: dict[str, tuple[Contender, int]] = {}
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        name = request.pop("name")
        if request.pop("do") == "prepare":
            kind, seconds = request.pop("kind"), request.pop("seconds")
            contender = kinds[kind](**request)
            units = sized(contender.run, seconds)
            contenders[name] = (contender, units)
            reply = {"units": units, "steps": contender.steps}
        else:
            contender, units = contenders[name]
            began = time.perf_counter()
            contender.run(units)
            reply = {"steps_per_second": units * contender.steps / (time.perf_counter() - began)}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def sized(run: Callable[[int], None], seconds: float) -> int:
    """How many units take about ``seconds``; runs some, so that everything is compiled and warm afterwards."""
    run(1)
    units = 1
    while True:
        began = time.perf_counter()
        run(units)
        took = time.perf_counter() - began
        if took >= min(seconds, 0.3):
            return max(1, round(units * seconds / took))
        units *= 2
