"""Asking a run through its folder: each request has one taker, and the one that asked hears what became of it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from weft.core.errors import RunError
from weft.services.run_folder import lock_folder
from weft.services.scale_request import FOLDER, ScaleAnswer, ScaleRequest, answer, ask, next_request


def held(path: Path) -> int:
    return lock_folder(path)


def test_a_request_is_taken_once_and_answered(tmp_path: Path) -> None:
    lock = held(tmp_path)
    became = ScaleAnswer("scaled", "more", "env*2 | act | learn", 1.5)

    def run() -> None:
        until = time.monotonic() + 20.0
        while (request := next_request(tmp_path)) is None and time.monotonic() < until:
            time.sleep(0.01)
        assert request is not None
        assert request.counts == {"env": 2}
        assert next_request(tmp_path) is None
        answer(tmp_path, request, became)

    thread = threading.Thread(target=run)
    thread.start()
    assert ask(tmp_path, ScaleRequest(os.getpid(), {"env": 2}), 20.0) == became
    thread.join()
    os.close(lock)
    assert not (tmp_path / FOLDER).exists(), "nothing is left in the run's folder"


def test_what_is_not_looked_at_is_withdrawn(tmp_path: Path) -> None:
    lock = held(tmp_path)
    with pytest.raises(RunError, match="has not looked at it"):
        ask(tmp_path, ScaleRequest(os.getpid(), {"env": 2}), 0.2)
    os.close(lock)
    with pytest.raises(RunError, match="has ended before"):
        ask(tmp_path, ScaleRequest(os.getpid(), {"env": 2}), 20.0)
    assert next_request(tmp_path) is None


def test_requests_to_others_and_what_is_damaged_are_let_go(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    (folder / "1.json").write_text("{")
    (folder / "2.json").write_text('{"process": 1}')
    (folder / "3.json").write_text(f'{{"process": {os.getpid()}, "counts": {{"env": 3}}, "id": "3"}}')
    request = next_request(tmp_path)
    assert request is not None
    assert (request.id, request.counts) == ("3", {"env": 3})
    assert list(folder.iterdir()) == []
