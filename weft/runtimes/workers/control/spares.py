"""Warm spares: processes that have loaded what a worker of their kind needs, and wait for a task.

What a replacement costs is the start of Python and JAX. From the first death of a worker of a kind on, one spare of
that kind is kept; it is made when the replacement is ready, so that the two do not compete. A run without deaths has
none.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from typing import NamedTuple

from weft.runtimes.workers.control.link import Link


class Spare(NamedTuple):
    """A process without a task, and the way to it."""

    process: subprocess.Popen[bytes]
    link: Link


class SpareKind(NamedTuple):
    """What spares must agree in to be of use to a worker: they cannot change it any more."""

    loads_jax: bool
    alone: bool  # JAX's devices are its own: they may be looked for before there is a task
    roles: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, loads_jax: bool, alone: bool, roles: list[str], variables: Mapping[str, str]) -> SpareKind:
        """From a worker's blueprint and its environment variables."""
        return cls(loads_jax, alone, tuple(sorted(set(roles))), tuple(sorted(variables.items())))

    def argument(self) -> str:
        """What a spare is told on its command line."""
        return json.dumps({"jax": self.loads_jax, "alone": self.alone, "roles": self.roles})


class Spares:
    """At most one spare of each kind. ``make`` starts one."""

    def __init__(self, make: Callable[[SpareKind], Spare]) -> None:
        self._make = make
        self._spares: dict[SpareKind, Spare] = {}

    def take(self, kind: SpareKind) -> Spare | None:
        """A spare of this kind, which is no longer one; None where there is none that lives."""
        spare = self._spares.pop(kind, None)
        if spare is not None and spare.process.poll() is not None:
            spare.link.close()
            return None
        return spare

    def renew(self, kind: SpareKind) -> None:
        """See to it that there is one of this kind."""
        spare = self.take(kind)
        self._spares[kind] = spare if spare is not None else self._make(kind)

    def close(self, kill: Callable[[subprocess.Popen[bytes]], None]) -> None:
        """End all of them."""
        for spare in self._spares.values():
            kill(spare.process)
            spare.process.wait()
            spare.link.close()
        self._spares = {}
