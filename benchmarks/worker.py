"""The parent's side of a measurement: a worker process that holds contenders, kept alive between rounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent


def variables(checkout: Path) -> dict[str, str]:
    """The environment of a process that shall import ``weft`` and ``benchmarks`` from ``checkout``."""
    others = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{checkout}{os.pathsep}{others}" if others else str(checkout)}


class Worker:
    """``python -m module`` of a checkout, in a process of its own; answers one request at a time; a context manager.

    ``settings`` are variables of its environment.
    """

    def __init__(
        self, module: str, python: str | Path = sys.executable, checkout: Path = ROOT, **settings: str
    ) -> None:
        self.module = module
        self._process = subprocess.Popen(
            [str(python), "-m", module],
            cwd=checkout,
            env=variables(checkout) | settings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def prepare(self, name: str, kind: str, seconds: float, **fields: Any) -> Callable[[], float]:
        """Make a contender there, and return what measures it once: env steps per second."""
        self._ask(do="prepare", name=name, kind=kind, seconds=seconds, **fields)
        return partial(self._measure, name)

    def close(self) -> None:
        """End the worker and wait for it; may be called twice."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _measure(self, name: str) -> float:
        return float(self._ask(do="measure", name=name)["steps_per_second"])

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"the worker {self.module} ended while asked for {request}; its own words are above")
        reply: dict[str, Any] = json.loads(line)
        return reply
