"""Layers import downward only; algorithms and runtimes never meet; nothing unpickles."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import weft

ROOT = Path(weft.__file__).parent

# Lowest first. A layer may import itself where it is a single package, and everything below it.
LAYERS: list[set[str]] = [
    {"core"},
    {"nets", "ops"},
    {"graph", "streams", "replay", "envs"},
    {"algorithms", "plans", "telemetry", "services"},
    {"runtimes", "planner"},
    {"api"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FILES = sorted(p for p in ROOT.rglob("*.py") if p.parent != ROOT or p.name == "api.py")


def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def package(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


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
