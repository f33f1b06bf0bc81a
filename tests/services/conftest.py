"""A read-only folder that is read-only for root too."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def read_only_folder() -> Iterator[Path]:
    """A folder that this process cannot write to while the test runs: root gives up its rights."""
    folder = Path(tempfile.mkdtemp(prefix="weft-read-only-"))
    folder.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(folder)
