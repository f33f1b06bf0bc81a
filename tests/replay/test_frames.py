"""Stacks of frames, each frame stored once: bit for bit the batches of a replay that stores every stack whole."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from weft.core.specs import FrameStack
from weft.core.types import Finals, Unroll
from weft.replay import PrioritisedReplay, SequenceReplay, UniformReplay
from weft.replay.on_host import HostReplay

LENGTH, ENVS, COUNT = 5, 3, 4
KEY = jax.random.key(3)
STACKS = [FrameStack(COUNT, axis, padding) for axis in (0, -1) for padding in ("zeros", "first")]


class Pictures:
    """Environments that show the newest frames of episodes that end at random."""

    def __init__(self, stack: FrameStack) -> None:
        self.stack, self.draw = stack, np.random.default_rng(2)
        self.shape = (2, 3) if stack.axis == 0 else (2, 3, 3)  # colours, where they lie last
        self.now = [self._reset() for _ in range(ENVS)]
        self.first = np.ones(ENVS, bool)

    def _frame(self):
        return self.draw.integers(1, 256, self.shape, np.uint8)

    def _reset(self):
        frame = self._frame()
        padding = np.zeros_like(frame) if self.stack.padding == "zeros" else frame
        return [padding] * (COUNT - 1) + [frame]

    def _shown(self, frames):
        return np.stack(frames) if self.stack.axis == 0 else np.concatenate(frames, -1)

    def unroll(self) -> Unroll:
        shape = (LENGTH, ENVS)
        seen = np.stack([np.stack([self._shown(f) for f in self.now])] * LENGTH)
        final, when = seen.copy(), np.full(shape, -1, np.int32)
        first, ends = np.zeros(shape, bool), np.zeros((2, *shape), bool)
        for t in range(LENGTH):
            first[t] = self.first
            for env in range(ENVS):
                seen[t, env] = self._shown(self.now[env])
                self.now[env] = [*self.now[env][1:], self._frame()]
                kind = self.draw.choice(3, p=[0.6, 0.2, 0.2])
                self.first[env] = kind > 0
                if kind:
                    ends[kind - 1, t, env] = True
                    if kind == 2:
                        cuts = int((when[:, env] >= 0).sum())
                        final[cuts, env], when[cuts, env] = self._shown(self.now[env]), t
                    self.now[env] = self._reset()
        last = np.stack([self._shown(f) for f in self.now])
        return Unroll(
            observation=seen, first=first, action=np.zeros(shape, np.int32), extras={},
            reward=self.draw.random(shape, np.float32), terminated=ends[0], truncated=ends[1],
            bootstrap=np.zeros(shape, np.float32), carry=(), last_observation=last, last_first=self.first.copy(),
            finals=Finals(final, when),
        )  # fmt: skip


@pytest.mark.parametrize("stack", STACKS, ids=str)
@pytest.mark.parametrize(
    "kind", [UniformReplay, pytest.param(PrioritisedReplay, marks=pytest.mark.slow), SequenceReplay]
)
def test_what_is_drawn_is_what_a_replay_of_whole_stacks_draws(kind, stack):
    """Over more unrolls than there are slots; every row of them is drawn, those of cut episodes too."""
    plain = kind(capacity=6 * LENGTH * ENVS, batch=64, begin=1, samples_per_insert=8.0, n_step=2)
    shared, pictures, stores = plain.of_frames(stack), Pictures(stack), {}
    draws = {replay: jax.jit(replay.draw) for replay in (plain, shared)}
    inserts = {replay: jax.jit(replay.insert) for replay in (plain, shared)}
    host = None
    for number in range(9):
        unroll = pictures.unroll()
        for replay in (plain, shared):
            held = stores.get(replay) or replay.init(unroll, KEY)
            stores[replay] = inserts[replay](held, unroll)
        if kind is not SequenceReplay:
            host = host or HostReplay(shared, unroll, KEY)
            host.insert(unroll)
        if number == 6 and host is not None:  # saved, and made again
            host = HostReplay(shared, unroll, KEY, jax.tree.map(lambda x: x, host.state))
        for _ in range(2):
            stores[plain], expected = draws[plain](stores[plain])
            stores[shared], batch = draws[shared](stores[shared])
            equal(batch, expected)
            if host is not None:
                into = jax.tree.map(lambda x: np.full((1, *x.shape), 77).astype(x.dtype), expected)
                host.draw(into)
                equal(jax.tree.map(lambda x: x[0], into), expected)
    assert np.asarray(expected.observation).any()


def equal(batch, expected):
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(batch), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=jax.tree_util.keystr(path))


def test_a_step_of_atari_takes_a_quarter_and_a_little_more():
    """84 x 84 x 4 in unrolls of 16, one episode of which may be cut: 9.7 kB a step in place of 31.8 kB."""
    pictures = jax.ShapeDtypeStruct((16, 1, 4, 84, 84), np.uint8)
    scalar = {name: jax.ShapeDtypeStruct((16, 1), kind) for name, kind in (("f", np.float32), ("b", np.bool_))}
    unroll = Unroll(
        observation=pictures, first=scalar["b"], action=jax.ShapeDtypeStruct((16, 1), np.int32), extras={},
        reward=scalar["f"], terminated=scalar["b"], truncated=scalar["b"], bootstrap=scalar["f"], carry=(),
        last_observation=jax.ShapeDtypeStruct((1, 4, 84, 84), np.uint8),
        last_first=jax.ShapeDtypeStruct((1,), np.bool_),
        finals=Finals(jax.ShapeDtypeStruct((1, 1, 4, 84, 84), np.uint8), jax.ShapeDtypeStruct((1, 1), np.int32)),
    )  # fmt: skip
    plain = UniformReplay(capacity=16_000)
    sizes = []
    for replay in (plain, plain.of_frames(FrameStack(4))):
        ring = jax.eval_shape(lambda replay=replay: replay.init(unroll, jax.random.key(0))).ring
        sizes.append(sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(ring)) / 16_000)
    assert sizes[0] == pytest.approx(31_765, rel=0.01)
    assert sizes[1] == pytest.approx(9_700, rel=0.02)
