"""The limit of file descriptors: raised where it may be, and named where it may not."""

from __future__ import annotations

import resource

import pytest

from weft.core.descriptors import need_descriptors
from weft.core.errors import ConfigError


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What the limit was set to; it begins with 1,024 of 4,096."""
    set_to = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda which: set_to[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda which, both: set_to.append(both))
    return set_to


def test_enough_stays_as_it_is(limits: list[tuple[int, int]]) -> None:
    need_descriptors(500, "plan 'a'")
    assert limits == [(1024, 4096)]


def test_raised_as_far_as_needed(limits: list[tuple[int, int]]) -> None:
    need_descriptors(2000, "plan 'a'")
    assert 2000 < limits[-1][0] < 4096
    assert limits[-1][1] == 4096


def test_too_few_of_the_system(limits: list[tuple[int, int]]) -> None:
    with pytest.raises(ConfigError, match=r"plan 'a' needs 15,000 .* more than 4,096 .*ulimit -Hn"):
        need_descriptors(15000, "plan 'a'")
    assert limits == [(1024, 4096)]
