"""How a command ended, and the sizes that these tests train with."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import pytest

# Always the same sizes, so that programs are compiled once.
SMALL = ["--envs", "4", "--algo.unroll", "4", "--algo.hidden", "8", "--algo.minibatches", "4"]
SMALL += ["--steps", "64", "--no-tensorboard"]


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What stdout says, which must be a single line of JSON without NaN."""
        assert self.out.count("\n") == 1
        assert self.out.endswith("\n")
        return json.loads(self.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


Weft: TypeAlias = Callable[..., Ended]
