"""Replicas that are one program listen on loopback only, whatever the host's name leads to."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest

SCRIPT = """
import ctypes, json, os, socket, sys
rank, coordinator, address = int(sys.argv[1]), sys.argv[2], sys.argv[3]
assert ctypes.CDLL(None, use_errno=True).unshare(0x04000000) == 0  # CLONE_NEWUTS: a host name of its own
socket.sethostname(address)
from pathlib import Path
from weft.runtimes.workers.joining import join_replicas
join_replicas(coordinator, 2, rank, cpu=True)
import jax.numpy as jnp
from jax.experimental import multihost_utils
total = int(multihost_utils.process_allgather(jnp.ones(3) * rank).sum())
mine = set()
for fd in os.listdir("/proc/self/fd"):
    try:
        mine.add(os.readlink(f"/proc/self/fd/{fd}"))
    except OSError:
        pass
lines = [l.split() for f in ("tcp", "tcp6") for l in Path(f"/proc/net/{f}").read_text().splitlines()[1:]]
listening = [l[1].partition(":")[0] for l in lines if l[3] == "0A" and f"socket:[{l[9]}]" in mine]
print(json.dumps({"total": total, "listening": listening}), flush=True)
multihost_utils.sync_global_devices("end")
os._exit(0)
"""
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


def outside() -> str | None:
    """An address of this machine that others may reach."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            return None
        found = str(probe.getsockname()[0])
    return None if found.startswith("127.") else found


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="a host name of one's own is root's")
def test_replicas_listen_on_loopback_only() -> None:
    address = outside()
    if address is None:
        pytest.skip("this machine has no address but loopback")
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{port.getsockname()[1]}"
    replicas = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(rank), coordinator, address],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        )
        for rank in range(2)
    ]
    said = [replica.communicate(timeout=100)[0].splitlines() for replica in replicas]
    told = [json.loads(next(line for line in lines if line.startswith("{"))) for lines in said]  # Gloo prints too
    assert [one["total"] for one in told] == [3, 3]
    assert all(one["listening"] for one in told)
    assert {place for one in told for place in one["listening"]} <= LOOPBACK
