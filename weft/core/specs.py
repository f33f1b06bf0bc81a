"""What an environment's observations and actions look like: spaces, and the environment's spec.

NumPy only: environment workers read this file and never load JAX. A space tree is a space, or a dict or tuple of space
trees; arrays that belong to it are nested the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from weft.core.errors import ConfigError

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Box:
    """An array of numbers within bounds; ``low`` and ``high`` are scalars or have ``shape``."""

    shape: Shape
    dtype: str = "float32"
    low: Any = -np.inf
    high: Any = np.inf

    @property
    def bounded(self) -> npt.NDArray[np.bool_]:
        """Which elements have finite bounds on both sides, ``shape``."""
        finite = np.isfinite(self.low) & np.isfinite(self.high)
        return np.broadcast_to(np.asarray(finite), self.shape)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Box):
            return NotImplemented
        same = self.shape == other.shape and self.dtype == other.dtype
        return same and bool(np.all(self.low == other.low)) and bool(np.all(self.high == other.high))

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))


@dataclass(frozen=True)
class Discrete:
    """One integer in ``[0, n)``; an adapter shifts a space that starts elsewhere."""

    n: int
    dtype: str = "int32"

    @property
    def shape(self) -> Shape:
        """Always a scalar."""
        return ()


@dataclass(frozen=True)
class MultiDiscrete:
    """Several integers, the i-th in ``[0, nvec[i])``; always one axis, an adapter reshapes."""

    nvec: tuple[int, ...]
    dtype: str = "int32"

    @property
    def shape(self) -> Shape:
        """One axis, as long as ``nvec``."""
        return (len(self.nvec),)


@dataclass(frozen=True)
class MultiBinary:
    """``n`` bits, as 0 and 1; always one axis, an adapter reshapes."""

    n: int
    dtype: str = "int8"

    @property
    def shape(self) -> Shape:
        """One axis of ``n``."""
        return (self.n,)


Space: TypeAlias = Box | Discrete | MultiDiscrete | MultiBinary
SpaceTree: TypeAlias = "Space | Mapping[str, SpaceTree] | tuple[SpaceTree, ...]"


@dataclass(frozen=True)
class FrameStack:
    """What an observation is that shows the newest frames of its episode: each is the one before and a frame more."""

    count: int  # frames, the newest last
    axis: int = 0  # along which they lie: the first, 0, or the last, -1
    padding: str = "zeros"  # before an episode's first frame: "zeros", or "first", that frame again


@dataclass(frozen=True)
class EnvSpec:
    """What is known of an environment before it is made.

    ``action`` is what policies see: a bounded Box is always ``[-1, 1]`` there, and ``native_action`` has the true
    bounds; ``to_native`` maps between them at the environment's edge, so that no algorithm scales or clips.
    """

    name: str
    observation: SpaceTree
    native_action: Space
    action_mask: bool = False  # timesteps carry a mask of the actions allowed
    next_step_reset: bool = False  # the step after an episode's end only resets: its record is not valid
    pure: bool = False  # a JAX environment: it can be fused into a compiled program
    max_episode_steps: int | None = None
    frame_skip: int = 1
    action_start: Any = 0  # added to a discrete action in the environment's own units
    action_shape: Shape | None = None  # of a MultiDiscrete or MultiBinary that has several axes there
    gymnasium_id: str = ""  # by which Gymnasium knows it, also within a factory or wrappers of the user's
    left_out: tuple[str, ...] = ()  # parts of the observation that are text, which no network here reads
    teams: Mapping[str, EnvSpec] = field(default_factory=dict)  # what each sees and does, where there are several
    may_fail: bool = False  # a step that raised only resets: its record is not valid
    frames: FrameStack | None = None  # where the observation, one array, is such a stack
    agents: tuple[str, ...] = ()  # who takes part, A names; empty: one agent, and no axis of agents anywhere
    agent: EnvSpec | None = None  # what one of the agents sees and does

    @classmethod
    def of_teams(cls, name: str, teams: Mapping[str, EnvSpec], **rest: Any) -> EnvSpec:
        """The spec of an environment with several teams: observations, actions and rewards are dicts by team.

        So are action masks, where any team has them.
        """
        pure = rest.pop("pure", all(team.pure for team in teams.values()))
        rest.setdefault("action_mask", any(team.action_mask for team in teams.values()))
        seen = {team: spec.observation for team, spec in teams.items()}
        done: Any = {team: spec.native_action for team, spec in teams.items()}
        return cls(name, seen, done, pure=pure, teams=dict(teams), **rest)

    @classmethod
    def of_agents(
        cls,
        name: str,
        agent: EnvSpec,
        agents: Sequence[str],
        *,
        state: SpaceTree | None = None,
        changing: bool = False,
        **rest: Any,
    ) -> EnvSpec:
        """The spec of a group of ``A`` agents that see and do alike, each as ``agent`` says; alone or as a team.

        Its observation is a dict: ``agents``, the agents' own with an axis of agents in front, ``[A, ...]``; ``state``,
        what a central critic may see, where there is one; and ``present`` (``[A]`` int8), where the set of agents is
        ``changing``: 0 where an agent takes no part, sees nothing, and its action is ignored. Its action has the
        agents' one after another, its reward is ``[A]``. An episode's end is everybody's; an agent's life ends before
        it where the agent is not present any more.
        """
        names = tuple(agents)
        if not names or len(set(names)) < len(names):
            twice = sorted({n for n in names if names.count(n) > 1})
            raise ConfigError(
                f"environment {name!r}: a group needs agents with different names, got "
                f"{'none' if not names else ', '.join(twice) + ' more than once'}"
            )
        seen: dict[str, SpaceTree] = {"agents": stacked(agent.observation, len(names))}
        if state is not None:
            seen["state"] = state
        if changing:
            seen["present"] = MultiBinary(len(names))
        start = agent.action_start
        shared: dict[str, Any] = {
            "pure": agent.pure,
            "action_mask": agent.action_mask,
            "action_start": start if np.ndim(start) == 0 else np.tile(np.ravel(start), len(names)),
        }
        return cls(
            name, seen, side_by_side(agent.native_action, len(names)), agents=names, agent=agent, **shared | rest
        )

    @property
    def reward_shape(self) -> Shape:
        """Of one environment's reward: ``[]``, or ``[A]`` where there are agents; of several teams, see theirs."""
        return (len(self.agents),) if self.agents else ()

    @property
    def action(self) -> Space:
        """The action space as policies see it; of several teams, a dict of theirs."""
        native = self.native_action
        if self.teams:
            return {team: spec.action for team, spec in self.teams.items()}  # type: ignore[return-value]
        if not isinstance(native, Box):
            return native
        bounded = native.bounded
        return Box(native.shape, "float32", np.where(bounded, -1.0, -np.inf), np.where(bounded, 1.0, np.inf))

    @property
    def marks_valid(self) -> bool:
        """Whether there may be records that are not valid, so that timesteps say of each whether it is."""
        return self.next_step_reset or self.may_fail

    @property
    def mask_size(self) -> int:
        """How many numbers an action mask has: one for each choice of each discrete dimension."""
        return num_choices(self.native_action)

    def to_native(self, action: Any, xp: Any = np) -> Any:
        """Map a policy's action (``[..., *shape]``) to the environment's own units; ``xp`` is numpy or jax.numpy.

        A bounded Box is clipped to ``[-1, 1]`` and stretched to its bounds; a single bound is kept to by clipping.
        Discrete actions are shifted and shaped. Of several teams, each by itself.
        """
        if self.teams:
            return {team: spec.to_native(action[team], xp) for team, spec in self.teams.items()}
        native = self.native_action
        if not isinstance(native, Box) and self.action_shape is not None:
            action = action.reshape((*action.shape[:-1], *self.action_shape))
        if not isinstance(native, Box) and np.any(self.action_start):
            action = action + xp.asarray(self.action_start, native.dtype)
        if not isinstance(native, Box) or not (np.isfinite(native.low) | np.isfinite(native.high)).any():
            return action
        bounded = native.bounded
        low = np.where(bounded, native.low, -1.0).astype(np.float32)
        high = np.where(bounded, native.high, 1.0).astype(np.float32)
        stretched = low + (xp.clip(action, -1.0, 1.0) + 1.0) * (0.5 * (high - low))
        mapped = stretched if bounded.all() else xp.where(bounded, stretched, xp.clip(action, native.low, native.high))
        return mapped.astype(native.dtype)


