"""What a worker tells the launcher of an error: no process."""

from __future__ import annotations

import pytest

from weft.core.errors import ChannelError, EnvironmentFault, EnvironmentRaised
from weft.core.trees import tree_map, unflatten
from weft.runtimes.workers.worker import error_report

WHERE = "in fragment learn, at learn step 7"


def told(raising) -> dict[str, str]:
    with pytest.raises(Exception) as raised:  # noqa: PT011
        raising()
    return error_report(raised.value, WHERE)


def users(error: Exception):
    raise error


def test_what_the_users_code_raised_comes_with_the_place_and_their_frames_alone():
    said = told(lambda: tree_map(lambda _: users(KeyError("my mistake")), (1,)))
    assert said["text"] == f"{WHERE}: KeyError: 'my mistake'"
    assert "core/trees.py" not in said["traceback"]
    assert said["traceback"].startswith("Traceback")
    assert "raise error" in said["traceback"]
    assert said["traceback"].endswith("KeyError: 'my mistake'\n")


def test_of_a_long_message_the_first_line_and_all_of_it_in_the_traceback():
    said = told(lambda: users(ValueError("shapes differ\nleft: 3\nright: 4")))
    assert said["text"] == f"{WHERE}: ValueError: shapes differ"
    assert "right: 4" in said["traceback"]
    assert told(lambda: users(RuntimeError()))["text"] == f"{WHERE}: RuntimeError"


def test_an_environments_fault_keeps_its_own_words():
    def raises():
        try:
            users(ZeroDivisionError("by nothing"))
        except ZeroDivisionError as error:
            raise EnvironmentRaised("theirs:Env", 3, 150, "step", error) from error

    said = told(raises)
    where = "environment 'theirs:Env': number 3 raised ZeroDivisionError in step at its step 150"
    assert said["text"] == f"{where}: by nothing"
    assert said["traceback"].endswith("ZeroDivisionError: by nothing\n")
    assert "EnvironmentRaised" not in said["traceback"]
    assert told(lambda: users(EnvironmentFault("it lies"))) == {
        "error": "EnvironmentFault",
        "text": "it lies",
        "traceback": "",
    }


def test_another_error_of_ours_comes_with_the_place_and_no_traceback():
    said = told(lambda: users(ChannelError("commit without reserve")))
    assert (said["text"], said["traceback"]) == (f"{WHERE}: commit without reserve", "")


def test_a_bug_of_ours_comes_with_all_frames(monkeypatch):
    monkeypatch.setattr("weft.core.theirs._users", lambda file: False)  # this test is not Weft's
    said = told(lambda: unflatten((1,), []))
    assert said["text"] == f"{WHERE}: ValueError: unflatten: 0 leaves came, and the tree has 1"
    assert "core/trees.py" in said["traceback"]
