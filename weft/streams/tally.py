"""What the sockets of this process have turned away. Light: a worker without sockets has it too, and never loads them.

The pump's thread counts; a side of the worker puts the counts into the account, where they outlive the worker.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Tally:
    """Counts since the process began. One thread writes them."""

    strangers: int = 0  # connections that ended before they had proved to belong to the channel
    frames: int = 0  # messages of peers that did belong to it, which were malformed, late, or out of turn


TALLY = Tally()
"""This process's."""
