"""``weft sweep`` and ``weft pbt`` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from weft.cli.main import main

SMALL = ["--algo.unroll", "16", "--algo.epochs", "1", "--algo.minibatches", "2", "--algo.hidden", "16", "--envs", "4"]


def test_a_sweep_tells_of_its_members_and_is_played(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    vary = ["--vary", "learning_rate=1e-4..1e-2:log", "--vary=clip=0.1,0.3"]
    asked = ["sweep", "ppo", "weft:CartPole-v1", *vary, "--members", "3", "--steps", "512", *SMALL]
    where = ["--root", str(tmp_path), "--run", "s", "--no-tensorboard"]
    assert main([*asked, *where, "--json"]) == 0
    summary = json.loads(capfd.readouterr().out)
    assert summary["exit"] == "finished"
    assert len(summary["members"]) == 3
    assert {row["values"]["clip"] for row in summary["members"]} <= {0.1, 0.3}
    assert (tmp_path / "s" / "lineage.svg").read_text().startswith("<svg")
    assert main([*asked, *where]) == 0
    told = capfd.readouterr().err
    assert "was finished before" in told
    assert f"weft eval {tmp_path / 's'} plays the best" in told
    assert main(["eval", "s", "--root", str(tmp_path), "--episodes", "1"]) == 0
    assert main(["eval", "s/member-01", "--root", str(tmp_path), "--episodes", "1"]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sweep", "ppo", "weft:CartPole-v1"], 'nothing is varied: say which fields and between what, as in --vary "'),
        (["sweep", "ppo", "weft:CartPole-v1", "--vary"], "--vary needs FIELD=LOW..HIGH"),
        (["sweep", "ppo", "weft:CartPole-v1", "--vary", "clip"], "--vary 'clip': expected FIELD=LOW..HIGH"),
        (["pbt", "ppo", "weft:CartPole-v1", "--vary", "lr=1..2"], "Did you mean 'learning_rate'?"),
        (["pbt", "ppo", "weft:CartPole-v1", "--vary", "clip=1..0"], "upside down"),
        (["pbt", "ppo", "weft:CartPole-v1", "--vary", "clip=0.1,0.2", "--members", "1"], "members must be at least 2"),
        (["pbt", "ppo", "weft:CartPole-v1", "--vary", "clip=0.1,0.2", "--seeds", "2"], "unknown flag '--seeds'"),
    ],
)
def test_bad_command_lines(arguments: list[str], words: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert words in capfd.readouterr().err


def test_optuna_chooses_members_batch_by_batch(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    asked = ["sweep", "ppo", "weft:CartPole-v1", "--vary", "learning_rate=1e-5..1e-1:log", "--how", "optuna"]
    asked += ["--members", "4", "--batch", "2", "--steps", "128", *SMALL, "--no-tensorboard"]
    assert main([*asked, "--root", str(tmp_path), "--run", "chosen", "--json"]) == 0
    summary = json.loads(capfd.readouterr().out)
    assert summary["exit"] == "finished"
    rates = {row["values"]["learning_rate"] for row in summary["members"]}
    assert len(rates) == 4
    assert all(1e-5 <= rate <= 1e-1 for rate in rates)
    rounds = json.loads((tmp_path / "chosen" / "lineage.json").read_text())["rounds"]
    assert [row["member"] for row in rounds[0]["members"]] == [0, 1]
    assert [row["member"] for row in rounds[-1]["members"]] == [2, 3]
