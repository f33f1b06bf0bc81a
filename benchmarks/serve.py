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
from functools import partial
from typing import Any, NamedTuple


class Contender(NamedTuple):
    """Something to time: ``run(n)`` does ``n`` units of ``steps`` environment steps each, and blocks meanwhile."""

    steps: int
    run: Callable[[int], None]


class Window(NamedTuple):
    """Something that runs by itself: ``measure(s)`` lets it for about ``s`` seconds and gives env steps per second."""

    measure: Callable[[float], float]


Make = Callable[..., Contender | Window]
"""Makes a contender from the fields of its ``prepare`` request; warm, where it is a window."""


def serve(kinds: Mapping[str, Make]) -> None:
    """Answer requests until stdin ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints must not get between the replies
    contenders: dict[str, Callable[[], float]] = {}
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        name = request.pop("name")
        if request.pop("do") == "prepare":
            kind, seconds = request.pop("kind"), request.pop("seconds")
            contender = kinds[kind](**request)
            reply: dict[str, float] = {}
            if isinstance(contender, Window):
                contenders[name] = partial(contender.measure, seconds)
            else:
                units = sized(contender.run, seconds)
                contenders[name] = partial(rate, contender, units)
                reply = {"units": units, "steps": contender.steps}
        else:
            reply = {"steps_per_second": contenders[name]()}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def rate(contender: Contender, units: int) -> float:
    """Environment steps per second over ``units`` of them; blocks."""
    began = time.perf_counter()
    contender.run(units)
    return units * contender.steps / (time.perf_counter() - began)


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