def stacked(tree: SpaceTree, count: int) -> SpaceTree:
    """What ``count`` agents see, with an axis for them in front: a Box for each leaf."""
    match tree:
        case tuple():
            return tuple(stacked(t, count) for t in tree)
        case Box(shape=shape, dtype=dtype, low=low, high=high):
            return Box((count, *shape), dtype, low, high)  # bounds that have a shape are those of each agent
        case Discrete(n=n, dtype=dtype):
            return Box((count,), dtype, 0, n - 1)
        case MultiDiscrete(nvec=nvec, dtype=dtype):
            return Box((count, len(nvec)), dtype, 0, np.array(nvec) - 1)
        case MultiBinary(n=n, dtype=dtype):
            return Box((count, n), dtype, 0, 1)
        case _:
            return {k: stacked(v, count) for k, v in tree.items()}


def side_by_side(space: Space, count: int) -> Space:
    """The actions of ``count`` agents as one space: choices one after another, Boxes with an axis in front."""
    match space:
        case Discrete(n=n, dtype=dtype):
            return MultiDiscrete((n,) * count, dtype)
        case MultiDiscrete(nvec=nvec, dtype=dtype):
            return MultiDiscrete(nvec * count, dtype)
        case MultiBinary(n=n, dtype=dtype):
            return MultiBinary(n * count, dtype)
        case Box(shape=shape, dtype=dtype, low=low, high=high):
            whole = (count, *shape)
            return Box(whole, dtype, np.broadcast_to(low, whole), np.broadcast_to(high, whole))
    raise ConfigError(f"not an action space: {space!r}")


