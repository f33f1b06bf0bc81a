"""The examples in a folder of the user's; and ``weft train`` started there, whose workers can be found and killed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from users_folder import here as here

for folder in ("faults", "conformance"):
    sys.path.append(str(Path(__file__).parents[1] / folder))

from running import Training  # noqa: E402  found where the line above looks


@pytest.fixture
def training(here: Path) -> Iterator[Callable[..., Training]]:
    made: list[Training] = []

    def start(*arguments: str) -> Training:
        made.append(Training(here, *arguments, run="r", cwd=here))
        return made[-1]

    yield start
    for one in made:
        one.close()
