"""The two ends of ``links.py``, each a process on a host: ``python -m benchmarks.links_far reader|writer JSON``."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from weft.core.delivery import Delivery
from weft.core.errors import ChannelClosed
from weft.streams.bell import Bell
from weft.streams.channel import ChannelSpec, Stamp
from weft.streams.endpoints import adopt, create_between, export
from weft.streams.registry import open_reader, open_writer
from weft.streams.schema import array_specs

WARM_UP = 2  # unrolls before the clock begins
CAPACITY = 2  # as with --max-lag 1


def spec(images: np.ndarray[Any, Any], compress: bool) -> ChannelSpec:
    """An unroll's channel: images, and the small fields beside them."""
    length, envs = images.shape[1] - 1, images.shape[2]
    whole, steps = (length + 1, envs), (length, envs)
    tree = {
        "observation": images[0],
        "reward": np.zeros(whole, np.float32),
        "ended": np.zeros((2, *whole), np.bool_),
        "action": np.zeros(steps, np.int32),
        "extras": np.zeros((2, *steps), np.float32),
    }
    return ChannelSpec("unroll", array_specs(tree), CAPACITY, Delivery.BLOCK, "tcp", compress=compress)


def reader(recorded: str, compress: bool, address: str, seconds: float) -> None:
    """Receive for some seconds, say how many a second; each must be what was sent."""
    images = np.load(recorded)
    created = create_between(spec(images, compress), address)
    place, token, keys = export(created)
    print(json.dumps([place, token, keys.hex()]), flush=True)
    bell = Bell()
    end = open_reader(created.spec, bell)
    count, began = 0, 0.0
    while not began or time.perf_counter() - began < seconds:
        message = end.receive(60)
        if message is None or message.place != count:
            raise RuntimeError(f"unroll {count} did not come")
        if count < len(images):
            seen = next(a for a in message.arrays if a.shape == images.shape[1:])
            if not np.array_equal(seen, images[count % len(images)]):
                raise RuntimeError(f"unroll {count} is another")
        end.release(message)
        count += 1
        if count == len(images) + WARM_UP:
            began = time.perf_counter()
    taken = time.perf_counter() - began
    print((count - len(images) - WARM_UP) / taken, flush=True)
    end.close()
    created.close()
    bell.close()


def writer(recorded: str, compress: bool, exported: list[str], device: str, **_: Any) -> None:
    """Send until stdin ends; says how many unrolls it sent, and how many bytes the link had for that."""
    images = np.load(recorded)
    place, token, keys = exported
    adopted, bell = adopt(spec(images, compress), place, token, bytes.fromhex(keys)), Bell()
    end = open_writer(adopted.spec, bell)
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    before, count = _sent(device), 0
    largest = max(range(len(adopted.spec.arrays)), key=lambda n: int(np.prod(adopted.spec.arrays[n].shape)))
    while not over.is_set():
        try:
            slot = end.reserve(0.1)
        except ChannelClosed:
            break
        if slot is not None:
            np.copyto(slot[largest], images[count % len(images)])
            end.commit(Stamp(sequence=count))
            count += 1
    over.wait(10)
    nbytes = _sent(device) - before
    print(json.dumps([count - end.unreleased, nbytes]), flush=True)
    end.close()
    adopted.close()
    bell.close()


def _sent(device: str) -> int:
    return int(Path(f"/sys/class/net/{device}/statistics/tx_bytes").read_text())


if __name__ == "__main__":
    {"reader": reader, "writer": writer}[sys.argv[1]](**json.loads(sys.argv[2]))
