"""Channels in memory: ``shm`` between processes, through a file descriptor, and ``inproc`` within one process.

Shared memory is a memfd: it has no name that could be left behind, it is reached only through its descriptor, and the
kernel frees it with the last process that has it. Its address is the descriptor's number, which is the same in a child
that was started with ``pass_fds``.
"""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from weft.core.delivery import Delivery
from weft.core.errors import ChannelError
from weft.streams.bell import Bell
from weft.streams.channel import Arrays, ChannelSpec
from weft.streams.ring import Ring
from weft.streams.ring_reader import LatestReader, RingReader
from weft.streams.ring_writer import RingWriter


class RingCreated:
    """See ``channel.Created``: holds the memory of a ring."""

    def __init__(self, spec: ChannelSpec, ring: Ring, fds: tuple[int, ...], let_go: Callable[[], None]) -> None:
        self.spec, self.fds = spec, fds
        self._ring, self._let_go = ring, let_go
        self._final: int | None = None

    @property
    def committed(self) -> int:
        """See ``channel.Created``; after close, as it was then."""
        return self._ring.committed if self._final is None else self._final

    def close(self) -> None:
        """Free the memory once no end uses it. May be called twice."""
        if self._final is None:
            self._final = self._ring.committed
            self._ring.close()
            self._let_go()


# shm


def create_shm(spec: ChannelSpec) -> RingCreated:
    """Allocate shared memory for a channel. The result owns the descriptor, and closes it."""
    if not hasattr(os, "memfd_create"):
        raise ChannelError(f"channel {spec.name!r}: shared memory needs Linux's memfd.")
    nbytes = Ring.nbytes(spec)
    fd = os.memfd_create(f"weft-{spec.name}"[:200], os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, nbytes)
        # No process can shrink the memory under another end's mapping, which would kill that end with SIGBUS.
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        buffer = mmap.mmap(fd, nbytes)
        Ring.lay_out(buffer, spec)
        addressed = replace(spec, address=f"fd:{fd}")
        return RingCreated(addressed, Ring(buffer, addressed), (fd,), lambda: os.close(fd))
    except BaseException:
        os.close(fd)
        raise


def _map_shm(spec: ChannelSpec) -> mmap.mmap:
    """Map the memory. The mapping has its own descriptor, so the one in the address may be closed later."""
    scheme, _, number = spec.address.partition(":")
    if scheme != "fd" or not number.isdigit():
        raise ChannelError(
            f"channel {spec.name!r}: {spec.address!r} is no address of shared memory. Use create() first."
        )
    try:
        nbytes = os.fstat(int(number)).st_size
        return mmap.mmap(int(number), nbytes)
    except (OSError, ValueError) as error:
        raise ChannelError(
            f"channel {spec.name!r}: descriptor {number} is not shared memory in this process ({error}). "
            "Start the process with pass_fds=created.fds, and keep the channel open meanwhile."
        ) from error


# inproc

_TABLE: dict[str, mmap.mmap] = {}
_NUMBERS = itertools.count()


def create_inproc(spec: ChannelSpec) -> RingCreated:
    """Allocate memory for a channel between threads of this process."""
    buffer = mmap.mmap(-1, Ring.nbytes(spec))
    Ring.lay_out(buffer, spec)
    key = f"memory:{next(_NUMBERS)}"
    addressed = replace(spec, address=key)
    _TABLE[key] = buffer
    return RingCreated(addressed, Ring(buffer, addressed), (), lambda: _TABLE.__delitem__(key))


def _find_inproc(spec: ChannelSpec) -> mmap.mmap:
    if spec.address not in _TABLE:
        raise ChannelError(
            f"channel {spec.name!r}: this process has no channel at {spec.address!r}. Use create() first, in the same "
            "process; between processes the scheme is 'shm'."
        )
    return _TABLE[spec.address]


# Both


def open_writer(spec: ChannelSpec, bell: Bell, readers: Sequence[Bell]) -> RingWriter:
    """The writing end; continues after the last committed place."""
    return RingWriter(_open(spec), bell, readers)


def open_reader(spec: ChannelSpec, bell: Bell, writer: Bell | None) -> RingReader | LatestReader:
    """The reading end; continues after the last released place, or with the newest for LATEST."""
    if spec.delivery is Delivery.LATEST:
        return LatestReader(_open(spec), bell)
    return RingReader(_open(spec), bell, writer)


def open_slots(spec: ChannelSpec) -> list[Arrays]:
    """The arrays of every slot, for one that is neither end: the writer tells it where, and when, it may write."""
    ring = _open(spec)
    return [ring.arrays(place) for place in range(spec.slots)]


def _open(spec: ChannelSpec) -> Ring:
    return Ring(_map_shm(spec) if spec.scheme == "shm" else _find_inproc(spec), spec)
