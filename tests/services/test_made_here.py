"""The mark of the user that made a run: valid for that run alone, and nothing without a key that nobody else reads."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from weft.core.errors import RunError
from weft.services.made_here import is_made_here, key_path, key_trouble, with_mark

CONFIG = {"environment": "mine:make", "algo": {"clip": 0.2}}
ORIGIN = {"modules": {"mine": "/home/me/mine.py"}, "script": None}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_mark_is_of_one_config_and_one_origin() -> None:
    marked = with_mark(CONFIG, ORIGIN)
    assert {name: marked[name] for name in ORIGIN} == ORIGIN
    assert is_made_here(CONFIG, marked)
    assert is_made_here(dict(reversed(CONFIG.items())), dict(reversed(marked.items()))), "the order says nothing"
    assert not is_made_here(CONFIG | {"environment": "os:system"}, marked)
    assert not is_made_here(CONFIG | {"more": 1}, marked)
    assert not is_made_here(CONFIG, marked | {"script": "/tmp/other.py"})
    assert not is_made_here(CONFIG, marked | {"mark": "0" * 64})
    for nonsense in (None, 3, "", "ä", ["x"]):
        assert not is_made_here(CONFIG, marked | {"mark": nonsense})
    assert not is_made_here(CONFIG, ORIGIN)


def test_somebody_else_s_mark_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    marked = with_mark(CONFIG, ORIGIN)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    assert not is_made_here(CONFIG, marked)
    assert not key_path().exists(), "to look makes no key"
    assert is_made_here(CONFIG, with_mark(CONFIG, ORIGIN))


def test_the_key_is_the_user_s_alone(state: Path) -> None:
    before = os.umask(0)
    try:
        with_mark(CONFIG, ORIGIN)
    finally:
        os.umask(before)
    assert stat.S_IMODE(key_path().stat().st_mode) == 0o600
    assert stat.S_IMODE(key_path().parent.stat().st_mode) == 0o700
    assert [p.name for p in (state / "weft").iterdir()] == ["key"]
    assert len(key_path().read_bytes()) == 32


@pytest.mark.parametrize("trouble", ["readable", "short", "link", "fifo", "folder"])
def test_a_key_that_others_may_know_is_not_used(trouble: str, tmp_path: Path) -> None:
    marked = with_mark(CONFIG, ORIGIN)
    key = key_path()
    if trouble == "readable":
        key.chmod(0o644)
    elif trouble == "short":
        key.write_bytes(b"")
    else:
        whole = key.read_bytes()
        key.unlink()
        if trouble == "link":
            (tmp_path / "theirs").write_bytes(whole)
            (tmp_path / "theirs").chmod(0o600)
            key.symlink_to(tmp_path / "theirs")
        elif trouble == "fifo":
            os.mkfifo(key, 0o600)
        else:
            key.mkdir()
    assert not is_made_here(CONFIG, marked)
    assert "the key that marks runs as yours" in key_trouble()
    with pytest.raises(RunError, match=r"weft/key, cannot be used: \S"):
        with_mark(CONFIG, ORIGIN)


def test_without_a_place_for_the_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert "cannot be used" in key_trouble()
    assert not is_made_here(CONFIG, ORIGIN | {"mark": "0" * 64})
    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # which the XDG specification says to ignore
    monkeypatch.setenv("HOME", str(tmp_path))
    assert key_path() == tmp_path / ".local/state/weft/key"


def test_processes_that_make_the_key_at_once_share_it() -> None:
    code = "from weft.services.made_here import with_mark\nprint(with_mark({'a': 1}, {})['mark'])"
    started = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    marks = {process.communicate(timeout=60)[0] for process in started}
    assert len(marks) == 1
    assert is_made_here({"a": 1}, {"mark": marks.pop().strip()})
