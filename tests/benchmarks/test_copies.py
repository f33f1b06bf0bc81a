"""What benchmarks.copies counts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from benchmarks import copies

CODE = """
import numpy as np
seen = np.ones((4, {row}), np.uint8)
kept = np.empty((5, 4, {row}), np.uint8)
for k in range(5):
    kept[k] = seen
kept[0, 0] = seen[0]
bytes(seen[0, :-1])  # no whole observation
import os
os._exit(0)  # as a worker that is killed
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_copies_of_whole_observations_are_counted_by_library_and_outlive_the_process(tmp_path):
    library, counts = copies.compiled(tmp_path), tmp_path / "counts"
    counts.mkdir()
    preloaded = {"LD_PRELOAD": str(library), "WEFT_COPIES": str(counts), "WEFT_OBSERVATION": str(copies.OBSERVATION)}
    with (tmp_path / "act-3.log").open("w") as log:
        code = CODE.format(row=copies.OBSERVATION)
        subprocess.run([sys.executable, "-c", code], env=os.environ | preloaded, stdout=log, check=True)
    found = {key: copied for key, copied in copies.counted(counts).items() if "multiarray" in key[1]}
    assert {kind for kind, _ in found} == {"act"}
    assert sum(found.values()) == (5 * 4 + 1) * copies.OBSERVATION
