"""What Weft asks of an environment: one protocol for JAX environments, one for host environments.

A JAX environment is written for one environment; Weft batches, resets and compiles it. A host environment is a batch
already: NumPy actions in, NumPy arrays written into buffers that the caller owns. Nothing here loads JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from weft.core.specs import EnvSpec
from weft.core.types import Array, Timestep, Tree

if TYPE_CHECKING:
    import jax

Snapshot: TypeAlias = dict[str, Any]
"""What a host environment needs to be brought back: JSON-serialisable."""


class Transition(NamedTuple):
    """What one step of a JAX environment gives, before any reset. No batch axis."""

    observation: Tree
    reward: Tree  # [] float32; [A] of several agents; of several teams a dict of theirs
    terminated: Array  # [] bool
    truncated: Array  # [] bool


class JaxEnv(Protocol):
    """A pure environment: state in, state out. Deterministic given its arguments, and traceable by JAX.

    ``action`` comes in the environment's own units (``spec.native_action``). Where ``spec.action_mask`` is set there
    is also ``action_mask(state) -> [choices] bool``. A ``render(state) -> uint8 [H, W, 3]`` (NumPy) is optional, for
    videos.
    """

    @property
    def spec(self) -> EnvSpec:
        """Its spaces; ``spec.pure`` is True."""
        ...

    def reset(self, key: jax.Array) -> tuple[Tree, Tree]:
        """A fresh episode: (state, observation)."""
        ...

    def step(self, state: Tree, action: jax.Array, key: jax.Array) -> tuple[Tree, Transition]:
        """One step; need not reset at an episode's end."""
        ...


class HostEnv(Protocol):
    """A batch of environments that run as ordinary Python (or anything else that is not JAX).

    Actions come as policies see them (``spec.action``: bounded Boxes in [-1, 1]); the environment maps them by
    ``spec.to_native``. Every method writes into ``out``, whose arrays the caller owns and may be views: rows in order
    of the environments. ``out.final_observation`` is written only in rows whose episode ended. ``reward``,
    ``terminated`` and ``truncated`` are written in every row of every call.
    """

    @property
    def spec(self) -> EnvSpec:
        """The spaces; ``spec.pure`` is False."""
        ...

    @property
    def num_envs(self) -> int:
        """How many environments the batch has, B."""
        ...

    def reset(self, out: Timestep) -> None:
        """Start every environment; blocks. Called once, before anything else.

        ``truncated`` is set in every row, so that each observation counts as the first of its episode.
        """
        ...

    def step(self, action: np.ndarray[Any, Any], out: Timestep) -> None:
        """Step every environment by ``action`` ([B, ...]); those that end reset by themselves; blocks."""
        ...

    def render(self) -> np.ndarray[Any, Any]:
        """The first environment as uint8 [H, W, 3]; only where it was made with ``render=True``."""
        ...

    def snapshot(self) -> Snapshot:
        """What ``restore`` needs to bring every environment back to this moment; JSON-serialisable."""
        ...

    def restore(self, snapshot: Snapshot, out: Timestep) -> list[int]:
        """In place of ``reset``: bring the environments back, writing where they stand into ``out``.

        Returns the rows that could not be brought back exactly; those begin a fresh episode (``truncated`` set there).
        """
        ...

    def close(self) -> None:
        """Free everything; may be called twice."""
        ...


class HostFactory(Protocol):
    """Makes a batch of host environments."""

    def __call__(self, num_envs: int, seed: int, first_index: int = 0, render: bool = False) -> HostEnv:
        """Environments ``first_index`` to ``first_index + num_envs - 1`` of a run with ``seed``.

        Environment ``i`` is seeded by ``core.keys.host_seed(seed, i)``, whatever batch it is in.
        """
        ...


@dataclass(frozen=True)
class EnvSource:
    """An environment by name, ready to be made: exactly one of ``pure`` and ``host`` is set.

    ``code`` is the identity (``core.identity``) of the object or the factory that it comes from, where its name does
    not say enough. ``single`` makes one ``gymnasium.Env`` of it (the flag: to be rendered), where there is such a form;
    ``about`` says what is done to the environment before a policy sees it, where anything is.
    """

    name: str
    spec: EnvSpec
    pure: JaxEnv | None = None
    host: HostFactory | None = None
    code: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    single: Callable[[bool], Any] | None = field(default=None, repr=False, compare=False)
    about: str = field(default="", repr=False, compare=False)


EnvLike: TypeAlias = str | JaxEnv | EnvSource | Callable[[], Any]
"""A name, a JAX environment, an opened source, or a function that makes a ``gymnasium.Env`` or a JAX environment."""

VECTOR_MODES = ("auto", "native", "each")
"""How a Gymnasium environment is batched: by its own vector environment where it has one, always, or one by one."""
