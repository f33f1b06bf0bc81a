"""The channels of one host of several: those within it, those that it binds for others, those that it connects to.

The end that binds is the reader, of the newest params the writer; its host listens, and exports address and keys
through the head. Of params there are two channels on a host: one within it, which workers open, and its relay's.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from weft.core.delivery import Delivery
from weft.runtimes.cluster.relay import Relay
from weft.runtimes.workers.control.launcher import Launcher
from weft.runtimes.workers.layout.blueprint import Blueprint, Wire
from weft.streams.channel import ChannelSpec, Created
from weft.streams.endpoints import Adopted, adopt, create_between, export


def binder(blueprint: Blueprint, wire: Wire) -> int:
    """The host of the end that binds."""
    return blueprint.host_of(wire.writer if wire.delivery is Delivery.LATEST else wire.readers[0])


def within(blueprint: Blueprint, host: int, between: Container[str] = ()) -> list[str]:
    """The wires whose channels are made on a host without a word to others; params always are.

    ``between``: wires that were joined by sockets before, and stay so.
    """
    return [
        wire.name
        for wire in blueprint.wires
        if host in blueprint.hosts_of(wire)
        if wire.delivery is Delivery.LATEST or (len(blueprint.hosts_of(wire)) == 1 and wire.name not in between)
    ]


class HostChannels:
    """What the launcher of a host does not make by itself."""

    def __init__(
        self,
        launcher: Launcher,
        blueprint: Blueprint,
        specs: Mapping[str, ChannelSpec],
        host: int,
        interface: str,
    ) -> None:
        self.blueprint, self._launcher, self._specs = blueprint, launcher, specs
        self._wires = {wire.name: wire for wire in blueprint.wires}
        self._host, self._interface = host, interface
        self._adopted: dict[str, Adopted] = {}
        self._relays: dict[str, tuple[Relay, Created]] = {}

    def rejoin(self, blueprint: Blueprint, within: list[str]) -> None:
        """Workers are placed otherwise now; ``within``: see there."""
        self.blueprint = blueprint
        self._wires = {wire.name: wire for wire in blueprint.wires}
        for name in within:
            self._make_local(name)

    @property
    def failed(self) -> str:
        """Why a relay has stopped; empty while all run."""
        return next((f"relay of {name}: {r.failed}" for name, (r, _) in self._relays.items() if r.failed), "")

    def bind(self, asked: dict[str, list[str] | None]) -> dict[str, list[str]]:
        """Listen for these channels; by name: place, token and keys. ``asked``: token and keys that they had before."""
        found = {}
        for name, before in asked.items():
            wire, spec = self._wires[name], replace(self._specs[name], scheme="tcp", address="")
            token, keys = ("", None) if before is None else (before[0], bytes.fromhex(before[1]))
            created = create_between(spec, self._interface, token, keys)
            if wire.delivery is Delivery.LATEST:
                self._forget(name, leave=True)
                self._make_local(name)
                local = self._launcher.channels[name]
                relay = Relay(wire, local.spec, created.spec, [])
                self._relays[name] = relay, created
                self._launcher.join(local, relay.bell)
            else:
                self._launcher.join(created)
            place, token, keys = export(created)
            found[name] = [place, token, keys.hex()]
        return found

    def adopt(self, exported: dict[str, list[str]]) -> list[tuple[int, str, str]]:
        """Connect to these; returns what workers must be told of it: worker, wire, place."""
        moved = []
        for name, (place, token, keys) in exported.items():
            wire, spec = self._wires[name], replace(self._specs[name], scheme="tcp", address="")
            if name in self._adopted:
                self._adopted[name].move(place)
            else:
                self._adopted[name] = adopt(spec, place, token, bytes.fromhex(keys))
            adopted = self._adopted[name]
            if wire.delivery is Delivery.LATEST:
                self._follow(wire, adopted)
            else:
                self._launcher.join(adopted)
                moved.append((self.blueprint.sides[wire.writer].worker, name, place))
        return moved

    def close(self) -> None:
        """Stop the relays; the launcher closes the rest."""
        for name in list(self._relays):
            self._forget(name)
        for adopted in self._adopted.values():
            adopted.close()

    def _follow(self, wire: Wire, adopted: Adopted) -> None:
        known = self._relays.get(wire.name)
        if known is not None and known[0].follows:
            known[0].follow(adopted.spec)
            return
        self._forget(wire.name, leave=True)
        self._make_local(wire.name)
        local = self._launcher.channels[wire.name]
        readers = [self._launcher.bells[side] for side in wire.readers if side in self._launcher.bells]
        relay = Relay(wire, adopted.spec, local.spec, readers, self._launcher.account)
        self._relays[wire.name] = relay, adopted

    def _make_local(self, name: str) -> None:
        """A channel within this host, where there is none yet."""
        from weft.streams.registry import create

        scheme = self._wires[name].scheme
        known = self._launcher.channels.get(name)
        if scheme != "inproc" and (known is None or known.spec.scheme != scheme):
            self._launcher.join(create(replace(self._specs[name], scheme=scheme, address="", compress=False)))

    def _forget(self, name: str, *, leave: bool = False) -> None:
        known = self._relays.pop(name, None)
        if known is not None:
            known[0].close(leave=leave)
            if not isinstance(known[1], Adopted):
                known[1].close()
