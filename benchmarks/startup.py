"""What a start costs: imports, the first compilation, and the time from a process's start to its first learn step."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.measure import Case
from benchmarks.options import Options
from benchmarks.worker import ROOT

IMPORTS = ("weft", "jax", "gymnasium", "flax.linen", "weft.algorithms.ppo")
ENVIRONMENTS = {"compiled": "weft:CartPole-v1", "host": "CartPole-v1"}


def cases(options: Options, stack: ExitStack) -> list[Case]:
    """Every contender starts processes of its own; ``stack`` removes the caches they leave."""
    scratch = Path(tempfile.mkdtemp(prefix="weft-startup-"))
    stack.callback(shutil.rmtree, scratch, ignore_errors=True)
    imports = Case("start-up: imports, each in a fresh process", "seconds", {"python -c pass": _interpreter})
    for module in IMPORTS:
        imports.contenders[f"import {module}"] = partial(_import, module)
    imports.notes.append("An import's figure is without the interpreter's own start, which is in the first row.")
    first = Case("start-up: from a process's start to the end of its first learn step", "seconds", {})
    command = Case("start-up: the whole command `weft train ppo ENV`, one learn step, start to exit", "seconds", {})
    for kind, environment in ENVIRONMENTS.items():
        options.tell(f"preparing  start-up  {kind}")
        warm = scratch / f"warm-{kind}"
        _start(environment, warm)  # fills the cache
        _command(environment, warm, scratch)
        for cache, process in (
            ("cold", partial(_cold, environment, scratch)),
            ("warm", partial(_start, environment, warm)),
        ):
            starts = Starts(process)
            first.contenders[f"{kind}, {cache} cache"] = partial(starts.take, "whole")
            first.contenders[f"{kind}, {cache} cache: compiling"] = partial(starts.take, "compiling")
        command.contenders[f"{kind}, warm cache"] = partial(_command, environment, warm, scratch)
    first.notes.append(
        "The cache is Weft's store of compiled programs on disk. Compiling: the first learn step, less a second one."
    )
    return [imports, first, command]


class Starts:
    """Processes that each give several figures; another is started once a figure was taken already."""

    def __init__(self, process: Callable[[], dict[str, float]]) -> None:
        self._process = process
        self._untaken: dict[str, float] = {}

    def take(self, figure: str) -> float:
        """A figure that nobody has taken yet."""
        if figure not in self._untaken:
            self._untaken = self._process()
        return self._untaken.pop(figure)


def _interpreter() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True, cwd=ROOT)
    return time.perf_counter() - began


def _import(module: str) -> float:
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    return float(
        subprocess.run(
            [sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True, env=_environment()
        ).stdout
    )


def _cold(environment: str, scratch: Path) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(dir=scratch))
    try:
        return _start(environment, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(environment: str, cache: Path) -> dict[str, float]:
    """One process up to its second learn step: seconds to the end of the first, and seconds of it spent compiling."""
    command = [sys.executable, "-m", "benchmarks.startup_child", environment]
    began = time.time()  # a clock that both processes read
    ended = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=_with_cache(cache))
    marks: dict[str, float] = json.loads(ended.stdout)
    first, second = marks["first_learn"] - marks["started"], marks["second_learn"] - marks["first_learn"]
    return {"whole": marks["first_learn"] - began, "compiling": first - second}


def _command(environment: str, cache: Path, scratch: Path) -> float:
    folder = tempfile.mkdtemp(dir=scratch)
    command = [sys.executable, "-m", "weft", "train", "ppo", environment, "--steps", "1", "--root", folder, "--quiet"]
    began = time.perf_counter()
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, env=_with_cache(cache))
    return time.perf_counter() - began


def _with_cache(cache: Path) -> dict[str, str]:
    """The environment of a user whose cache folder is ``cache``."""
    return {**_environment("JAX_COMPILATION_CACHE_DIR"), "XDG_CACHE_HOME": str(cache)}


def _environment(*without: str) -> dict[str, str]:
    """That of ``make train``: Python keeps what it compiles of a module, whatever this machine's setting is."""
    return {k: v for k, v in os.environ.items() if k not in {"PYTHONDONTWRITEBYTECODE", *without}}
