"""stdin, stdout and stderr as a command needs them: there, and able to take any text."""

from __future__ import annotations

import codecs
import faulthandler
import io
import os
import sys

PLAIN = {"─": "-", "│": "|", "→": ">", "←": "<", "–": "-", "·": ".", "×": "x", "±": "~", "…": ".", "▼": "v", "▲": "^"}
"""What stands for a character that a terminal's encoding lacks; one for one, so that drawings keep their shape."""


def prepare_streams() -> None:
    """Open what was closed (``weft train … >&- 2>&-``) on nothing, and let no text fail for want of a character.

    A closed descriptor would otherwise be given to the next file that is opened, and a library that prints would
    write into a checkpoint. A crash in C code (an environment's) leaves the Python stacks on stderr.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))  # noqa: SIM115
    if not faulthandler.is_enabled():
        faulthandler.enable(2)
    codecs.register_error("weft.plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="weft.plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = error.object[error.start : error.end]
    return "".join(PLAIN.get(char, "+" if "\u2500" <= char <= "\u257f" else "?") for char in found), error.end
