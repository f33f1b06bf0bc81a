"""The link between launcher and worker: whatever is said is heard whole, and a lost end is noticed."""

from __future__ import annotations

import os
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from weft.runtimes.workers.control.link import MAX_JSON, Link, LinkClosed


@pytest.fixture
def ends():
    here, other = Link.pair()
    there = Link(other)
    yield here, there
    here.close()
    there.close()


def test_arrays_of_any_kind_come_whole(ends):
    here, there = ends
    arrays = [
        np.arange(6, dtype=np.uint8).reshape(2, 3).T,
        np.zeros((0, 3)),
        np.array(2.5, np.float16),
        np.array([True, False]),
        np.array([1 + 2j]),
    ]
    here.say("saved", {"text": "é", "nested": [1, {"a": None}]}, arrays)
    said = there.hear()
    assert (said.topic, said.body) == ("saved", {"text": "é", "nested": [1, {"a": None}]})
    for array, heard in zip(arrays, said.arrays, strict=True):
        np.testing.assert_array_equal(heard, array)
        assert heard.dtype == array.dtype
        assert heard.shape == array.shape


def test_more_than_the_socket_holds_passes_while_the_other_end_listens(ends):
    here, there = ends
    large = np.random.default_rng(0).integers(0, 255, (64, 1 << 20), np.uint8)  # 64 MiB
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(here.say, "saved", {}, [large, large[:1]])
        said = there.hear(timeout=30)
        sent.result(30)
    np.testing.assert_array_equal(said.arrays[0], large)
    np.testing.assert_array_equal(said.arrays[1], large[:1])


def test_nothing_said_is_nothing_heard_and_costs_no_more_than_the_timeout(ends):
    _, there = ends
    began = time.monotonic()
    assert there.hear(timeout=0) is None
    assert there.hear(timeout=0.05) is None
    assert time.monotonic() - began < 5


def test_messages_of_several_threads_are_not_mixed(ends):
    here, there = ends
    count, threads = 200, 4

    def talk(number: int) -> None:
        for i in range(count):
            here.say("n", {"thread": number, "i": i}, [np.full(100, number)])

    talkers = [threading.Thread(target=talk, args=(n,)) for n in range(threads)]
    for thread in talkers:
        thread.start()
    seen = dict.fromkeys(range(threads), 0)
    for _ in range(count * threads):
        said = there.hear(timeout=30)
        number = said.body["thread"]
        assert said.body["i"] == seen[number], "out of order"
        assert (said.arrays[0] == number).all()
        seen[number] += 1
    for thread in talkers:
        thread.join()


def test_an_end_that_is_gone_is_noticed_by_both(ends):
    here, there = ends
    here.say("last", {})
    here.close()
    here.close()
    assert there.hear().topic == "last", "what was said before is heard"
    with pytest.raises(LinkClosed, match="gone"):
        there.hear()
    with pytest.raises(LinkClosed):
        there.say("anything", {}, [np.zeros(1 << 20)])


def test_an_end_that_goes_in_the_middle_of_a_message_is_noticed(ends):
    here, there = ends
    here._socket.sendall(struct.pack("<IQ", 1000, 0) + b'{"topic"')
    here.close()
    with pytest.raises(LinkClosed):
        there.hear()


def test_what_is_not_whole_yet_is_not_waited_for(ends):
    """A worker that is stopped amid a message must not stop the launcher, which is the one to notice it."""
    here, there = ends
    assert there.take() is None
    text = b'{"topic": "saved", "body": {}, "arrays": [["<f8", [2]], ["|u1", [0]], ["|u1", [3]]]}'
    whole = struct.pack("<IQ", len(text), 19) + text + np.array([1.5, 2.5]).tobytes() + bytes([7, 8, 9])
    for at in range(len(whole) - 1):
        here._socket.sendall(whole[at : at + 1])
        assert there.take() is None
    here._socket.sendall(whole[-1:])
    said = there.take()
    assert said.topic == "saved"
    assert [array.tolist() for array in said.arrays] == [[1.5, 2.5], [], [7, 8, 9]]
    here.say("next")
    here.say("last", {}, [np.arange(3)])
    assert there.take().topic == "next"
    assert there.hear().topic == "last"
    assert there.take() is None
    here.close()
    with pytest.raises(LinkClosed, match="gone"):
        there.take()


def test_a_length_that_cannot_be_ours_is_refused_before_it_is_allocated(ends):
    here, there = ends
    here._socket.sendall(struct.pack("<IQ", MAX_JSON + 1, 0))
    with pytest.raises(LinkClosed, match="not one of ours"):
        there.hear()


GARBAGE = [b"\xff\xfe not json", b"[1, 2]", b"{}", b'{"topic": "a", "body": {}, "arrays": 3}']


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_closes_the_link_and_nothing_else(garbage, ends):
    here, there = ends
    here._socket.sendall(struct.pack("<IQ", len(garbage), 0) + garbage)
    with pytest.raises(LinkClosed, match="not one of ours"):
        there.hear()


def test_arrays_of_another_size_than_said_are_refused_before_they_are_allocated(ends):
    here, there = ends
    text = b'{"topic": "a", "body": {}, "arrays": [["<f8", [1000000, 1000000]]]}'
    here._socket.sendall(struct.pack("<IQ", len(text), 8) + text)
    with pytest.raises(LinkClosed, match="not of the size"):
        there.hear()


def test_the_pair_is_not_inherited_by_chance():
    link, theirs = Link.pair()
    assert not theirs.get_inheritable()
    assert not os.get_inheritable(link.fileno())
    link.close()
    theirs.close()
