"""A peer of a socket channel that has its keys, and says what it likes."""

from __future__ import annotations

from typing import Any

import zmq
from channels import Channel

from weft.streams.door import listen
from weft.streams.endpoints import parse_address
from weft.streams.wire import encode


class Insider:
    """A ZeroMQ socket that was given what an end is given, keys and all, and talks as it likes; closes everything."""

    def __init__(self, kind: int, channel: Channel) -> None:
        self.address = parse_address(channel.spec.address, channel.spec.name)
        keys = self.address.keys(channel.spec.name)
        self._context = zmq.Context()
        self.socket = self._context.socket(kind)
        if kind == zmq.ROUTER:
            if keys is not None:
                self.socket.setsockopt(zmq.CURVE_SERVER, 1)
                self.socket.setsockopt(zmq.CURVE_SECRETKEY, keys.server_secret)
            listen(self.socket, self.address)
        else:
            if keys is not None:
                self.socket.setsockopt(zmq.CURVE_SERVERKEY, keys.server_public)
                self.socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.client_public)
                self.socket.setsockopt(zmq.CURVE_SECRETKEY, keys.client_secret)
            self.socket.connect(self.address.endpoint)

    def say(self, *frames: Any) -> None:
        self.socket.send_multipart([f if isinstance(f, bytes) else encode(f) for f in frames])

    def hear(self) -> list[bytes]:
        assert self.socket.poll(5000)
        return self.socket.recv_multipart()

    def __enter__(self) -> Insider:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close(linger=0)
        self._context.term()
