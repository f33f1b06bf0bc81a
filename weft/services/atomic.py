"""Files that are either wholly there or not at all, whatever is killed and whenever.

The order is what makes it hold after a power loss: the data reach the disk before the name points at them, and the name
reaches the disk before the call returns.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

TEMPORARY = ".tmp"
_PIECE = 16 * 2**20  # bytes for one system call: bounds what an interrupt has to wait for


def write_atomic(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write ``pieces`` one after the other to ``path``, replacing what was there; blocks until it is on the disk.

    A temporary file beside it (``.NAME.tmp``) is written, synced, renamed, and the folder synced. One writer per
    path. On an error the temporary file is removed and ``path`` is as before; raises OSError.
    """
    temporary = path.with_name(f".{path.name}{TEMPORARY}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            for piece in pieces:
                _write_all(descriptor, memoryview(piece))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Put a folder's names on the disk: files made, renamed or removed in it. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot, and need not
            raise
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: memoryview) -> None:
    data = data.cast("B") if data.nbytes else data[:0]
    while len(data):
        data = data[os.write(descriptor, data[:_PIECE]) :]
