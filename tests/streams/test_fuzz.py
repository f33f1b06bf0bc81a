"""Fuzzed frames at a channel in use; ``python -m benchmarks.fuzz`` sends more of them, and measures what they cost."""

from __future__ import annotations

from benchmarks.fuzz import fuzz
from benchmarks.fuzz_far import A_TIME


def test_fuzzed_frames_are_refused_and_counted_one_by_one() -> None:
    """Half by a stranger, half by a peer that has the keys; every message of the writer comes, once and in order."""
    frames = 20_000
    figures = fuzz(frames, rate=10_000, block=frames, tell=lambda line: None)
    assert figures["frames sent"] == frames
    assert figures["connections refused"] == frames // 2 // A_TIME
    assert figures["messages refused"] == frames // 2
    assert figures["bytes told to a stranger or in answer"] == 0
    assert figures["memory grew, MB"] < 64
