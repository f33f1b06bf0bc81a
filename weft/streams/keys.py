"""The keys of a tcp channel: made when the channel is created, and handed on only as a descriptor.

A channel has two pairs of CURVE keys: the side that binds proves to be this channel with the first, the side that
connects with the second. They lie in a memfd: it has no name, so another user cannot open it, nothing of it is in a
command line, an environment variable, a file or a log, and it is gone with the last process that holds it.
"""

from __future__ import annotations

import fcntl
import os
from typing import NamedTuple

import zmq

from weft.core.errors import ChannelError, ConfigError

_LENGTH = 40  # of a key, in ZeroMQ's text form


class Keys(NamedTuple):
    """Two pairs, in ZeroMQ's text form. Its repr tells none of them."""

    server_public: bytes
    server_secret: bytes
    client_public: bytes
    client_secret: bytes

    def __repr__(self) -> str:
        return "Keys(…)"


def check_curve(asked_by: str) -> None:
    """Raise ConfigError where this ZeroMQ cannot encrypt: there is no tcp channel without keys."""
    if not zmq.has("curve"):
        raise ConfigError(
            f"{asked_by}: tcp needs CURVE, and ZeroMQ {zmq.zmq_version()} of pyzmq {zmq.__version__} was built without "
            "it. A socket without keys is not opened: other users of this machine could read and write it. Install a "
            "pyzmq that has it (the wheels on PyPI do), or use the channel 'shm' or 'ipc'."
        )


def make_keys(name: str) -> int:
    """New keys for the channel ``name``; the descriptor of the memfd that holds them. The caller closes it."""
    check_curve(f"channel {name!r}")
    return keep_keys(b"".join(zmq.curve_keypair() + zmq.curve_keypair()), name)


def keep_keys(keys: bytes, name: str) -> int:
    """Keys that another host has made, in a memfd of this one; its descriptor, which the caller closes."""
    if len(keys) != 4 * _LENGTH:
        raise ChannelError(f"channel {name!r}: {len(keys)} bytes are not the keys of a channel.")
    if not hasattr(os, "memfd_create"):
        raise ChannelError(f"channel {name!r}: keys need Linux's memfd.")
    fd = os.memfd_create("weft-keys", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, keys)
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def read_keys(fd: int, name: str) -> Keys:
    """The keys behind a descriptor. Raises ChannelError where this process has none there."""
    try:
        text = os.pread(fd, 4 * _LENGTH + 1, 0)
    except OSError as error:
        text, why = b"", str(error)
    else:
        why = f"{len(text)} bytes"
    if len(text) != 4 * _LENGTH:
        raise ChannelError(
            f"channel {name!r}: descriptor {fd} holds no keys in this process ({why}). Start the process with "
            "pass_fds=created.fds, and keep the channel open meanwhile."
        )
    return Keys(*(text[at : at + _LENGTH] for at in range(0, 4 * _LENGTH, _LENGTH)))
