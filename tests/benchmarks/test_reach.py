"""The benchmark of reach runs, with few producers. No test here asserts a speed."""

from __future__ import annotations

import pytest

from benchmarks import reach


def test_producers_and_readers_of_params(capsys: pytest.CaptureFixture[str]) -> None:
    """Ends with 1 where anything was lost, or the ledger does not balance."""
    assert reach.main(["--quick"]) == 0
    told = capsys.readouterr().out
    assert told.count("\n| 40 |") == 3


def test_a_limit_that_is_too_low_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        reach.main(["--counts", "100000000"])
    assert "hard limit" in capsys.readouterr().err
