"""A data set: whole episodes one after the other, every observation once.

    rows of the observations    o0 o1 o2 o3 | o0 o1 o2 | …      an episode has one more than it has steps
    steps                       a0 a1 a2    | a0 a1    | …      step i of episode e acts on row i + e

What a step led to is the row after its own, also where the episode was truncated: only where it terminated does nothing
of value follow. An episode that the recording itself left unfinished has neither mark at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from weft.core.errors import ConfigError
from weft.core.specs import Box, EnvSpec, allocate, describe, num_choices
from weft.core.trees import tree_map, tree_paths
from weft.core.types import Tree

NDArray: TypeAlias = np.ndarray[Any, Any]


class Episode(NamedTuple):
    """One episode of ``T`` steps. Actions are as policies see them: a bounded Box from -1 to 1."""

    observation: Tree  # [T + 1, ...]
    action: NDArray  # [T, ...]
    reward: NDArray  # [T] float32
    terminated: NDArray  # [T] bool; True at the last step at most
    truncated: NDArray  # [T] bool; True at the last step at most
    action_mask: NDArray | None = None  # [T + 1, choices] bool, where the environment has masks


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """``N`` steps in ``E`` episodes of one environment. ``weft.record`` makes one, ``Dataset.load`` reads it."""

    spec: EnvSpec
    observation: Tree  # [N + E, ...]
    action: NDArray  # [N, ...] as policies see it
    reward: NDArray  # [N] float32
    terminated: NDArray  # [N] bool
    truncated: NDArray  # [N] bool
    lengths: NDArray  # [E] int64: steps of each episode
    action_mask: NDArray | None = None  # [N + E, choices] bool
    recorded: Mapping[str, Any] = field(default_factory=dict)  # how it was made; plain data

    @classmethod
    def from_episodes(cls, spec: EnvSpec, episodes: Iterable[Episode], **recorded: Any) -> Dataset:
        """A data set of these episodes; those without a step are left out. ``recorded`` says how they were made."""
        kept = [episode for episode in episodes if len(episode.reward)]
        if not kept:
            raise ConfigError(f"a data set of environment {spec.name!r} needs a step at least, and none came")

        def joined(*trees: Any) -> Any:
            return tree_map(lambda *parts: np.concatenate(parts), *trees)

        parts = {name: joined(*(getattr(episode, name) for episode in kept)) for name in Episode._fields}
        lengths = np.array([len(episode.reward) for episode in kept], np.int64)
        data = cls(spec, lengths=lengths, recorded=recorded, **parts)
        data.check("these episodes")
        return data

    @classmethod
    def load(cls, folder: str | Path) -> Dataset:
        """Read one that ``save`` has written. Raises ConfigError where the folder has none, or a damaged one."""
        from weft.data.files import read

        return read(Path(folder))

    @classmethod
    def from_minari(cls, dataset: Any) -> Dataset:
        """The episodes of a ``minari.MinariDataset``, or of the one of this name on this machine."""
        from weft.data.minari import from_minari

        return from_minari(dataset)

    def save(self, folder: str | Path) -> Path:
        """Write ``data.npz`` and ``about.json`` into a folder that is new or empty, and return it."""
        from weft.data.files import write

        return write(self, Path(folder))

    @property
    def steps(self) -> int:
        """N."""
        return len(self.reward)

    @property
    def episodes(self) -> list[Episode]:
        """Each episode by itself: views."""
        ends = np.cumsum(self.lengths).tolist()
        return [self._episode(e, end - int(self.lengths[e]), end) for e, end in enumerate(ends)]

    def _episode(self, number: int, start: int, end: int) -> Episode:
        """That of the steps from ``start`` to before ``end``."""
        rows = slice(start + number, end + number + 1)
        return Episode(
            tree_map(lambda x: x[rows], self.observation),
            self.action[start:end],
            self.reward[start:end],
            self.terminated[start:end],
            self.truncated[start:end],
            None if self.action_mask is None else self.action_mask[rows],
        )

    @property
    def rows(self) -> NDArray:
        """``[N]`` int32: the row of each step's observation; the next row is what it led to."""
        return (np.arange(self.steps) + np.repeat(np.arange(len(self.lengths)), self.lengths)).astype(np.int32)

    @property
    def returns(self) -> NDArray:
        """``[E]``: the sum of each episode's rewards."""
        starts = np.cumsum(self.lengths) - self.lengths
        return np.add.reduceat(self.reward.astype(np.float64), starts)

    @property
    def ended(self) -> NDArray:
        """``[E]`` bool: the environment ended it, not the recording."""
        last = np.cumsum(self.lengths) - 1
        return np.asarray((self.terminated | self.truncated)[last])

    @property
    def return_mean(self) -> float | None:
        """The mean return of the episodes that ended; None where none did."""
        return float(self.returns[self.ended].mean()) if self.ended.any() else None

    def __repr__(self) -> str:
        mean = "" if self.return_mean is None else f", return {self.return_mean:.1f}"
        return f"Dataset({self.spec.name!r}: {self.steps:,} steps in {len(self.lengths):,} episodes{mean})"

    def check(self, where: str) -> None:
        """Raise ConfigError where the arrays do not fit together, or are not what the spec says; ``where`` they are."""
        if self.spec.teams:
            raise ConfigError(f"{where}: a data set is of one policy, and {self.spec.name!r} has several teams")
        if self.lengths.ndim != 1 or self.lengths.dtype.kind not in "iu":
            came = f"{list(self.lengths.shape)} {self.lengths.dtype}"
            raise ConfigError(f"{where}: lengths is {came}, expected [E] int64, the steps of each episode")
        if not len(self.lengths) or self.lengths.min() < 1:
            raise ConfigError(f"{where}: an empty data set: it needs an episode at least, each with a step at least")
        steps, rows = int(self.lengths.sum()), int(self.lengths.sum() + len(self.lengths))
        like = {f"observation.{p}".rstrip("."): (rows, x) for p, x in tree_paths(allocate(self.spec.observation, ()))}
        like["action"] = steps, np.zeros(self.spec.action.shape, self.spec.action.dtype)
        like |= {"reward": (steps, np.zeros((), np.float32))}
        like |= {name: (steps, np.zeros((), np.bool_)) for name in ("terminated", "truncated")}
        if self.spec.action_mask:
            like["action_mask"] = rows, np.zeros(num_choices(self.spec.native_action), np.bool_)
        found = dict(named_arrays(self))
        for name, (count, one) in like.items():
            want = (count, *one.shape)
            if name not in found:
                raise ConfigError(f"{where}: {name} is missing; expected an array {list(want)} {one.dtype}")
            if found[name].shape != want or found[name].dtype != one.dtype:
                raise ConfigError(
                    f"{where}: {name} is {list(found[name].shape)} {found[name].dtype}, and {steps:,} steps in "
                    f"{len(self.lengths):,} episodes of {self.spec.name!r} need {list(want)} {one.dtype}"
                )
            if one.dtype.kind == "f" and not np.isfinite(found[name]).all():
                raise ConfigError(f"{where}: {name} has numbers that are not finite. Leave those episodes out.")
        self._check_ends(where)
        self._check_choices(where)

    def _check_ends(self, where: str) -> None:
        ends = np.cumsum(self.lengths) - 1
        within = np.ones(self.steps, np.bool_)
        within[ends] = False
        if ((self.terminated | self.truncated) & within).any():
            raise ConfigError(f"{where}: an episode goes on after a step that is marked as its end. Cut it there.")

    def _check_choices(self, where: str) -> None:
        """Whether numbered actions are within their range."""
        space = self.spec.action
        if isinstance(space, Box):
            return
        most = np.asarray(getattr(space, "nvec", getattr(space, "n", 0)))
        most = np.asarray(2) if type(space).__name__ == "MultiBinary" else most
        if (self.action < 0).any() or (self.action >= most).any():
            raise ConfigError(
                f"{where}: actions are from {self.action.min()} to {self.action.max()}, and {describe(space)} has "
                "those from 0 on, below its number"
            )

    def check_fits(self, spec: EnvSpec, owner: str, where: str) -> None:
        """Raise ConfigError where it is no data set of an environment like this one; ``owner`` learns from it.

        The name may be another: Gymnasium's CartPole-v1 and weft:CartPole-v1 have the same spaces.
        """
        for what, mine, theirs in (
            ("observations", describe(self.spec.observation), describe(spec.observation)),
            ("actions", _in_words(self.spec), _in_words(spec)),
            ("action masks", str(self.spec.action_mask), str(spec.action_mask)),
        ):
            if mine != theirs:
                raise ConfigError(
                    f"{owner}: the data set {where} was recorded in {self.spec.name!r}, whose {what} are {mine}; "
                    f"those of environment {spec.name!r} are {theirs}. Train in an environment like that of the data, "
                    f"or record one in {spec.name!r}: weft record RUN DIR."
                )


def named_arrays(data: Dataset) -> list[tuple[str, NDArray]]:
    """Every array of a data set by its name in ``data.npz``: ``observation.camera``, ``action`` …"""
    named = [(f"observation.{path}".rstrip("."), leaf) for path, leaf in tree_paths(data.observation)]
    named += [(name, getattr(data, name)) for name in ("action", "reward", "terminated", "truncated", "lengths")]
    return named if data.action_mask is None else [*named, ("action_mask", data.action_mask)]


def _in_words(spec: EnvSpec) -> str:
    """An action space with its bounds: actions from -1 to 1 mean others where the bounds are others."""
    native = spec.native_action
    if not isinstance(native, Box):
        return describe(native)
    low, high = (np.broadcast_to(np.asarray(bound, np.float32), native.shape) for bound in (native.low, native.high))
    bounds = [f"{x.min():g}" if (x == x.min()).all() else str(x.tolist()) for x in (low, high)]
    return f"Box{list(native.shape)} from {' to '.join(bounds)}"
