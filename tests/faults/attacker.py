"""Another user of the machine, who wants in: ``python attacker.py '{"ports": […], "pids": […], "seconds": …}'``.

It becomes uid 65534 where it may, and then tries what worked when sockets had no keys: connect and listen, ask for
params, open as a writer and send unrolls; without security, with keys of its own, and with bytes of no protocol. It
looks for secrets in what the kernel tells of processes. What it got is printed as JSON.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from contextlib import suppress
from typing import Any

import zmq

from weft.streams.wire import Ask, Bye, Data, Open, encode

SPOKEN = [[Ask("", "", 0, 0)], [Open("", "", 1, 0)], [Data(0, (0,) * 6), bytes(4096)], [Bye()]]


def dealers(context: zmq.Context[Any], port: int) -> list[zmq.Socket[bytes]]:
    """A socket without security, and one with keys of its own."""
    made = []
    for keys in (None, zmq.curve_keypair()):
        dealer = context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.PROBE_ROUTER, 1)
        if keys is not None:
            dealer.setsockopt(zmq.CURVE_SERVERKEY, keys[0])
            dealer.setsockopt(zmq.CURVE_PUBLICKEY, keys[0])
            dealer.setsockopt(zmq.CURVE_SECRETKEY, keys[1])
        dealer.connect(f"tcp://127.0.0.1:{port}")
        for frames in SPOKEN:
            with suppress(zmq.Again):  # it may have been turned away by now
                dealer.send_multipart([f if isinstance(f, bytes) else encode(f) for f in frames], zmq.NOBLOCK)
        made.append(dealer)
    return made


def noise(port: int) -> None:
    with suppress(OSError), socket.socket() as raw:
        raw.settimeout(0.5)
        raw.connect(("127.0.0.1", port))
        raw.sendall(os.urandom(2000))


def readable(pid: int) -> dict[str, str]:
    """What the kernel tells this user of a process."""
    found = {}
    for name in ("cmdline", "environ", "mem", "maps"):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as file:
                found[name] = file.read(1 << 20).decode("latin-1")
        except OSError:
            pass
    with suppress(OSError):
        found["fd"] = " ".join(os.listdir(f"/proc/{pid}/fd"))
    return found


def main(asked: dict[str, Any]) -> None:
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    read = {pid: readable(pid) for pid in asked["pids"]}
    until = time.monotonic() + asked["seconds"]
    context = zmq.Context()
    sockets = [dealer for port in asked["ports"] for dealer in dealers(context, port)]
    heard = 0
    while time.monotonic() < until:
        for dealer in sockets:
            while dealer.poll(0):
                heard += sum(map(len, dealer.recv_multipart()))
        for port in asked["ports"]:
            noise(port)
        time.sleep(0.1)
    told = {"uid": os.getuid(), "heard": heard, "read": read}
    context.destroy(linger=0)
    print(json.dumps(told))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
