"""What act leaves for a learner of the same worker on their device."""

from __future__ import annotations

from weft.core.types import Tree


class Left:
    """What act has left for learn on the device: observations by act, lane and the number of their message."""

    def __init__(self) -> None:
        self._left: dict[tuple[str, int], dict[int, Tree]] = {}

    def leave(self, act: str, lane: int, number: int, observation: Tree) -> None:
        """``[T + 1, rows, ...]`` of a message that is about to be sent."""
        self._left.setdefault((act, lane), {})[number] = observation

    def has_any(self, act: str) -> bool:
        """Whether there is something of an act that has not been taken."""
        return any(mine for (name, _), mine in list(self._left.items()) if name == act)

    def take(self, act: str, lane: int, number: int) -> Tree | None:
        """What was left, if anything; what belongs to earlier messages is forgotten: nobody will ask for it."""
        mine = self._left.get((act, lane), {})
        for earlier in [other for other in list(mine) if other < number]:
            del mine[earlier]
        return mine.pop(number, None)
