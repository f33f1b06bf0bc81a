"""The host's side of an unroll: a block of NumPy arrays that environments write into and that learn reads.

With several seeds the rows of all of them lie side by side, ``[T, K * B]``, and are handed to compiled functions with
the seed axis first, ``[K, T, B]``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from weft.core.buffers import timestep_buffers
from weft.core.specs import EnvSpec
from weft.core.trees import tree_map
from weft.core.types import Acted, Array, Finals, Timestep, Tree, Unroll
from weft.graph.loops import policy_view
from weft.runtimes.hosted.act_call import ActCall
from weft.runtimes.hosted.blocks import Block, as_unroll, seen

NumpyArray = np.ndarray[Any, Any]


class Ended(NamedTuple):
    """An episode that ended in an unroll."""

    step: int  # the unroll's step that ended it, from 0
    row: int
    episode_return: float
    length: int


class UnrollBuffer:
    """``block`` holds T steps of ``envs`` environments for each of ``seeds`` seeds (0: one, without a seed axis).

    ``outs[t]`` is what the environments write after step t - 1, ``views[t]`` the same arrays as act sees them at step
    t. The block is the caller's.
    """

    def __init__(self, spec: EnvSpec, block: Block, envs: int, seeds: int = 0) -> None:
        self.block, self.envs, self.seeds = block, envs, seeds
        self.length = block.bootstrap.shape[0]
        rows = envs * max(seeds, 1)
        # Nothing reads a final observation after its step: one row of them is enough.
        final = timestep_buffers(spec, (rows,)).final_observation
        self.outs: list[Timestep] = [
            tree_map(lambda x, t=t: x[t], block.steps)._replace(final_observation=final) for t in range(self.length + 1)
        ]
        self.views: list[Timestep] = [self._by_seed(policy_view(out)) for out in self.outs]
        self._actions = list(block.action)
        self._seen_by: dict[ActCall, list[tuple[Array, ...]]] = {}
        self._cuts: list[tuple[int, Tree, Tree]] = []

    def seen_by(self, act: ActCall) -> list[tuple[Array, ...]]:
        """What act is given of each of ``views``; put together once."""
        known = self._seen_by.get(act)
        if known is None:
            known = self._seen_by[act] = [act.seen(view) for view in self.views]
        return known

    def by_step(self, noise: Tree) -> list[Tree]:
        """An unroll's noise cut into steps: ``[T, B, ...]`` or ``[K, T, B, ...]`` leaves to a list of T trees."""
        if self.seeds:
            noise = tree_map(lambda x: np.moveaxis(x, 1, 0), noise)
        if isinstance(noise, tuple) and noise:
            return list(zip(*noise, strict=True))  # several times as quick as a map for each step
        return [tree_map(lambda x, t=t: x[t], noise) for t in range(self.length)]

    def seen(self) -> Timestep:
        """What act saw in this unroll, ``[T, B, ...]`` or ``[K, T, B, ...]``. Views, not copies."""
        return self._time_by_seed(seen(self.block))  # type: ignore[no-any-return]

    def remember(self, t: int, acted: Acted) -> NumpyArray:
        """Keep what act gave at step t, extras too where it gave any; returns the actions as NumPy, rows in order."""
        for name, value in acted.extras.items():
            row = tree_map(lambda kept: kept[t], self.block.extras[name])
            tree_map(lambda place, x: np.copyto(place, self._flat(np.asarray(x))), row, value)
        return self.remember_action(t, acted.action)

    def remember_action(self, t: int, action: Array) -> NumpyArray:
        """Keep the actions of step t; returns them as NumPy, rows in order."""
        rows = self._flat(np.asarray(action)) if self.seeds else np.asarray(action)
        self._actions[t][...] = rows
        return rows

    def note_cuts(self, t: int, carry: Tree) -> None:
        """After step t: if an episode was truncated, keep its final observation and act's carry for later."""
        out = self.outs[t + 1]
        if not np.count_nonzero(out.truncated):  # as is usual; several times as quick as ``any``
            return
        if out.valid is None or np.count_nonzero(out.truncated & out.valid):
            self._cuts.append((t, carry, tree_map(np.copy, out.final_observation)))

    def finish(
        self, params: Tree, carry: Tree, bootstrap: Callable[[Tree, Tree, Tree], Array], last: Array | None = None
    ) -> None:
        """Write the values of what would have followed; ``carry`` is act's after the last step.

        ``last`` are those that follow the last step, where they are known already.
        """
        steps, values = self.block.steps, self.block.bootstrap
        values[:-1] = 0.0
        if last is None:
            last = bootstrap(params, carry, self.views[-1].observation)
        values[-1] = self._flat(np.asarray(last))
        for t, then, final in self._cuts:
            cut = self._flat(np.asarray(bootstrap(params, then, self._by_seed(final))))
            truncated = np.asarray(steps.truncated[t + 1])
            values[t] = np.where(truncated.reshape(truncated.shape + (1,) * (cut.ndim - 1)), cut, values[t])
        if self.block.finals is not None:
            self._write_finals(self.block.finals)
        self._cuts.clear()

    def _write_finals(self, finals: Finals) -> None:
        """The final observations of the episodes that were cut, in the order in which they were."""
        steps, place = self.block.steps, np.asarray(finals.step)
        place[...] = -1
        for t, _, final in self._cuts:
            cut = steps.truncated[t + 1] if steps.valid is None else steps.truncated[t + 1] & steps.valid[t + 1]
            for row in np.flatnonzero(cut):
                at = int(np.count_nonzero(place[:, row] >= 0))
                if at == len(place):  # cut more often than its environment's spec says: a store leaves the rest out
                    continue
                place[at, row] = t
                tree_map(lambda kept, x, at=at, row=row: np.copyto(kept[at, row], x[row]), finals.observation, final)

    def forget_cuts(self) -> None:
        """Drop what an unroll that will not be finished has left behind."""
        self._cuts.clear()

    def assemble(self, start: Tree) -> Unroll:
        """The unroll, once finished; ``start`` is act's carry before the first step. Views, not copies."""
        unroll = as_unroll(self.block)
        last = self.views[-1]
        timed = unroll._replace(carry=None, last_observation=None, last_first=None)  # type: ignore[arg-type]
        by_seed: Unroll = self._time_by_seed(timed)
        return by_seed._replace(
            carry=start, last_observation=last.observation, last_first=last.terminated | last.truncated
        )

    def roll(self, into: UnrollBuffer | None = None) -> None:
        """What followed this unroll begins the next one, in this buffer or ``into`` another."""
        following = self if into is None else into
        tree_map(lambda new, old: np.copyto(new[0], old[-1]), following.block.steps, self.block.steps)

    def count_episodes(
        self, episode_return: Array, episode_length: Array, episodes: list[list[Ended]]
    ) -> tuple[NumpyArray, NumpyArray]:
        """Append the episodes that ended in this unroll, by step and row; returns the totals of the unfinished ones.

        A step that only resets is part of no episode; what it cuts off is told of nobody. An episode whose return so
        far is NaN, that is not known, is not told when it ends. Of several agents their mean counts.
        """
        after = tree_map(lambda x: x[1:], self.block.steps)
        ended = after.terminated | after.truncated
        counted = np.ones_like(ended) if after.valid is None else after.valid
        reward = np.asarray(after.reward)
        reward = reward.mean(-1, dtype=np.float64) if reward.ndim > 2 else reward
        rewards = np.cumsum(reward, axis=0, dtype=np.float64)
        lengths = np.cumsum(counted, axis=0, dtype=np.int64)
        running, length = np.array(episode_return), np.array(episode_length)
        for t, row in np.argwhere(ended):
            total, steps = running[row] + rewards[t, row], length[row] + lengths[t, row]
            if counted[t, row] and not np.isnan(running[row]):
                episodes[row // self.envs].append(Ended(int(t), int(row), float(total), int(steps)))
            running[row], length[row] = -rewards[t, row], -lengths[t, row]
        return running + rewards[-1], length + lengths[-1]

    def _flat(self, x: NumpyArray) -> NumpyArray:
        return x.reshape((-1, *x.shape[2:])) if self.seeds else x

    def _by_seed(self, tree: Tree) -> Tree:
        if not self.seeds:
            return tree
        return tree_map(lambda x: x.reshape((self.seeds, self.envs, *x.shape[1:])), tree)

    def _time_by_seed(self, tree: Tree) -> Tree:
        if not self.seeds:
            return tree
        split = tree_map(lambda x: x.reshape((x.shape[0], self.seeds, self.envs, *x.shape[2:])), tree)
        return tree_map(lambda x: np.moveaxis(x, 1, 0), split)
