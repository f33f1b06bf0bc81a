"""The graph is the program: runtimes and plans know fragments by their roles, and none by its name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from walking import ROOT, ids, strings, words

FRAGMENTS = ("env", "act", "learn", "grad", "apply", "replay")
STREAMS = ("timestep", "action", "unroll", "params", "gradients", "batch")
ROLES = ("step", "map", "store", "watch")
"""Those that are no fragment's name as well. A fragment's role is asked what it does, not what it is called."""

KNOWN = {"roles": "a role's own file", "named.py": "plans from the literature are written in the names of their loops"}
"""Where names may be, and why."""

NAME = re.compile(rf"({'|'.join(FRAGMENTS + STREAMS + ROLES)})([./][\w*./]+)?")
EXPRESSION = re.compile(rf"[\w.*+|()@:\s-]*\b({'|'.join(FRAGMENTS)})\b[\w.*+|()@:\s-]*")

FILES = sorted(
    path
    for path in [*(ROOT / "runtimes").rglob("*.py"), *(ROOT / "plans").glob("*.py")]
    if not KNOWN.keys() & {path.parent.name, path.name}
)


def a_name(text: str) -> bool:
    """Whether a string is the name of a fragment, stream or role (``act``, ``act.red``, ``unroll/0``), or a plan."""
    plan = any(sign in text for sign in "+|*") and EXPRESSION.fullmatch(text) is not None
    return NAME.fullmatch(text) is not None or plan


@pytest.mark.parametrize(
    "text", ["act", "act.red", "act.*", "unroll/0", "params.mine/1", "env+act", "env*2 | act", "step"]
)
def test_what_is_a_name(text: str) -> None:
    assert a_name(text)


@pytest.mark.parametrize("text", ["action_mask", "a learn step was made", "acting", "steps", "learned", "+", ""])
def test_what_is_none(text: str) -> None:
    assert not a_name(text)


@pytest.mark.parametrize("path", FILES, ids=ids)
def test_no_fragment_stream_or_role_is_known_by_its_name(path: Path) -> None:
    found = [f"line {line}: {text!r}" for line, text in strings(path) if a_name(text)]
    assert not found, f"{ids(path)} knows {', '.join(found)}: ask the graph, or the fragment's role"


@pytest.mark.parametrize("path", FILES + sorted((ROOT / "runtimes" / "roles").glob("*.py")), ids=ids)
def test_synchrony_is_asked_and_not_known(path: Path) -> None:
    """Which of the two it is is known where it is made, and where what was asked for is resolved."""
    if path.name == "synchrony.py" or path.parent.name == "prepare":
        return
    found = [f"line {line}" for line, name in words(path) if name in {"lockstep", "Lockstep", "BoundedLag"}]
    assert not found, f"{ids(path)}, {', '.join(found)}: ask the Synchrony object what is to be done"
