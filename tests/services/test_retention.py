"""Which checkpoints stay, and that only the run's own are ever removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from weft.core.errors import CheckpointError
from weft.services.checkpoint_list import check_all
from weft.services.checkpoints import Label, Retention, chosen, latest, save, step_of
from weft.services.retention import Candidate, best_first


def saved(folder: Path, keep: Retention, *rows: tuple[int, float | None], run: str = "me", episodes: int = 100) -> None:
    for step, mean in rows:
        save(folder, step, {}, {}, label=Label(run, 10 * step, mean, episodes), keep=keep)


def left(folder: Path) -> list[int]:
    return sorted(map(step_of, latest(folder)))


def test_the_newest_stay(tmp_path: Path) -> None:
    saved(tmp_path, Retention(2), *((step, None) for step in range(1, 7)))
    assert left(tmp_path) == [5, 6]


def test_the_best_stay_however_old(tmp_path: Path) -> None:
    saved(tmp_path, Retention(1, best=2), (1, 5.0), (2, 9.0), (3, 7.0), (4, 1.0), (5, None), (6, 2.0))
    assert left(tmp_path) == [2, 3, 6]
    assert [step_of(path) for path in chosen(tmp_path, "best", "me")] == [2, 3, 6]


def test_of_equal_means_the_later_is_better_and_few_episodes_count_less() -> None:
    rows = [(1, 500.0, 100), (2, 500.0, 100), (3, 900.0, 2), (4, 3.0, 100), (5, None, 0)]
    found = [Candidate(step, Label("", 0, mean, episodes)) for step, mean, episodes in rows]
    assert [candidate.step for candidate in best_first(found)] == [2, 1, 4, 3]


def test_one_every_so_many_env_steps_stays_for_good(tmp_path: Path) -> None:
    saved(tmp_path, Retention(1, every=50), *((step, None) for step in range(1, 24)))
    assert left(tmp_path) == [5, 10, 15, 20, 23]  # of env steps 50, 100, 150, 200; and the newest


def test_what_is_not_the_runs_own_is_neither_counted_nor_removed(tmp_path: Path) -> None:
    saved(tmp_path, Retention(9), (7, 99.0), (1000, 99.0), run="another")
    saved(tmp_path, Retention(2, best=1), *((step, float(step)) for step in range(1, 6)))
    (tmp_path / "000000000004.weft").rename(tmp_path / "000000002000.weft")
    saved(tmp_path, Retention(2, best=1), (6, 1.0), (8, 1.0))
    assert left(tmp_path) == [5, 6, 7, 8, 1000, 2000]


def test_a_checkpoint_is_chosen_by_its_step_or_refused_with_those_there_are(tmp_path: Path) -> None:
    saved(tmp_path, Retention(9), (1, None), (2, None))
    assert [path.name for path in chosen(tmp_path, 1, "me")] == ["000000000001.weft"]
    assert chosen(tmp_path, "1", "me") == chosen(tmp_path, 1, "me")
    with pytest.raises(CheckpointError, match=r"'bset' in .* mean 'best'\? Tags: latest, best; learn steps: 1, 2"):
        chosen(tmp_path, "bset", "me")
    with pytest.raises(CheckpointError, match="tells a return"):
        chosen(tmp_path, "best", "me")


def test_every_checkpoint_is_checked_to_its_last_byte(tmp_path: Path) -> None:
    saved(tmp_path, Retention(9), (1, 9.0), (2, 8.0), (3, 7.0), (4, 6.0))
    saved(tmp_path, Retention(9), (5, 99.0), run="another")
    os.rename(tmp_path / "000000000003.weft", tmp_path / "000000000033.weft")
    damaged = tmp_path / "000000000001.weft"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    found = {one.step: one for one in check_all(tmp_path, "me")}
    assert list(found) == [33, 5, 4, 2, 1]
    assert {step for step, one in found.items() if not one.problem} == {2, 4}
    assert {step for step, one in found.items() if one.is_best} == {2}
    assert "is of run another, not of this run" in found[5].problem
    assert "holds learn step 3" in found[33].problem
    assert "checksum" in found[1].problem
