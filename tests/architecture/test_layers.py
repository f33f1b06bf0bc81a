"""Layers import downward only; algorithms and runtimes never meet; nothing unpickles."""

from __future__ import annotations

from pathlib import Path

import pytest
from walking import ROOT, ids, imported, reached

# Lowest first. A layer may import itself where it is a single package, and everything below it.
LAYERS: list[set[str]] = [
    {"core"},
    {"nets", "ops"},
    {"graph", "streams", "replay", "envs"},
    {"data"},
    {"algorithms", "plans", "telemetry", "services"},
    {"runtimes", "planner"},
    {"api"},
    {"populations"},
    {"chaos"},
    {"dashboard"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FILES = sorted(p for p in ROOT.rglob("*.py") if p.parent != ROOT or p.name == "api.py")


def package(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


@pytest.mark.parametrize("path", FILES, ids=ids)
def test_imports_go_downward(path: Path) -> None:
    own = package(path)
    for module in imported(path):
        parts = module.split(".")
        if parts[0] != "weft" or len(parts) < 2:
            continue
        other = parts[1]
        assert other in LEVEL, f"{ids(path)} imports {module}: {other!r} is in no layer"
        fine = other == own or LEVEL[other] < LEVEL[own]
        assert fine, f"{ids(path)} ({own}) imports {module}: layers import downward only"


@pytest.mark.parametrize("path", sorted((ROOT / "algorithms").glob("*.py")), ids=ids)
def test_algorithms_know_no_place(path: Path) -> None:
    banned = {"multiprocessing", "threading", "queue", "socket", "zmq", "ray", "subprocess", "asyncio", "mmap"}
    assert not {m.split(".")[0] for m in imported(path)} & banned
    text = path.read_text()
    assert "jax.devices" not in text
    assert "device_put" not in text


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=ids)
def test_files_stay_small_and_safe(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 400, "which second concept moved in?"
    assert path.stem not in {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not {m.split(".")[0] for m in imported(path)} & {"pickle", "cloudpickle", "dill", "shelve", "marshal"}
    assert "allow_pickle=True" not in text


WORKERS = ROOT / "runtimes" / "workers"
LAUNCHING = sorted(path for folder in ("control", "layout", "counting") for path in (WORKERS / folder).glob("*.py"))


@pytest.mark.parametrize("path", LAUNCHING, ids=ids)
def test_what_launches_workers_knows_no_worker_code(path: Path) -> None:
    """Neither roles nor sides, not even by what it imports: how a fragment runs is found by its role's name, there."""
    inside = {file.stem for file in WORKERS.glob("*.py")} - {"__init__"}
    for module in {*imported(path), *reached(path)}:
        parts = module.split(".")
        assert parts[:3] != ["weft", "runtimes", "roles"], f"{ids(path)} reaches {module}"
        if parts[:3] == ["weft", "runtimes", "workers"] and len(parts) > 3:
            assert parts[3] not in inside, f"{ids(path)} reaches {module}, which runs in workers"


def test_only_a_roles_registry_knows_where_roles_are() -> None:
    """Adding a role changes no other file of a runtime: the others find it by its name."""
    knowing = [
        ids(path)
        for path in sorted((ROOT / "runtimes").rglob("*.py"))
        if path.parent.name != "roles" and any(m.startswith("weft.runtimes.roles") for m in imported(path))
    ]
    assert knowing == []
