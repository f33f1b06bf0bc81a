"""Tags: names under which checkpoints stay, whatever is removed beside them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from weft.core.errors import CheckpointError, ConfigError
from weft.services import checkpoints
from weft.services.checkpoint_list import check_all
from weft.services.checkpoints import Label, Retention, chosen, pack, put_tag_on
from weft.services.tags import BEST, remove_tag, tag_path, tags_in, write_tag

TEMPLATE = {"a": np.zeros(3, np.float32)}


def save(folder: Path, step: int, keep: Retention = Retention(1)) -> None:
    tree = {"a": np.full(3, step, np.float32)}
    checkpoints.save(folder, step, tree, {"engine": {}}, label=Label("me", 10 * step, float(step), 500), keep=keep)


def loaded(folder: Path, which: str) -> float:
    found = checkpoints.load_latest(folder, TEMPLATE, pytest.fail, run="me", which=which)
    assert found is not None
    return float(found[0]["a"][0])


def test_a_tagged_checkpoint_stays_and_is_loaded_by_its_name(tmp_path: Path) -> None:
    save(tmp_path, 1)
    put_tag_on(tmp_path, "mine", "latest", "me")
    save(tmp_path, 2)
    assert [path.name for path in checkpoints.latest(tmp_path)] == ["000000000002.weft"]
    assert (loaded(tmp_path, "mine"), loaded(tmp_path, "latest")) == (1.0, 2.0)
    put_tag_on(tmp_path, "mine", 2, "me")
    assert loaded(tmp_path, "mine") == 2.0, "another of that name gives way"
    assert not [name for name in os.listdir(tmp_path / "tags") if name.startswith(".")]
    put_tag_on(tmp_path, "again", "mine", "me")
    remove_tag(tmp_path, "mine")
    assert list(tags_in(tmp_path)) == ["again"]
    with pytest.raises(CheckpointError, match=r"no tag 'mine' in .*: there are again"):
        remove_tag(tmp_path, "mine")


def test_a_tag_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path) -> None:
    save(tmp_path, 1)
    put_tag_on(tmp_path, "good", "latest", "me")
    words = r"no checkpoint 'god' in .*\. Did you mean 'good'\? Tags: latest, best, good; learn steps: 1\."
    with pytest.raises(CheckpointError, match=words):
        chosen(tmp_path, "god", "me")
    with pytest.raises(CheckpointError, match="no checkpoint 'step-11'"):
        chosen(tmp_path, "step-11", "me")
    assert [path.name for path in chosen(tmp_path, "step-10", "me")] == ["000000000001.weft"]


@pytest.mark.parametrize("name", ["best", "latest", "step-100", "12", "", "../up", "a/b", "a b", ".hidden", "x" * 65])
def test_what_cannot_be_a_tag(tmp_path: Path, name: str) -> None:
    save(tmp_path, 1)
    with pytest.raises(ConfigError, match="tag"):
        put_tag_on(tmp_path, name, "latest", "me")
    assert tags_in(tmp_path) == {}


def test_those_of_every_so_many_env_steps_are_tagged_by_them(tmp_path: Path) -> None:
    for step in range(1, 13):
        save(tmp_path, step, Retention(1, every=50))
    assert sorted(tags_in(tmp_path)) == ["step-100", "step-50"]
    assert (loaded(tmp_path, "step-50"), loaded(tmp_path, "step-100")) == (5.0, 10.0)


def test_the_best_by_its_score_goes_before_those_by_their_return_in_training(tmp_path: Path) -> None:
    for step in (1, 2):
        save(tmp_path, step, Retention(2))
    assert loaded(tmp_path, "best") == 2.0
    tree = {"a": np.full(3, 7, np.float32)}
    write_tag(tmp_path, BEST, pack(7, tree, {"counters": {}}, Label("me", 70, score=9.0)).pieces)
    assert loaded(tmp_path, "best") == 7.0
    found = {one.step: one for one in check_all(tmp_path, "me")}
    assert [(step, one.is_best, one.params_only, one.tags) for step, one in found.items()] == [
        (2, False, False, ()),
        (1, False, False, ()),
        (7, True, True, ("best",)),
    ]
    assert not any(one.problem for one in found.values())
    path = tag_path(tmp_path, BEST)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    told: list[str] = []
    back = checkpoints.load_latest(tmp_path, TEMPLATE, told.append, run="me", which="best")
    assert back is not None
    assert float(back[0]["a"][0]) == 2.0
    assert "best.weft is corrupt" in told[0]
