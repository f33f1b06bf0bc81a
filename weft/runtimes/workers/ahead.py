"""Something that is done ahead of need, in a thread of its own: programs are compiled while others start."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Ahead:
    """Calls ``function`` at once, beside whoever made this; ``wait`` waits for it, and raises what it raised."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._raised: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="weft-ahead")
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether it is not done yet; raises what it raised."""
        if self._raised is not None:
            raise self._raised
        return self._thread.is_alive()

    def wait(self) -> None:
        """Until it is done."""
        self._thread.join()
        if self._raised is not None:
            raise self._raised

    def _run(self) -> None:
        try:
            self._function()
        except BaseException as error:
            self._raised = error
