"""The sinks that write files and send to services."""

from __future__ import annotations

import builtins
import json
import math
import resource
import struct
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest

from weft.core.errors import MissingExtra
from weft.telemetry.jsonl import Jsonl
from weft.telemetry.tensorboard import TensorBoard
from weft.telemetry.wandb import Wandb


def test_jsonl_is_strict_and_there_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    sink = Jsonl(path)
    assert not path.parent.exists()
    sink.write({"return_mean": math.nan, "loss/policy": -math.inf, "episodes": 3, "note": 'é"\n'}, 10)
    lines = path.read_text().splitlines()  # before close: a reader sees it, a kill loses nothing
    assert [json.loads(line, parse_constant=pytest.fail) for line in lines] == [
        {"env_steps": 10, "return_mean": None, "loss/policy": None, "episodes": 3, "note": 'é"\n'}
    ]
    sink.write({"env_steps": 20}, 20)
    sink.close()
    sink.close()
    again = Jsonl(path)
    again.write({"x": 1}, 30)
    again.close()
    assert [json.loads(line)["env_steps"] for line in path.read_text().splitlines()] == [10, 20, 30]


def test_jsonl_stays_whole_on_a_full_disk_and_recovers(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    sink = Jsonl(path)
    sink.write({"x": 1}, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, hard))
    try:
        with pytest.raises(OSError, match="too large"):  # five bytes fit: a part of the line was on the disk
            sink.write({"x": 2}, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    sink.write({"x": 3}, 3)
    sink.close()
    assert [json.loads(line)["env_steps"] for line in path.read_text().splitlines()] == [1, 3]


def crc32c(data: bytes) -> int:
    """CRC-32C, bit by bit: an oracle for the event files' checksums."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_events(path: Path) -> list[Any]:
    from tensorboardX.proto.event_pb2 import Event

    raw, events = path.read_bytes(), []
    while raw:
        (length,), (length_crc,) = struct.unpack("<Q", raw[:8]), struct.unpack("<I", raw[8:12])
        data, (data_crc,) = raw[12 : 12 + length], struct.unpack("<I", raw[12 + length : 16 + length])
        assert (length_crc, data_crc) == (masked(raw[:8]), masked(data))
        events.append(Event.FromString(data))
        raw = raw[16 + length :]
    return events


def test_tensorboard_writes_numbers_at_env_steps_and_starts_no_thread(tmp_path: Path) -> None:
    folder = tmp_path / "tensorboard"
    sink = TensorBoard(folder)
    assert not folder.exists()
    threads = threading.active_count()
    sink.write({"env_steps": 64, "return_mean": 1.5, "episodes": 3, "plan": "inline", "loss/policy": math.nan}, 64)
    assert threading.active_count() == threads
    (path,) = folder.iterdir()
    version, event = read_events(path)  # readable at once, not only after close
    assert version.file_version == "brain.Event:2"
    assert event.step == 64
    assert {v.tag: v.simple_value for v in event.summary.value} == {"return_mean": 1.5, "episodes": 3.0}
    sink.close()
    sink.close()


def test_a_resumed_run_keeps_its_past_and_purges_what_comes_again(tmp_path: Path) -> None:
    from tensorboardX.proto.event_pb2 import SessionLog

    first = TensorBoard(tmp_path)
    first.write({"x": 1.0}, 100)
    first.close()
    second = TensorBoard(tmp_path, purge_step=51)  # even within the same second
    second.write({"x": 2.0}, 100)
    second.close()
    events = [event for path in sorted(tmp_path.iterdir()) for event in read_events(path)]
    assert len(list(tmp_path.iterdir())) == 2
    assert [e.summary.value[0].simple_value for e in events if e.summary.value] == [1.0, 2.0]
    (start,) = [e for e in events if e.HasField("session_log")]
    assert (start.step, start.session_log.status) == (51, SessionLog.START)


def test_tensorboard_on_a_full_disk_raises_stays_readable_and_recovers(tmp_path: Path) -> None:
    sink = TensorBoard(tmp_path)
    sink.write({"x": 1.0}, 1)
    (path,) = tmp_path.iterdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            sink.write({"x": 2.0}, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    sink.write({"x": 3.0}, 3)
    sink.close()
    assert [e.step for e in read_events(path) if e.summary.value] == [1, 3]


class FakeWandb(types.ModuleType):
    """Stands in for the wandb package: keeps what it is told."""

    class errors:
        class Error(Exception):
            pass

    def __init__(self) -> None:
        super().__init__("wandb")
        self.told: list[tuple[str, Any]] = []
        self.fail = False

    def init(self, **settings: Any) -> FakeWandb:
        self.told.append(("init", settings))
        return self

    def define_metric(self, name: str, **settings: Any) -> None:
        self.told.append(("metric", (name, settings)))

    def log(self, record: dict[str, Any]) -> None:
        if self.fail:
            raise self.errors.Error("no network")
        self.told.append(("log", record))

    def finish(self) -> None:
        self.told.append(("finish", None))


def test_wandb_logs_against_env_steps_and_resumes_by_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    sink = Wandb("project", "name", "id-1", tmp_path, {"seed": 1})
    sink.write({"return_mean": 2.0}, 50)
    fake.fail = True
    with pytest.raises(OSError, match="Weights & Biases: no network"):
        sink.write({"return_mean": 3.0}, 60)
    sink.close()
    sink.close()
    settings = fake.told[0][1]
    assert (settings["project"], settings["id"], settings["resume"], settings["config"]) == (
        "project",
        "id-1",
        "allow",
        {"seed": 1},
    )
    assert ("metric", ("*", {"step_metric": "env_steps"})) in fake.told
    assert fake.told[-2:] == [("log", {"return_mean": 2.0, "env_steps": 50}), ("finish", None)]


def test_without_wandb_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name == "wandb":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(MissingExtra, match=r"pip install 'weft\[wandb\]'"):
        Wandb("project", "name", "id", tmp_path, {})


def test_optional_packages_load_only_when_used() -> None:
    code = (
        "import sys, weft.telemetry.telemetry, weft.telemetry.tensorboard, weft.telemetry.wandb\n"
        "loaded = {'jax', 'tensorboardX', 'wandb', 'rich'} & set(sys.modules)\n"
        "assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
