"""Shared memory between processes, through a descriptor and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from channels import BLOCK, LATEST, SIMPLE, Channel, arrays, got, nothing_leaks
from far_end import SIZE, FarEnd, value

from weft.core.errors import ChannelError, SchemaMismatch
from weft.streams.bell import Bell
from weft.streams.channel import ChannelSpec, Stamp
from weft.streams.registry import create, open_reader, open_writer
from weft.streams.schema import ArraySpec


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with nothing_leaks():
        yield


def test_two_children_talk_and_the_launcher_counts() -> None:
    """The launcher opens neither end."""
    with Channel("shm", (ArraySpec("", (SIZE,), "int64"),), capacity=2) as channel:
        created, ours, theirs = channel.created, channel.writer_bell, channel.reader_bell
        told = {"spec": channel.spec, "fds": created.fds, "first": 0, "count": 25, "then": "close"}
        with (
            FarEnd("write", mine=ours, other=theirs, **told) as writer,
            FarEnd("read", mine=theirs, other=ours, **told) as reader,
        ):
            assert [line[1] for line in reader.lines()] == [str(n) for n in range(25)]
            assert writer.lines()[-1] == ["sent", "24"]
        assert created.committed == 25
        assert channel.writer().unreleased == 0


def test_the_memory_cannot_shrink_under_anybody() -> None:
    with Channel("shm") as channel:
        (fd,) = channel.created.fds
        assert not os.get_inheritable(fd)
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 64)
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 1 << 20)


def test_an_end_outlives_the_launcher_and_arrays_outlive_the_end() -> None:
    channel = Channel("shm")
    writer, reader = channel.ends()
    channel.created.close()
    channel.created.close()
    writer.send(arrays(3), Stamp())
    message = got(reader)
    channel.__exit__()
    np.testing.assert_array_equal(message.arrays[1], arrays(3)[1])  # its memory stays until it goes
    assert channel.created.committed == 0  # as it was when the launcher let go
    del message


def test_memory_that_is_no_channel() -> None:
    fd = os.memfd_create("other")
    bell = Bell()
    spec = ChannelSpec("unroll", SIMPLE, 4, BLOCK, "shm", f"fd:{fd}")
    with pytest.raises(ChannelError, match="not shared memory in this process"):  # nothing in it
        open_writer(spec, bell, [])
    os.ftruncate(fd, 4096)
    with pytest.raises(ChannelError, match="holds no channel"):
        open_writer(spec, bell, [])
    os.close(fd)
    with pytest.raises(ChannelError, match="pass_fds"):
        open_reader(spec, bell, None)
    bell.close()


def test_a_spec_of_another_size() -> None:
    with Channel("shm") as channel:
        with pytest.raises(SchemaMismatch, match=r"made with 4 slots.*opened with 5 slots"):
            open_writer(replace(channel.spec, capacity=5), channel.writer_bell, [])
        with pytest.raises(SchemaMismatch, match="delivery latest"):
            open_writer(replace(channel.spec, capacity=3, delivery=LATEST), channel.writer_bell, [])


def test_opening_is_light() -> None:
    """What an environment's worker needs loads neither JAX nor ZeroMQ."""
    created = create(ChannelSpec("unroll", (ArraySpec("", (SIZE,), "int64"),), 2, BLOCK))
    code = f"""
import sys
from weft.streams.bell import Bell
from weft.streams.channel import ChannelSpec, Stamp
from weft.streams.registry import open_writer
writer = open_writer(ChannelSpec.from_json({created.spec.to_json()!r}), Bell(), [])
writer.reserve()[0][:] = 5
writer.commit(Stamp())
heavy = {{"jax", "zmq", "msgspec", "gymnasium", "multiprocessing", "asyncio"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], pass_fds=created.fds, check=True)
    bell = Bell()
    reader = open_reader(created.spec, bell, None)
    np.testing.assert_array_equal(got(reader).arrays[0], value(5))
    reader.close()
    created.close()
    bell.close()
