"""The account: words in memory that another process counts in, and that outlive it."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from weft.runtimes.workers.counting.account import DROPPED, Account, Fate, OfRun, OfSide, OfWire

COUNT = """
import os, signal, sys
from weft.runtimes.workers.counting.account import Account, Fate, OfRun, OfWire
account = Account(3, 2, fd=int(sys.argv[1]))
assert account.run[OfRun.LIMIT] == 7
account.wires[1][OfWire.SENT] += 5
account.sides[2][Fate.TRAINED] += 6
assert "jax" not in sys.modules
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_worker_counted_is_there_after_it_was_killed():
    account = Account(3, 2)
    account.run[OfRun.LIMIT] = 7
    child = subprocess.run([sys.executable, "-c", COUNT, str(account.fd)], pass_fds=[account.fd], timeout=60)
    assert child.returncode == -9
    assert account.wires[:, OfWire.SENT].tolist() == [0, 5]
    assert account.sides[:, Fate.TRAINED].tolist() == [0, 0, 6]
    account.close()


def test_rows_do_not_overlap_and_begin_at_zero():
    account = Account(3, 2)
    rows = [account.run, *account.sides, *account.wires]
    assert len(rows) == 1 + 3 + 2
    for value, row in enumerate(rows, start=1):
        assert not row.any()
        row[:] = value
    assert [int(row[0]) for row in rows] == list(range(1, 7))
    assert all(row.nbytes % 64 == 0 for row in rows), "whole cache lines"
    account.close()


def test_every_word_has_a_place_of_its_own():
    account = Account(1, 1)
    for row, words in (
        (account.run, list(OfRun)),
        (account.sides[0], [*OfSide, *Fate]),
        (account.wires[0], list(OfWire)),
    ):
        places = [int(word) for word in words]
        assert len(set(places)) == len(places)
        assert max(places) < row.shape[0]
        assert row.dtype == np.int64
    account.close()


def test_a_sample_is_trained_on_or_added_or_dropped_for_one_reason():
    assert {*DROPPED, Fate.TRAINED, Fate.ADDED} == set(Fate)
    assert len(set(DROPPED)) == len(DROPPED)


def test_it_closes_its_descriptor_once():
    account = Account(1, 1)
    fd = account.fd
    account.close()
    account.close()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)
    account.run[OfRun.STOP] = 1  # the words stay usable for who still holds them
