"""``weft checkpoints`` verifies; ``weft eval --checkpoint`` and ``weft.load`` choose; settings tell what stays."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import Weft

import weft as library

EACH = ("--checkpoint-seconds", "0", "--run", "a")


@pytest.fixture(autouse=True)
def one_learn_call_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.runtimes.loop.execution.DISPATCH_SECONDS", 0.0)


def test_a_list_with_the_latest_and_the_best(train: Weft, weft: Weft) -> None:
    train("mine:Walk", *EACH)
    ended = weft("checkpoints", "a")
    assert ended.code == 0
    rows = [line.split() for line in ended.out.splitlines()]
    assert rows[0] == ["learn", "step", "env", "steps", "return", "size"]
    assert [row[:3] for row in rows[1:]] == [["2", "32", "–"], ["3", "48", "10.00"], ["4", "64", "10.00"]]
    assert ended.out.splitlines()[-1].endswith("MB  whole, latest, best")
    found = weft("checkpoints", "a", "--json").json
    assert [(one["learn_steps"], one["latest"], one["best"]) for one in found] == [
        (4, True, True),
        (3, False, False),
        (2, False, False),
    ]


def test_damage_is_named_and_the_exit_code_tells(train: Weft, weft: Weft, here: Path) -> None:
    train("mine:Walk", *EACH)
    path = here / "runs/a/checkpoints/000000000004.weft"
    data = bytearray(path.read_bytes())
    data[-50] ^= 1
    path.write_bytes(data)
    ended = weft("checkpoints", "a")
    assert ended.code == 1
    assert "000000000004.weft is corrupt" in ended.out.splitlines()[-1]
    assert "whole, latest, best" in ended.out.splitlines()[-2]
    for path in (here / "runs/a/checkpoints").iterdir():
        path.unlink()
    assert weft("checkpoints", "a") == (1, "runs/a: no checkpoint\n", "")
    assert weft("checkpoints", "b").code == 2


def test_nothing_that_the_folder_names_is_imported(train: Weft, weft: Weft, here: Path) -> None:
    train("mine:Walk", *EACH)
    sys.modules.pop("mine")
    (here / "mine.py").write_text("raise RuntimeError('imported')")
    assert weft("checkpoints", "a").code == 0
    assert "mine" not in sys.modules


def test_one_of_them_is_played(train: Weft, weft: Weft) -> None:
    summary = train("mine:Walk", *EACH, "--json").json
    for which in ("best", "2", "latest"):
        assert weft("eval", "a", "--episodes", "1", "--checkpoint", which).code == 0
    code, _, err = weft("eval", "a", "--episodes", "1", "--checkpoint", "9")
    assert code == 1
    assert "there is no checkpoint '9'" in err
    assert "Tags: latest, best; learn steps: 2, 3, 4." in err
    newest, second = library.load("a"), library.load("a", checkpoint=2)
    assert (second.summary["learn_steps"], second.summary["env_steps"]) == (2, 32)
    assert newest.summary["learn_steps"] == 4
    flat = [np.concatenate([x.ravel() for x in _leaves(run.params)]) for run in (newest, second)]
    assert not np.array_equal(*flat)
    assert _sha(newest.params) == summary["params_sha256"] == _sha(library.load("a", checkpoint="best").params)


def test_settings_say_which_stay(train: Weft, here: Path) -> None:
    more = ("--steps", "160", "--keep-checkpoints", "1", "--keep-best", "0", "--keep-every", "48", "--no-tensorboard")
    train("mine:Walk", *EACH, *more)
    assert sorted(int(path.stem) for path in (here / "runs/a/checkpoints").glob("*.weft")) == [3, 6, 9, 10]


def test_a_checkpoint_that_is_to_stay_is_saved_in_time(train: Weft, here: Path) -> None:
    """Without waiting for --checkpoint-seconds; that of 128 env steps may find the first still being written."""
    train("mine:Walk", "--run", "a", "--steps", "160", "--keep-checkpoints", "1", "--keep-every", "64")
    assert {4, 10} <= {int(path.stem) for path in (here / "runs/a/checkpoints").glob("*.weft")}


def _leaves(tree: object) -> list[np.ndarray]:
    import jax

    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def _sha(tree: object) -> str:
    from weft.services.leaves import params_sha256

    return params_sha256(tree)


def test_a_tag_of_the_users_is_listed_played_and_taken_away(train: Weft, weft: Weft) -> None:
    train("mine:Walk", *EACH)
    ended = weft("checkpoints", "a", "--tag", "good", "--checkpoint", "3")
    assert ended.code == 0
    assert [line.split()[-1] for line in ended.out.splitlines()[1:]] == ["whole", "good", "best"]
    assert library.tag("a", "other", checkpoint="good").name == "other.weft"
    found = weft("checkpoints", "a", "--json").json
    assert [one["tags"] for one in found] == [[], ["good", "other"], []]
    assert weft("eval", "a", "--checkpoint", "good", "--episodes", "1").code == 0
    assert library.load("a", checkpoint="good").summary["learn_steps"] == 3
    wrong = weft("eval", "a", "--checkpoint", "god")
    assert wrong.code != 0
    assert "Did you mean 'good'? Tags: latest, best, good, other; learn steps: 2, 3, 4." in wrong.err
    assert "the tag 'best' is the run's own" in weft("checkpoints", "a", "--tag", "best").err
    assert weft("checkpoints", "a", "--untag", "good").code == 0
    assert "no tag 'good'" in weft("checkpoints", "a", "--untag", "good").err


def test_evaluation_by_the_command_line(train: Weft, weft: Weft) -> None:
    ended = train("mine:Walk", "--run", "a", "--eval-every", "32", "--eval-episodes", "3")
    assert ended.code == 0
    assert "evaluation: " in ended.err
    best = [one for one in weft("checkpoints", "a", "--json").json if one["best"]]
    assert [(one["tags"], one["params_only"]) for one in best] == [(["best"], True)]
    played = weft("eval", "a", "--checkpoint", "best", "--episodes", "3", "--json").json
    assert played["return_mean"] == best[0]["score"]
