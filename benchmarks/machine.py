"""The line above a table: what it was measured on. No names of hosts or people."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata

from benchmarks.worker import ROOT

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "gymnasium")


def describe() -> dict[str, str]:
    """Interpreter, packages, processor, JAX's device, and how busy the machine was when asked."""
    versions = " ".join(f"{name} {version}" for name in PACKAGES if (version := _version(name)))
    return {
        "python": platform.python_version(),
        "packages": versions,
        "processor": f"{os.cpu_count()} × {_processor()}",
        "device": _device(),
        "load": ", ".join(f"{load:.1f}" for load in os.getloadavg()),
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def _device() -> str:
    """Asked in a process of its own: this one must not hold the device."""
    code = "import jax; print(jax.default_backend(), jax.devices()[0].device_kind, sep=': ')"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    return ended.stdout.strip() or "unknown"
