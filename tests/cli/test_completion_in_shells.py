"""``weft completion`` in the shells themselves: each loads the script and completes, as after a press of Tab.

Slow, and needs Debian's zsh and fish; without them they say so. What the scripts hold is tested without a shell beside.
"""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from weft.cli.completion import script

MISSING = [name for name in ("bash", "zsh", "fish") if shutil.which(name) is None]
NEEDS = f"slow: needs {' and '.join(MISSING)}: apt-get install zsh fish"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=NEEDS)]

TYPED = {
    "weft trai": "train",
    "weft train --lockst": "train --lockstep",
    "weft eval fir": "eval first",
    "weft train pp": "train ppo",
    "weft train ppo CartPole-v1 --plan inl": "train ppo CartPole-v1 --plan inline",
    "weft train ppo CartPole-v1 --run fir": "train ppo CartPole-v1 --run first",
    "weft completion zs": "completion zsh",
}
"""What is typed before Tab, and the arguments that the command then has."""


class Terminal:
    """An interactive shell in a terminal of its own, while inside."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._command, self._folder = command, folder
        self.seen = ""

    def __enter__(self) -> Terminal:
        self._near, far = pty.openpty()
        variables = {**os.environ, "TERM": "dumb", "HOME": str(self._folder), "PS1": "> "}
        self._shell = subprocess.Popen(
            self._command, cwd=self._folder, env=variables, stdin=far, stdout=far, stderr=far, start_new_session=True
        )
        os.close(far)
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
        os.close(self._near)

    def type(self, text: str) -> None:
        os.write(self._near, text.encode())

    def wait(self, pattern: str, seconds: float = 20.0) -> re.Match[str]:
        """What was printed since, up to ``pattern``."""
        deadline = time.monotonic() + seconds
        while not (found := re.search(pattern, self.seen)):
            ready, _, _ = select.select([self._near], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no {pattern!r} in {self.seen!r}"
            self.seen += os.read(self._near, 65536).decode(errors="replace")
        self.seen = self.seen[found.end() :]
        return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "runs" / "first").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_tab_completes(shell: str, folder: Path) -> None:
    """The completed line is then run: ``weft`` is a function there that prints its arguments."""
    (folder / "completion").write_text(script(shell))
    load = "autoload -U compinit; compinit -u; " if shell == "zsh" else ""
    start = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}[shell]
    with Terminal(start, folder) as terminal:
        terminal.type(f"{load}source ./completion; weft() {{ echo \"GOT[$*]\"; }}; echo rea''dy\n")
        terminal.wait("ready")
        for typed, expected in TYPED.items():
            terminal.type(typed + "\t")
            time.sleep(0.5)  # a newline that came with the Tab would be taken for pasted
            terminal.type("\n")
            assert terminal.wait(r"GOT\[(.*?)\]").group(1).strip() == expected


def test_fish_completes(folder: Path) -> None:
    (folder / "completion").write_text(script("fish"))
    for typed, expected in TYPED.items():
        asked = ["fish", "--no-config", "-c", 'source ./completion; complete -C "$argv"', "--", typed]
        ended = subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=True)
        assert ended.stderr == ""
        offered = [line.partition("\t")[0] for line in ended.stdout.splitlines()]
        assert offered == [expected.rpartition(" ")[2]], typed
