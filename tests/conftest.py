"""What every test gets: compiled programs kept between runs, and a check that nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest


def _xla_flags() -> str:
    """Four CPU devices in one process, so that replicas can be tested, and programs that are quick to compile.

    Compiling is most of the suite's time, and what it compiles runs for a second: LLVM need not try hard, and the
    plain emitters take a third less of it. That last flag is XLA's own affair and comes and goes: where XLA does not
    know it, it ends the process, so that another process tries it first. Workers of pytest-xdist inherit the answer.
    """
    flags = "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"
    quick = f"{flags} --xla_cpu_use_fusion_emitters=false"
    environment = os.environ | {"XLA_FLAGS": quick, "JAX_PLATFORMS": "cpu"}
    trial = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"], env=environment, capture_output=True, check=False
    )
    return quick if trial.returncode == 0 else flags


# Before JAX starts.
if "XLA_FLAGS" not in os.environ:
    os.environ["XLA_FLAGS"] = _xla_flags()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# The key that marks runs as the user's is one of the tests' own.
os.environ["XDG_STATE_HOME"] = str(Path(__file__).parent.parent / ".jax_cache" / "state")
os.environ["XDG_CACHE_HOME"] = str(Path(__file__).parent.parent / ".jax_cache" / "cache")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave slow tests out unless they are asked for: the suite is to stay under fifteen minutes on two cores."""
    if not os.environ.get("WEFT_SLOW"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: set WEFT_SLOW=1, or make slow"))


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Fail where a test leaves children or threads behind."""
    before = set(threading.enumerate())
    yield
    left = [t for t in threading.enumerate() if t not in before and t.is_alive() and not t.daemon]
    assert not left, f"threads left behind: {left}"
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    if children.exists():
        assert not children.read_text().split(), "child processes left behind"
