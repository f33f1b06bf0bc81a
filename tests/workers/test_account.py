"""The account: words in memory that another process counts in, and that outlive it."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from weft.runtimes.workers.counting.account import Account, OfLane, OfLearner, OfRun, OfWorker

COUNT = """
import os, signal, sys
from weft.runtimes.workers.counting.account import Account, OfLane, OfRun
account = Account(3, 2, 1, fd=int(sys.argv[1]))
assert account.run[OfRun.LIMIT] == 7
account.lanes[2][OfLane.PRODUCED] += 5
assert "jax" not in sys.modules
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_worker_counted_is_there_after_it_was_killed():
    account = Account(3, 2, 1)
    account.run[OfRun.LIMIT] = 7
    child = subprocess.run([sys.executable, "-c", COUNT, str(account.fd)], pass_fds=[account.fd], timeout=60)
    assert child.returncode == -9
    assert account.lanes[:, OfLane.PRODUCED].tolist() == [0, 0, 5]
    account.close()


def test_rows_do_not_overlap_and_begin_at_zero():
    account = Account(2, 3, 2)
    rows = [account.run, *account.lanes, *account.sides, *account.learners]
    assert len(rows) == 1 + 2 + 3 + 2
    for value, row in enumerate(rows, start=1):
        assert not row.any()
        row[:] = value
    assert [int(row[0]) for row in rows] == list(range(1, 9))
    assert rows[0].nbytes == 64, "a cache line each"
    account.close()


def test_every_word_has_a_place():
    account = Account(1, 1, 1)
    for row, words in (
        (account.run, OfRun),
        (account.lanes[0], OfLane),
        (account.sides[0], OfWorker),
        (account.learners[0], OfLearner),
    ):
        assert max(words) < row.shape[0]
        assert row.dtype == np.int64
    account.close()


def test_it_closes_its_descriptor_once():
    account = Account(1, 1, 1)
    fd = account.fd
    account.close()
    account.close()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)
    account.run[OfRun.STOP] = 1  # the words stay usable for who still holds them
