"""Delivery: what a stream does with a slow reader. The graph states it, and the channels obey it."""

from __future__ import annotations

from enum import Enum


class Delivery(Enum):
    """What a stream does when its reader is slower than its writer."""

    BLOCK = "block"  # the writer waits; nothing is lost
    LATEST = "latest"  # the writer never waits; the reader gets only the newest: params