def num_choices(space: Space) -> int:
    """How many discrete choices a space has in all: the length of its logits, and of its action mask."""
    match space:
        case Discrete(n=n):
            return n
        case MultiDiscrete(nvec=nvec):
            return sum(nvec)
        case MultiBinary(n=n):
            return 2 * n
        case Box():
            return 0
    raise ConfigError(f"not a space: {space!r}")


def describe(tree: SpaceTree) -> str:
    """A space tree in a few words, for messages and tables: ``Box[4] float32``, ``{a: Discrete(3), b: …}``."""
    match tree:
        case Box(shape=shape, dtype=dtype):
            return f"Box{list(shape)} {dtype}"
        case Discrete(n=n):
            return f"Discrete({n})"
        case MultiDiscrete(nvec=nvec):
            return f"MultiDiscrete({', '.join(map(str, nvec))})"
        case MultiBinary(n=n):
            return f"MultiBinary({n})"
        case tuple():
            return "(" + ", ".join(describe(t) for t in tree) + ")"
        case _:
            return "{" + ", ".join(f"{k}: {describe(v)}" for k, v in tree.items()) + "}"


def allocate(tree: SpaceTree, leading: Shape) -> Any:
    """Zeroed NumPy arrays for a space tree, each with ``leading`` axes in front."""
    if isinstance(tree, tuple):
        return tuple(allocate(t, leading) for t in tree)
    if isinstance(tree, Mapping):
        return {k: allocate(v, leading) for k, v in tree.items()}
    return np.zeros(leading + tree.shape, tree.dtype)


@dataclass(frozen=True)
class Spec:
    """What an algorithm is told of its run: the environment, and the sizes that a schedule or a batch depends on."""

    environment: EnvSpec
    envs: int  # environments for each replica of the learner, B
    learn_steps: int  # learn calls in the whole run, for schedules
    steps: int = 0  # of each environment in the whole run, for schedules of act; 0 where that is not known
    watch: tuple[tuple[str, Any], ...] = ()  # fragments that the run sets beside the graph to look on: name and code
    replicas: int = 1  # of the learner
