"""``training("ppo", "CartPole-v1", ...)``: a command that trains, and is gone when the test ends."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running import Training


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Callable[..., Training]]:
    for module in ("faulty_envs.py", "faulty_algorithms.py", "numbered.py", "roster.py", "../mapped.py"):
        shutil.copy(Path(__file__).parent / module, tmp_path)
    made: list[Training] = []

    def start(*arguments: str, run: str = "r") -> Training:
        made.append(Training(tmp_path, *arguments, run=run, cwd=tmp_path))
        return made[-1]

    yield start
    for one in made:
        one.close()
