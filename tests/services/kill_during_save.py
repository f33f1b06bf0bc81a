"""Kill a save at each of its system calls, in each of three ways, and look at what is left. Run by test_crash.py.

Prints one JSON object: how many calls a save makes, how many kills there were, and every outcome that would lose a run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from weft.services.checkpoints import load_latest, save

CALLS = ("listdir", "open", "write", "fsync", "close", "replace", "unlink")
WAYS = ("before", "after", "power")  # power: what was not synced by then is lost, as when the power goes


def tree_at(step: int) -> dict[str, Any]:
    return {"w": np.full((40, 50), step, np.float32), "n": np.int64(step), "b": np.arange(7) + step}


class Killer:
    """Wraps this process's file calls; kills it at the ``at``-th of them."""

    def __init__(self, at: int, way: str) -> None:
        self.at, self.way, self.count = at, way, 0
        self.paths: dict[int, str] = {}  # by file descriptor
        self.unsynced: set[str] = set()

    def install(self) -> None:
        for name in CALLS:
            setattr(os, name, self.wrap(name, getattr(os, name)))

    def wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            self.count += 1
            if self.count == self.at and self.way == "before":
                if name == "write":  # part of it gets through
                    real(args[0], bytes(args[1])[: len(args[1]) // 2])
                self.die()
            result = real(*args, **named)
            self.follow(name, args, result)
            if self.count == self.at:
                self.die()
            return result

        return call

    def follow(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        if name == "open":
            self.paths[result] = str(args[0])
        elif name == "write":
            self.unsynced.add(self.paths[args[0]])
        elif name == "fsync":
            self.unsynced.discard(self.paths[args[0]])
        elif name == "replace" and str(args[0]) in self.unsynced:
            self.unsynced.add(str(args[1]))

    def die(self) -> None:
        if self.way == "power":
            for path in self.unsynced:
                if os.path.exists(path):
                    os.truncate(path, 0)
        os.kill(os.getpid(), signal.SIGKILL)


def save_and_die(folder: Path, at: int, way: str) -> bool:
    """Save step 4 in a child that dies at call ``at``; False where it made fewer calls and lived."""
    child = os.fork()
    if child == 0:
        Killer(at, way).install()
        save(folder, 4, tree_at(4), {"step": 4})
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def outcome(folder: Path) -> str:
    """What is wrong with a folder after a kill; empty where the run can go on from step 3 or 4."""
    warnings: list[str] = []
    loaded = load_latest(folder, tree_at(0), warnings.append)
    if loaded is None or warnings:
        return f"loaded {loaded}, warned {warnings}"
    tree, document, _ = loaded
    step = document["step"]
    if step not in (3, 4) or any(not np.array_equal(tree[k], tree_at(step)[k]) for k in tree):
        return f"step {step}: {tree}"
    save(folder, 5, tree_at(5), {"step": 5})
    left = sorted(os.listdir(folder))
    return "" if left[-1] == "000000000005.weft" and not any(n.endswith(".tmp") for n in left) else f"left {left}"


def main(root: Path) -> None:
    ready, folder = root / "ready", root / "checkpoints"
    for step in (1, 2, 3):
        save(ready, step, tree_at(step), {"step": step})
    kills, bad, calls = 0, [], 0
    for way in WAYS:
        at = 1
        while True:
            shutil.copytree(ready, folder)
            killed = save_and_die(folder, at, way)
            problem = outcome(folder)
            shutil.rmtree(folder)
            if problem:
                bad.append(f"{way} call {at}: {problem}")
            if not killed:
                break
            kills, calls, at = kills + 1, max(calls, at), at + 1
    print(json.dumps({"calls": calls, "kills": kills, "bad": bad}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
