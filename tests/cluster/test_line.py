"""The line between head and agents: whole messages, no pickle, bounded sizes, and only who has the keys."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import pytest

from weft.runtimes.cluster import line as line_module
from weft.runtimes.cluster.line import AgentLine, packed, unpacked
from weft.runtimes.cluster.switchboard import Switchboard
from weft.runtimes.workers.control.link import LinkClosed, LinkMessage


def test_messages_come_as_they_were_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_module, "MAX_FRAME", 64)  # so that arrays and text are cut
    arrays = [np.arange(50, dtype=np.int64), np.zeros((0, 3), np.float32), np.array(True)]
    frames = packed(7, "said", {"text": "x" * 200}, arrays)
    assert max(map(len, frames)) <= 64
    number, message = unpacked(frames)
    assert (number, message.topic, message.body) == (7, "said", {"text": "x" * 200})
    for there, here in zip(message.arrays, arrays, strict=True):
        assert there.dtype == here.dtype
        np.testing.assert_array_equal(there, here)


GOOD = packed(0, "said", {}, [np.arange(4)])


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        [b"\x01\0\0\0"],
        [b"\xff\xff\xff\x7f", *GOOD[1:]],
        [GOOD[0], b"{", GOOD[2]],
        [GOOD[0], GOOD[1], GOOD[2][:-1]],
        [GOOD[0], json.dumps({"number": 0, "topic": "x", "body": {}, "arrays": [["O", [1]]]}).encode(), b"12345678"],
        [GOOD[0], json.dumps({"number": 0, "topic": "x", "body": {}, "arrays": [["<i8", [1 << 60]]]}).encode()],
        [GOOD[0], json.dumps({"number": 0, "topic": "x", "body": {}, "arrays": [["<i8", [-1]]]}).encode()],
    ],
)
def test_what_is_no_message_is_refused(frames: list[bytes]) -> None:
    with pytest.raises(LinkClosed, match="not one of ours"):
        unpacked(frames)


def test_agents_are_heard_in_order_and_answered() -> None:
    heard: list[tuple[int, LinkMessage]] = []
    all_heard = threading.Event()

    def deliver(host: int, message: LinkMessage) -> None:
        heard.append((host, message))
        if message.topic == "last":
            all_heard.set()

    board = Switchboard("127.0.0.1", deliver)
    board.say(1, "early", {"before": "it has reported"})
    agent = AgentLine(board.invitation(1, "127.0.0.1"))
    try:
        agent.say("here", {"host": 1})
        for number in range(20):
            agent.say("said", {"number": number}, [np.full(100, number)])
        agent.say("last")
        while not all_heard.wait(0.01):
            agent.flush()
        assert {host for host, _ in heard} == {1}
        assert [m.body.get("number") for _, m in heard[1:-1]] == list(range(20))
        assert hear(agent).topic == "early"
        board.say(1, "later")
        message = hear(agent)
        while message.topic == "ping":
            message = hear(agent)
        assert message.topic == "later"
    finally:
        agent.close()
        board.close()


def test_without_the_keys_nobody_is_heard() -> None:
    heard: list[int] = []
    board, other = Switchboard("127.0.0.1", lambda host, message: heard.append(host)), None
    try:
        wrong = Switchboard("127.0.0.1", lambda host, message: None)
        keys = wrong.invitation(1, "127.0.0.1").keys
        wrong.close()
        other = AgentLine(board.invitation(1, "127.0.0.1")._replace(keys=keys))
        other.say("here", {"host": 1})
        good = AgentLine(board.invitation(2, "127.0.0.1"))
        good.say("here", {"host": 2})
        until = time.monotonic() + 10.0
        while not heard and time.monotonic() < until:
            good.flush()
            other.flush()
            time.sleep(0.01)
        assert heard == [2]
        good.close()
    finally:
        if other is not None:
            other.close()
        board.close()


def hear(agent: AgentLine) -> LinkMessage:
    until = time.monotonic() + 10.0
    while (message := agent.hear()) is None:
        assert time.monotonic() < until
        time.sleep(0.002)
    return message
