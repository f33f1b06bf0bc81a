"""A dashboard beside a run that is started here: a process of its own, which ends with the one that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from weft.core.errors import RunError
from weft.dashboard.access import Access
from weft.dashboard.library import Library
from weft.dashboard.server import Dashboard

START_SECONDS = 20.0
HOST = "127.0.0.1"


class Beside:
    """Serves all runs in ``root`` while inside; ``url`` is where. Raises RunError where it does not start.

    The process ends when this one does, in whatever way: it reads from a pipe that only this one can write to.
    """

    def __init__(self, root: Path) -> None:
        self.url = ""
        self._root = root

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "weft.dashboard.beside", str(self._root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the run
        )
        assert self._process.stdout is not None
        timer = threading.Timer(START_SECONDS, self._process.kill)
        timer.start()
        try:
            self.url = self._process.stdout.readline().decode().strip()
        finally:
            timer.cancel()
            timer.join()
        if not self.url:
            self._end()
            raise RunError("the dashboard did not start. Train without --dashboard, and try `weft watch` by itself.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def main(root: Path) -> None:
    """Serve until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):
        os.nice(10)
    server = Dashboard(Library(root), Access(HOST), HOST, 0)
    print(server.url, flush=True)
    thread = threading.Thread(target=server.serve_forever, name="dashboard")
    thread.start()
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    server.close()
    thread.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
