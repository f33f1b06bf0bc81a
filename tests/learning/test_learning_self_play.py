"""Self-play where skill orders the players: later versions beat earlier ones, and Elo rises with the version."""

import json
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.cli.league import main as league

PLAYER = weft.PPO(unroll=64, learning_rate=2e-3, hidden=(32, 32))


@pytest.mark.parametrize(
    "rule",
    [
        "prioritised",
        pytest.param("latest", marks=pytest.mark.slow),
        pytest.param("uniform", marks=pytest.mark.slow),
    ],
)
def test_versions_beat_their_past_in_order(rule: str, tmp_path: Path) -> None:
    """Versions of 0, 12, 24 and 36 learn calls; 128 games of each pair have a deviation of 0.044."""
    learns = weft.SelfPlay(of=PLAYER, opponents=rule, every=12, versions=4)  # type: ignore[arg-type]
    weft.train(learns, "weft:Rally-v0", envs=64, steps=148_000, seed=1, run="rally", root=tmp_path, quiet=True)
    league("league", ["rally", "--root", str(tmp_path), "--episodes", "128"])
    found = json.loads((tmp_path / "rally" / "payoffs.json").read_text())
    score, elo = np.array(found["score"]), np.array(found["elo"])
    assert found["versions"] == ["0", "12", "24", "36", "newest"]
    later, earlier = np.tril_indices(4, -1)
    assert (score[:4, :4][later, earlier] > 0.5).all(), score
    assert score[3, 0] > 0.85
    assert score[3, 1] > 0.7
    assert (np.diff(elo[:4]) > 30).all(), elo
