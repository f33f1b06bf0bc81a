"""Channels by scheme: ``inproc``, ``shm``, ``ipc``, ``tcp``. A scheme's module is imported when it is first used."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from weft.core.delivery import Delivery
from weft.core.errors import UnknownName
from weft.streams.bell import Bell
from weft.streams.channel import ChannelSpec, Created, Reader, Writer

_HOMES = {
    "inproc": ("weft.streams.memory", "create_inproc"),
    "shm": ("weft.streams.memory", "create_shm"),
    "ipc": ("weft.streams.tcp", "create_ipc"),
    "tcp": ("weft.streams.tcp", "create_tcp"),
}
SCHEMES = tuple(_HOMES)
LOCAL_SCHEMES = ("inproc", "shm", "ipc")
"""The schemes whose ends share memory or inherit a descriptor, so both must be on one host. ``tcp`` joins hosts too
(``endpoints.create_between``)."""
SOCKET_SCHEMES = ("ipc", "tcp")
"""The schemes whose ends each have a ring of their own, and a socket between them."""


def create(spec: ChannelSpec) -> Created:
    """Allocate what a channel needs (memory, a listening socket, keys), in the launcher.

    Open its ends with the result's ``spec``.
    """
    module, function = _home(spec)
    created: Created = getattr(module, function)(spec)
    return created


def create_together(specs: Sequence[ChannelSpec]) -> list[Created]:
    """Allocate channels whose readers one process opens, all of them with the same arrays.

    Over sockets they share one listener and one set of keys, so that thousands need one port and few descriptors.
    """
    if len(specs) < 2 or specs[0].scheme not in SOCKET_SCHEMES or specs[0].delivery is not Delivery.BLOCK:
        return [create(spec) for spec in specs]
    from weft.streams.shared import share

    first = create(specs[0])
    try:
        return share(first, specs)
    except BaseException:
        first.close()
        raise


def open_writer(spec: ChannelSpec, bell: Bell, readers: Sequence[Bell] = ()) -> Writer:
    """The writing end. A release rings ``bell``, this end's own; each commit rings ``readers``.

    The caller owns the bells, and closes them after the ends. Over sockets the other side's bells are out of reach:
    ``readers`` is not used there, and each side's own bell still rings.
    """
    writer: Writer = _home(spec)[0].open_writer(spec, bell, readers)
    return writer


def open_reader(spec: ChannelSpec, bell: Bell, writer: Bell | None = None) -> Reader:
    """The reading end. A commit rings ``bell``, this end's own; each release rings ``writer``."""
    reader: Reader = _home(spec)[0].open_reader(spec, bell, writer)
    return reader


def check_scheme(scheme: str, asked_by: str) -> None:
    """Raise ConfigError where this machine has not what a scheme needs; nothing is allocated."""
    if scheme == "tcp":
        from weft.streams.keys import check_curve

        check_curve(asked_by)


def _home(spec: ChannelSpec) -> tuple[Any, str]:
    if spec.scheme not in _HOMES:
        raise UnknownName("channel scheme", spec.scheme, SCHEMES, f"It was asked for by channel {spec.name!r}.")
    module, function = _HOMES[spec.scheme]
    return import_module(module), function
