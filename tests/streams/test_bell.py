"""Bells: rung from anywhere, waited on without spinning."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from weft.streams.bell import Bell


@pytest.fixture(params=["eventfd", "pipe"])
def bell(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bell]:
    if request.param == "pipe":
        monkeypatch.delattr(os, "eventfd")
    made = Bell()
    assert len(made.fds) == (1 if request.param == "eventfd" else 2)
    yield made
    made.close()
    made.close()
    made.ring()  # of a closed one: nothing


def test_it_remembers_that_it_was_rung_and_not_how_often(bell: Bell) -> None:
    assert not bell.wait(0)
    for _ in range(100_000 if len(bell.fds) == 2 else 3):  # a pipe fills up
        bell.ring()
    assert bell.wait(0)
    while len(bell.fds) == 2 and bell.wait(0):
        pass
    assert not bell.wait(0.01)


def test_waiting_sleeps(bell: Bell) -> None:
    timer = threading.Timer(0.2, bell.ring)
    timer.start()
    began, busy = time.monotonic(), time.thread_time()
    assert bell.wait(10)
    assert 0.15 < time.monotonic() - began < 5
    assert time.thread_time() - busy < 0.05
    timer.join()
    assert not bell.clear()


def test_it_can_be_polled(bell: Bell) -> None:
    poll = select.poll()
    poll.register(bell, select.POLLIN)
    assert not poll.poll(0)
    bell.ring()
    assert poll.poll(0)


def test_look_wait_look_again() -> None:
    bell = Bell()
    looks: list[int] = []

    def look() -> str | None:
        looks.append(1)
        return "here" if len(looks) == 3 else None

    assert bell.wait_for(look, 0) is None
    bell.ring()  # in vain
    timer = threading.Timer(0.05, bell.ring)
    timer.start()
    assert bell.wait_for(look, 10) == "here"
    assert bell.wait_for(lambda: None, 0.01) is None
    timer.join()
    bell.close()


def test_it_is_rung_by_another_process(bell: Bell) -> None:
    code = f"from weft.streams.bell import Bell; Bell.from_fd(*{bell.fds}).ring()"
    child = subprocess.Popen([sys.executable, "-c", code], pass_fds=bell.fds)
    assert bell.wait(30)
    assert child.wait() == 0


def test_children_do_not_get_it_unasked() -> None:
    bell = Bell()
    assert not os.get_inheritable(bell.fileno())
    bell.close()
