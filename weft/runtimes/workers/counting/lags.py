"""The lags of what was trained on: their histogram, from report to report."""

from __future__ import annotations

from collections.abc import Iterable


class Lags:
    """Counts unrolls by their lag: the updates between the params that acted in them and those that learned."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def add(self, counts: Iterable[tuple[int, int]]) -> None:
        """Count ``(lag, unrolls)`` pairs."""
        for lag, count in counts:
            self._counts[lag] = self._counts.get(lag, 0) + count

    def figures(self) -> dict[str, float]:
        """Of what was counted since this was asked last: ``lag``, its mean; ``lag_max``; ``lag/K``, the part at K."""
        counts, self._counts = self._counts, {}
        total = sum(counts.values())
        if not total:
            return {}
        mean = sum(lag * count for lag, count in counts.items()) / total
        parts = {f"lag/{lag}": count / total for lag, count in sorted(counts.items())}
        return {"lag": mean, "lag_max": float(max(counts)), **parts}
