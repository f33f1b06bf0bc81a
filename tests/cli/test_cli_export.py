"""``weft export``: a folder that runs without Weft."""

from __future__ import annotations

from pathlib import Path

from command_line import Weft


def test_a_run_becomes_a_folder(train: Weft, weft: Weft) -> None:
    train("mine:Walk", "--run", "a")
    code, out, err = weft("export", "a", "--to", "made", "--format", "numpy")
    assert (code, err) == (0, "")
    assert out.startswith("made: numpy; the policy's actions on 64 random and 512 played observations")
    assert {path.name for path in Path("made").iterdir()} == {
        "README.md",
        "greedy.json",
        "manifest.json",
        "policy.json",
        "policy.py",
        "sample.json",
        "weights.npz",
    }
    told = weft("export", "a", "--format", "numpy", "--checkpoint", "latest", "--json").json
    assert (told["run"], told["formats"], told["left_out"]) == ("a", ["numpy"], {})
    assert Path(told["folder"]).name == "export"


def test_what_cannot_be(train: Weft, weft: Weft) -> None:
    assert weft("export", "nobody").code == 2
    train("mine:Walk", "--run", "a")
    ended = weft("export", "a", "--format", "nunpy")
    assert (ended.code, "Did you mean 'numpy'" in ended.err) == (2, True)
