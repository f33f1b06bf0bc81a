"""Where the sockets of a channel are: on one address with keys, or in the kernel without a name.

The address is loopback's, unless the caller names another of this machine's, for channels between hosts
(``create_between``). The host of the end that connects has the address and the keys from the other (``adopt``).

The launcher makes the listening socket and keeps it for as long as the channel: no other program can take its place
while an end is dead, and peers that connect meanwhile wait for the next one.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
import tempfile
from dataclasses import replace
from typing import NamedTuple

from weft.core.delivery import Delivery
from weft.core.errors import ChannelError, ConfigError
from weft.streams.channel import ChannelSpec, Created
from weft.streams.keys import Keys, keep_keys, make_keys, read_keys

_BACKLOG = {Delivery.BLOCK: 16, Delivery.LATEST: 128}  # connections that wait to be accepted: one writer, or readers
_NAMELESS = "nameless"


class Address(NamedTuple):
    """``127.0.0.1:PORT/TOKEN/LISTENER,KEYS`` over tcp, ``nameless/TOKEN/LISTENER,PATH`` over ipc.

    The token identifies the channel; it is no secret. The last three are descriptors, which a process inherits.
    """

    host: str  # empty over ipc
    port: int
    token: str
    listener: int  # the listening socket
    guard: int  # tcp: the memfd of its keys (``keys.py``); ipc: the socket's place, which has lost its name

    def __str__(self) -> str:
        place = f"{self.host}:{self.port}" if self.host else _NAMELESS
        return f"{place}/{self.token}/{self.listener},{self.guard}"

    @property
    def bound(self) -> str:
        """What the side that binds tells ZeroMQ, beside the listening socket."""
        return f"tcp://{self.host}:{self.port}" if self.host else f"ipc://{_NAMELESS}-{self.token}"

    @property
    def endpoint(self) -> str:
        """What the side that connects tells ZeroMQ."""
        return self.bound if self.host else f"ipc:///proc/self/fd/{self.guard}"

    def keys(self, name: str) -> Keys | None:
        """The channel's keys; None over ipc, where nobody can connect who was not given the descriptor."""
        return read_keys(self.guard, name) if self.host else None


def check_loopback(host: str, name: str) -> None:
    """Refuse a host that other machines could reach."""
    if not _is_one(host) or not ipaddress.IPv4Address(host).is_loopback:
        raise ConfigError(
            f"channel {name!r}: {host!r} is not a loopback address. Only a run on several hosts binds to another, and "
            "says which; on this machine, leave the address empty."
        )


def check_one(host: str, name: str) -> None:
    """Refuse what is not the address of one interface: every interface (0.0.0.0), a group, a name."""
    if not _is_one(host):
        raise ConfigError(
            f"channel {name!r}: {host!r} is not the IPv4 address of one interface, which a channel between hosts binds "
            "to."
        )


def _is_one(host: str) -> bool:
    try:
        address = ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return not (address.is_unspecified or address.is_multicast or host == "255.255.255.255")


def parse_address(text: str, name: str) -> Address:
    """Read an address that ``create`` filled in."""
    place, _, rest = text.partition("/")
    token, _, fds = rest.partition("/")
    host, _, port = place.rpartition(":")
    if host:
        check_one(host, name)  # without its keys, which are behind a descriptor, it is of no use
    numbers = fds.split(",")
    known = (host and port.isdigit()) or place == _NAMELESS
    if not known or not token or len(numbers) != 2 or not all(number.isdigit() for number in numbers):
        raise ChannelError(f"channel {name!r}: {text!r} is no address of a socket. Use create() first.")
    listener, guard = map(int, numbers)
    return Address(host, int(port) if host else 0, token, listener, guard)


class SocketCreated:
    """See ``channel.Created``: the listening socket of a channel, and its keys. Only the ends know what was sent."""

    committed = 0

    def __init__(
        self, spec: ChannelSpec, host: str, port: int, listener: socket.socket, guard: int, token: str = ""
    ) -> None:
        address = Address(host, port, token or secrets.token_hex(8), listener.fileno(), guard)
        self.spec, self.fds = replace(spec, address=str(address)), (address.listener, guard)
        self._listener = listener

    def close(self) -> None:
        """Give the port back; may be called twice."""
        if self._listener.fileno() >= 0:
            self._listener.close()
            os.close(self.fds[1])


