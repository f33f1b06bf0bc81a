"""``weft train --detach``: the run in a process of its own, which goes on when the terminal that started it is gone.

The child trains as ``weft train`` does, in a session of its own, and prints into a file that nobody else sees until the
run has begun: its folder is made and locked, its workers are up. From then on it prints into ``logs/head.log`` of that
folder, where what came before is copied to, and the parent, told through a pipe, leaves. A child that ends before that
has said why: the parent prints it, and ends with its exit code.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from weft.core.errors import RunError
from weft.runtimes.prepare.settings import Settings

HEAD = "head"
"""The name, among a run's logs, of what the run itself prints."""

_PROGRAM = (
    "import json, sys; word, path, *arguments = sys.argv[1:]; sys.path[:] = json.loads(path); "
    "from weft.cli.detached import main; sys.exit(main(int(word), arguments))"
)


def start(arguments: Sequence[str], root: Path, *, as_json: bool = False) -> int:
    """Start ``weft train`` with these arguments, wait until the run has begun, and say where it is.

    Gives the exit code: 0 where it has begun, or was finished before; else its own. Ctrl-C ends it while it begins.
    """
    heard, word = os.pipe()
    with tempfile.TemporaryFile() as printed, os.fdopen(heard) as words:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(word), json.dumps(sys.path), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            pass_fds=[word],
            start_new_session=True,  # no terminal, so that neither its Ctrl-C nor its end is the run's
        )
        os.close(word)
        said = _await(process, words)
        if not said:
            return _never_began(process, printed)
    begun = json.loads(said)
    begun["process"] = process.pid
    process.returncode = 0  # from here on it is not ours to wait for
    print(json.dumps(begun) if as_json else _how_to_follow(begun, root), flush=True)
    return 0


def _await(process: subprocess.Popen[bytes], words: IO[str]) -> str:
    """What the child says once its run has begun; nothing where it ends before. Ctrl-C is passed on to it."""
    while True:
        try:
            return words.readline()
        except KeyboardInterrupt:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)


def _never_began(process: subprocess.Popen[bytes], printed: IO[bytes]) -> int:
    code = process.wait()
    printed.seek(0)
    sys.stderr.write(printed.read().decode(errors="replace"))
    if code < 0:
        how = signal.Signals(-code).name
        raise RunError(f"the run did not begin: its process was ended by {how}. What it said is above, if anything.")
    return code


def _how_to_follow(begun: dict[str, Any], root: Path) -> str:
    run = shlex.quote(begun["run"]) + ("" if root == Settings.root else f" --root {shlex.quote(str(root))}")
    rows = {
        f"weft status {run}": "how far it is",
        f"weft logs {run} --follow": "what it prints",
        f"weft watch {run}": "in a browser",
        f"weft stop {run}": "have it save, and end",
    }
    wide = max(map(len, rows))
    lines = [f"run {begun['run']!r} has begun, in process {begun['process']}; its folder is {begun['folder']}"]
    return "\n".join([*lines, *(f"  {command:<{wide}}  {what}" for command, what in rows.items())])


def main(word: int, arguments: list[str]) -> int:
    """The child: train, and say through the descriptor ``word`` when the run has begun."""
    from weft.cli import train
    from weft.cli.main import reported

    os.set_inheritable(word, False)  # a worker that had it would keep the parent waiting
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a file, as ``start`` opens them

    def begun(folder: Path) -> None:
        _print_into(folder / "logs")
        os.write(word, json.dumps({"run": folder.name, "folder": str(folder)}).encode() + b"\n")
        os.close(word)

    return reported(lambda: train.main("train", arguments, begun))


def _print_into(logs: Path) -> None:
    """Have this process print into ``head.log`` from now on, after what it has printed so far. Raises RunError."""
    sys.stdout.flush()
    sys.stderr.flush()
    before = os.pread(1, os.fstat(1).st_size, 0)
    try:
        logs.mkdir(exist_ok=True)
        log = os.open(logs / f"{HEAD}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.write(log, before)
    except OSError as error:
        raise RunError(f"cannot write {logs / HEAD}.log: {error.strerror}. The run prints there.") from error
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
