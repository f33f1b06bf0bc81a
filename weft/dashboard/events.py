"""Server-sent events: what has changed since a page looked last, a few times a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from weft.dashboard.answers import picture_of
from weft.dashboard.library import Library

LOOK_SECONDS = 1.0
"""Between two looks at the folders for one page."""

QUIET_SECONDS = 10.0
"""After so long without news a comment is sent, so that a connection that is gone is noticed."""

MOST_LISTENERS = 32


def listen(library: Library, query: Mapping[str, Sequence[str]], ended: threading.Event) -> Iterator[bytes]:
    """Events for one page until ``ended``: ``runs``, the list where it changed; ``picture``, of the run that is
    looked at; ``records``, the sizes of the files of records of those whose curves are shown, where they have grown.
    """
    looked_at = (query.get("run") or [""])[0]
    curves = list(query.get("with") or ())[:64]
    narrow = (query.get("narrow") or ["0"])[0] == "1"
    sent: dict[str, bytes] = {}
    said_at = time.monotonic()
    yield b"retry: 2000\n\n"
    while not ended.is_set():
        for name, content in _looks(library, looked_at, curves, narrow):
            encoded = msgspec.json.encode(content)
            if sent.get(name) != encoded:
                sent[name] = encoded
                said_at = time.monotonic()
                yield b"event: " + name.encode() + b"\ndata: " + encoded + b"\n\n"
        if time.monotonic() - said_at > QUIET_SECONDS:
            said_at = time.monotonic()
            yield b": still here\n\n"
        ended.wait(LOOK_SECONDS)


def _looks(library: Library, looked_at: str, curves: list[str], narrow: bool) -> Iterator[tuple[str, Any]]:
    yield "runs", library.overviews()
    found = library.run(looked_at) if looked_at else None
    if found is not None:
        yield "picture", picture_of(found, library.locked(), narrow=narrow)
    sizes = {}
    for run_id in curves:
        run = library.run(run_id)
        if run is not None:
            with suppress(OSError):
                status = run.records.path.stat()
                sizes[run_id] = [status.st_ino, status.st_size]
    if curves:
        yield "records", sizes
