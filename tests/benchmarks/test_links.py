"""Unrolls over a link, without namespaces: that both ends run, and what a compressed unroll takes. Asserts no speed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import links


class Here:
    """In place of ``Namespaces``: this machine."""

    def inside(self, host: int) -> tuple[str, ...]:
        return ()


@pytest.mark.parametrize("compress", [False, True])
def test_unrolls_come_as_they_were_sent(tmp_path: Path, compress: bool) -> None:
    recorded, here = tmp_path / "frames.npy", Here()
    frames: Any = np.zeros((3, 5, 2, 4, 84, 84), np.uint8)
    frames[:] = np.arange(3).reshape(3, 1, 1, 1, 1, 1)
    np.save(recorded, frames)
    rate, _ = links.one(here, "loopback", recorded, compress, 0.2)  # type: ignore[arg-type]
    assert rate > 0
