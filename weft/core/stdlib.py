"""Telling Python's own library from what users bring."""

from __future__ import annotations

import sys


def is_stdlib(module: str) -> bool:
    """Whether a module has a name of Python's own library."""
    return module.partition(".")[0] in sys.stdlib_module_names