def create_tcp(spec: ChannelSpec) -> SocketCreated:
    """Listen on loopback, and make keys. The spec's address may name the host (``127.0.0.1``); only loopback is taken.

    Raises ConfigError for another host, and where ZeroMQ has no CURVE.
    """
    host = spec.address.partition("/")[0].partition(":")[0] or "127.0.0.1"
    check_loopback(host, spec.name)
    return _listening(spec, host, make_keys(spec.name))


def create_between(spec: ChannelSpec, interface: str, token: str = "", keys: bytes | None = None) -> SocketCreated:
    """Listen where another host can reach it: on ``interface``, an address of this machine, and no other.

    ``token`` and ``keys`` of a channel that was on a host that is gone; new ones unless given. Raises ConfigError for
    what is not one address, ChannelError where this machine does not have it.
    """
    check_one(interface, spec.name)
    return _listening(spec, interface, make_keys(spec.name) if keys is None else keep_keys(keys, spec.name), token)


class Adopted:
    """See ``channel.Created``: a channel whose listening socket is another host's. Here are its address and keys."""

    committed = 0

    def __init__(self, spec: ChannelSpec, place: str, token: str, keys: bytes) -> None:
        guard = keep_keys(keys, spec.name)
        self.fds: tuple[int, ...] = (guard,)
        self.spec = replace(spec, address=f"{place}/{token}/{guard},{guard}")
        parse_address(self.spec.address, spec.name)

    def move(self, place: str) -> None:
        """The other end has gone to another place: who opens this end from now on connects there."""
        self.spec = replace(self.spec, address="/".join([place, *self.spec.address.split("/")[1:]]))
        parse_address(self.spec.address, self.spec.name)

    def close(self) -> None:
        """Forget the keys; may be called twice."""
        if self.fds:
            os.close(self.fds[0])
            self.fds = ()


def adopt(spec: ChannelSpec, place: str, token: str, keys: bytes) -> Adopted:
    """A channel that listens at ``place`` (``HOST:PORT``) of another host, which exported ``token`` and ``keys``."""
    return Adopted(spec, place, token, keys)


def export(created: Created) -> tuple[str, str, bytes]:
    """Of a channel that listens here: place, token and keys, for ``adopt`` on another host. The keys are secret."""
    address = parse_address(created.spec.address, created.spec.name)
    return f"{address.host}:{address.port}", address.token, b"".join(read_keys(address.guard, created.spec.name))


def _listening(spec: ChannelSpec, host: str, keys: int, token: str = "") -> SocketCreated:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind((host, 0))
        listener.listen(_BACKLOG[spec.delivery])
    except OSError as error:
        listener.close()
        os.close(keys)
        raise ChannelError(f"channel {spec.name!r}: no port on {host} can be had: {error}") from error
    return SocketCreated(spec, host, listener.getsockname()[1], listener, keys, token)


def create_ipc(spec: ChannelSpec) -> SocketCreated:
    """Listen on a Unix socket that has no name.

    It is made in a folder of this user's only (0700), and the folder is removed at once: what is left is a descriptor
    of the socket's place, through which an heir connects. So another user has no way to it, and however the run ends
    nothing of it stays.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        folder = tempfile.mkdtemp(prefix="weft-")
        try:
            place = _listen_in(folder, listener, _BACKLOG[spec.delivery])
        finally:
            os.rmdir(folder)
    except OSError as error:
        listener.close()
        raise ChannelError(
            f"channel {spec.name!r}: no Unix socket can be made in {tempfile.gettempdir()}: {error}. Set TMPDIR to a "
            "folder where it can, or use another channel."
        ) from error
    return SocketCreated(spec, "", 0, listener, place)


def _listen_in(folder: str, listener: socket.socket, backlog: int) -> int:
    """Bind in ``folder``, listen, and take the name away; returns a descriptor of the socket's place."""
    inside = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    path = f"/proc/self/fd/{inside}/socket"  # the folder's own path may be too long for a socket
    try:
        listener.bind(path)
        try:
            listener.listen(backlog)
            return os.open(path, os.O_PATH)
        finally:
            os.unlink(path)
    finally:
        os.close(inside)
