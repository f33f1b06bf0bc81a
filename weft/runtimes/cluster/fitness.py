"""What hosts of a run must agree in: versions, and the sources of Weft themselves."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from weft.core.errors import ConfigError

WORDS = {"weft": "Weft", "python": "Python", "jax": "JAX", "sources": "the sources of Weft"}


def fitness() -> dict[str, str]:
    """What this host has, in words that can be compared."""
    return {
        "weft": _version("weft"),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "jax": _version("jax"),
        "sources": _sources(),
    }


def check_fit(host: str, theirs: Mapping[str, str], ours: Mapping[str, str]) -> None:
    """Raise ConfigError where a host has something else than the head."""
    other = [
        f"{words} {theirs.get(name, 'of no version')!r}, and here it is {ours[name]!r}"
        for name, words in WORDS.items()
        if theirs.get(name) != ours[name]
    ]
    if other:
        raise ConfigError(f"host {host} has {'; '.join(other)}. All hosts of a run need the same: install it there.")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _sources() -> str:
    """A hash of every source file of the package, by name and content."""
    root, digest = Path(__file__).resolve().parents[2], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
