"""Loops as accelerators have them, several steps in a turn, learn what loops of single steps learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import pytest
from toys import farthest

import weft
from weft.ops import shuffling
from weft.runtimes import packing

LITTLE: dict[str, Any] = {"unroll": 8, "hidden": (8,)}
ALGORITHMS = {
    "minibatches": weft.PPO(**LITTLE, epochs=2, minibatches=4),
    "draws": weft.DQN(**LITTLE, batch=16, capacity=512, samples_per_insert=2.0, learning_begins=64),
    "with feedback": weft.DQN(
        **LITTLE, batch=16, capacity=512, samples_per_insert=2.0, learning_begins=64, prioritised=True
    ),
}


@pytest.mark.parametrize("name", ["minibatches", "draws", pytest.param("with feedback", marks=pytest.mark.slow)])
def test_the_same_is_learned(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def learned(run: str) -> Any:
        asked.clear()
        settings: dict[str, Any] = {"envs": 4, "steps": 320, "seed": 1, "quiet": True, "tensorboard": False}
        return weft.train(ALGORITHMS[name], "weft:CartPole-v1", run=run, root=tmp_path, **settings).params

    def several(length: int, most: int) -> int:
        asked.append(most)
        return max(k for k in range(1, most + 1) if length % k == 0)

    one = learned("one")
    monkeypatch.setattr(packing, "in_a_row", several)
    monkeypatch.setattr(shuffling, "in_a_row", several)
    assert farthest(learned("several"), one) < 1e-5
    assert max(asked) == 4, "the rollout"
    assert (2 in asked) == (name != "with feedback"), "batches that are drawn one by one are not looked at together"
    assert jax.tree.leaves(one)
