"""Loading code from a file that nobody but this user, or root, can have written or can exchange.

Three things must hold. The file and its folder are the user's own, and nobody else may write to them. Nobody else can
put another folder in this one's place: each folder on the way to it, and each link, is the user's or root's, and closed
to others. And what is loaded is what was looked at: the folder is held open meanwhile, and the file is loaded through
it.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class NotOwn(Exception):
    """Whose it is, and what to do."""


def load(path: Path) -> ctypes.CDLL:
    """The library in this file, whose folder is checked too. Raises NotOwn, and OSError where it cannot be loaded."""
    with own_folder(path.parent) as folder:
        descriptor = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            seen = os.fstat(descriptor)
            _require_own(path, seen)
            _require_whole(path, os.pread(descriptor, 64, 0), seen.st_size)
        finally:
            os.close(descriptor)
        # Through the folder, in which only the user can exchange files, and not by the file's own descriptor: dlopen
        # takes a name that it knows for the library that it knows, and the number may have been another file's.
        through = f"/proc/self/fd/{folder}/{path.name}"
        return ctypes.CDLL(through if os.path.exists(through) else str(path))


@contextmanager
def own_folder(folder: Path) -> Iterator[int]:
    """A descriptor of a folder, which is the user's alone. Raises NotOwn where it is not, or may not stay so."""
    _require_safe_way(folder.absolute())
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _require_own(folder, os.fstat(descriptor))
        yield descriptor
    finally:
        os.close(descriptor)


def _require_own(path: Path, seen: os.stat_result) -> None:
    if seen.st_uid != os.geteuid() or seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NotOwn(_words(path, seen))


def _require_whole(path: Path, head: bytes, size: int) -> None:
    """Raise OSError for a library that is cut off: dlopen may find out by a signal that ends the process."""
    if sys.platform != "linux":
        return  # other systems have other kinds of libraries
    if len(head) < 64 or head[:4] != b"\x7fELF":
        raise OSError(f"{path} is no library: it has {size} bytes, and begins with {head[:4]!r}")
    if head[4:6] == b"\x02\x01":  # 64 bits, little end first; the table of its sections comes last
        start, (each, count) = struct.unpack_from("<Q", head, 0x28)[0], struct.unpack_from("<HH", head, 0x3A)
        if size < start + each * count:
            raise OSError(f"{path} is cut off: it has {size} bytes of {start + each * count}")


def _require_safe_way(path: Path) -> None:
    """Nobody else can exchange ``path``: by moving a folder on the way to it, or by turning a link elsewhere."""
    for place in (path, *path.parents):
        seen = place.lstat()
        if seen.st_uid not in (0, os.geteuid()):
            raise NotOwn(_words(place, seen))
        if stat.S_ISLNK(seen.st_mode):
            _require_safe_way(place.parent / place.readlink())
        elif _others_can_exchange(seen):
            raise NotOwn(_words(place, seen))


def _others_can_exchange(seen: os.stat_result) -> bool:
    """Whether somebody else can rename what is in a folder; where it is sticky, as /tmp is, only what is theirs.

    A user's own group is let in, to the user's own folders: with a umask of 002, as some distributions have it, a home
    and its .cache are open to a group that has the user alone in it, and root's, in a container, to the group root.
    """
    if seen.st_mode & stat.S_ISVTX:
        return False
    own_group = seen.st_uid == os.geteuid() and seen.st_gid == os.getegid()
    return bool(seen.st_mode & (stat.S_IWOTH if own_group else stat.S_IWOTH | stat.S_IWGRP))


def _words(path: Path, seen: os.stat_result) -> str:
    whose = f"user {seen.st_uid}'s, group {seen.st_gid}'s, mode {stat.S_IMODE(seen.st_mode):o}"
    return (
        f"{path} is not this user's alone ({whose}), and code is only loaded from where nobody else can put it: "
        f"chmod go-w it, or name another cache with XDG_CACHE_HOME=… (in a container, map root, whose / should be)"
    )
