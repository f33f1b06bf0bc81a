"""Where this user's machine keeps what can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(kind: str) -> Path:
    """The folder for what all runs of this user share of one kind: ``programs``, ``kernels``. It may not exist yet."""
    said = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(said) if os.path.isabs(said) else Path("~/.cache").expanduser()) / "weft" / kind
