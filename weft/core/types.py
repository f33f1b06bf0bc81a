"""The records that flow along streams. All arrays; ``T`` steps by ``B`` environments; time first.

Inside an algorithm's ``act`` the ``B`` axis is absent: it is written for one environment, and Weft batches it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import jax

Array: TypeAlias = "jax.Array | np.ndarray[Any, Any]"
"""An array; in the records of a schema, its ``jax.ShapeDtypeStruct``."""
Tree: TypeAlias = Any
"""A pytree of arrays whose structure only its owner knows (params, a carry, an observation)."""
Metrics: TypeAlias = "dict[str, jax.Array]"
"""Scalars by name, as a learn call returns them."""


class Timestep(NamedTuple):
    """What an environment says after a step, and what the policy acts on. Environments reset by themselves.

    Where an episode ended, ``observation`` already is the first of the next one, and ``final_observation`` the last of
    the one that ended; elsewhere ``final_observation`` has no meaning. It is None where nobody needs it.
    """

    observation: Tree  # [B, ...]
    reward: Array  # [B] float32, or [B, A] of A agents, for the action before; with teams, a dict of such by team
    terminated: Array  # [B] bool: the episode ended in a state of no further reward
    truncated: Array  # [B] bool: the episode was cut; what would have followed still has value
    final_observation: Tree | None = None  # [B, ...]
    action_mask: Array | None = None  # [B, choices] bool: which choices are allowed now
    valid: Array | None = None  # [B] bool; False where the action before was ignored (a reset-only step)

    @property
    def first(self) -> Array:
        """[B] bool: ``observation`` is the first of its episode, so that a recurrent carry must start anew."""
        return self.terminated | self.truncated


class Acted(NamedTuple):
    """What ``act`` gives for one environment."""

    action: Tree  # as the environment's spec says
    carry: Tree = ()  # recurrent state for the next step; () where there is none
    extras: dict[str, Tree] = {}  # noqa: RUF012  what learn wants remembered: log-probability, value, …


class Finals(NamedTuple):
    """The last observations of the episodes that an unroll cut, ``F`` of each environment at most."""

    observation: Tree  # [F, B, ...]; no meaning where ``step`` is -1
    step: Array  # [F, B] int32: the unroll's step that cut the episode, from 0; -1: there is none


class Unroll(NamedTuple):
    """A ``[T, B]`` block of steps, as act assembles them: observation, what was done, what came of it."""

    observation: Tree  # [T, B, ...] what the policy saw
    first: Array  # [T, B] bool: that observation began an episode
    action: Tree  # [T, B, ...]
    extras: dict[str, Tree]  # [T, B, ...] what act remembered
    reward: Array  # [T, B] for that action; [T, B, A] of A agents
    terminated: Array  # [T, B] bool, by that action
    truncated: Array  # [T, B] bool, by that action
    bootstrap: Array  # [T, B], or [T, B, A], value of what would have followed: where truncated, and last; else 0
    carry: Tree  # [B, ...] act's carry before the first step
    last_observation: Tree  # [B, ...] what followed the last step
    last_first: Array  # [B] bool: that observation began an episode
    action_mask: Array | None = None  # [T, B, choices]
    valid: Array | None = None  # [T, B] bool; None means all
    finals: Finals | None = None  # where the graph asks for them: off-policy, values of act's time would be stale

    @property
    def steps(self) -> int:
        """How many environment steps it holds, T times B."""
        return int(self.terminated.shape[-2] * self.terminated.shape[-1])


class Transitions(NamedTuple):
    """``N`` steps out of a store, each with what came of it ``n`` steps later, or fewer where the episode ended."""

    observation: Tree  # [N, ...]
    action: Tree  # [N, ...]
    reward: Array  # [N] the discounted sum over those steps
    discount: Array  # [N] of the value of ``following``: 0 where the episode terminated
    following: Tree  # [N, ...] what was seen then; of a truncated episode its final observation
    weight: Array  # [N] of its loss; 0 where the record is not valid
    ids: Array  # [N, 2] int32: where it lies in the store, and the number of its unroll there; for feedback
    action_mask: Array | None = None  # [N, choices] at ``observation``
    following_mask: Array | None = None  # [N, choices] at ``following``; all allowed where that is not known


class Earlier(NamedTuple):
    """The unrolls before those of ``Sequences``, from which a recurrent network's carry is found anew."""

    observation: Tree  # [T, N, ...]
    first: Array  # [T, N] bool
    carry: Tree  # [N, ...] act's, before their first step
    joined: Array  # [N] bool: it is stored, and the sequence begins where it ended


class Sequences(NamedTuple):
    """``N`` whole unrolls out of a store, each of one environment, with what a recurrent network needs."""

    observation: Tree  # [T, N, ...]
    first: Array  # [T, N] bool: an episode begins with that observation
    action: Tree  # [T, N, ...]
    reward: Array  # [T, N]
    terminated: Array  # [T, N] bool
    truncated: Array  # [T, N] bool, and not terminated
    following: Tree  # [T, N, ...] what each step led to; of a truncated episode its final observation
    known: Array  # [T, N] bool: it is stored
    valid: Array  # [T, N] bool: the record may be learned from
    carry: Tree  # [N, ...] act's, before the first step
    weight: Array  # [N] of its loss
    ids: Array  # [N, 2] int32: where it lies in the store, and the number of its unroll there; for feedback
    earlier: Earlier | None = None
    action_mask: Array | None = None  # [T, N, choices]
    following_mask: Array | None = None  # [T, N, choices]; all allowed where that is not known


class Priorities(NamedTuple):
    """What learn tells a store of a batch: how much there was to learn from each of its steps."""

    ids: Array  # [N, 2] int32: as they came with the batch
    priority: Array  # [N] float32, at least 0


class TrainState(NamedTuple):
    """What learn carries from call to call. Only ``params`` is ever sent to act."""

    params: Tree
    optimizer: Tree  # optax state
    step: Array  # [] int32: learn calls so far, which is also the version of params
    key: Array  # [] the learner's PRNG key; fold ``step`` into it


class Gradients(NamedTuple):
    """What grad sends to apply: the gradients of one batch, and what was seen of it. The mean of several is one."""

    tree: Tree  # as ``Algorithm.apply`` wants it
    metrics: Metrics  # [] float32 each
    learned: Array  # [] float32: 1 where rewards, metrics and gradients are finite, else less
    rewards: Array  # [] float32: 1 where the rewards are finite, as the environment gave them
