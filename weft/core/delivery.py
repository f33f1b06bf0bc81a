"""Delivery: a rule of streams, known to the graph that states it and to the channels that obey it."""

from __future__ import annotations

from enum import Enum


class Delivery(Enum):
    """What a stream does when its reader is slower than its writer."""

    BLOCK = "block"  # the writer waits; nothing is lost
    LATEST = "latest"  # only the newest is kept: params
