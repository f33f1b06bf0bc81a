"""What environments met and did not end the run, on its way to the launcher: what is new at once, counts now and then.

Loads no JAX.
"""

from __future__ import annotations

import time
from typing import Any

from weft.envs.guards import take_troubles
from weft.runtimes.workers.control.link import Link

EVERY_SECONDS = 0.5
"""How often counts are sent at most: environments may fail at every step."""


class TroubleReports:
    """Tells the launcher of one side's environments."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._told = float("-inf")

    def tell(self, env: Any, *, at_once: bool = False) -> None:
        """Send what ``env`` met since, unless that was a moment ago. Quick where there is nothing."""
        if not getattr(env, "troubles", None):
            return
        now = time.monotonic()
        if at_once or now - self._told > EVERY_SECONDS:
            self._told = now
            self._link.say("troubles", {"troubles": [list(trouble) for trouble in take_troubles(env)]})
