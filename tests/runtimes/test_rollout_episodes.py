"""Episodes counted by both loops, against a slow count of one step after the other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import Counter, Probe, bound

from weft.core.specs import Box, Discrete, EnvSpec
from weft.core.types import Acted
from weft.runtimes.compiled.rollout import Actor, make_rollout
from weft.runtimes.hosted.blocks import allocate_block, block_schema
from weft.runtimes.hosted.unroll_buffer import UnrollBuffer


def count_slowly(rewards, ended, valid):
    """The episodes of [T, B] records in time order: (step, row, return, length); and what is left of the last ones."""
    length, rows = rewards.shape
    total, steps = [0.0] * rows, [0] * rows
    found = []
    for t in range(length):
        for row in range(rows):
            if not valid[t, row]:
                continue
            total[row] += float(rewards[t, row])
            steps[row] += 1
            if ended[t, row]:
                found.append((t, row, total[row], steps[row]))
                total[row], steps[row] = 0.0, 0
    return found, total, steps


@pytest.mark.parametrize("next_step_reset", [False, True])
@pytest.mark.parametrize("seeds", [0, 3])
def test_the_host_counts_right_over_many_unrolls(next_step_reset, seeds):
    length, envs, unrolls = 5, 4, 6
    spec = EnvSpec("toys:Counter", Box((2,)), Discrete(2), next_step_reset=next_step_reset)
    rows = envs * max(seeds, 1)
    acted = Acted(jax.ShapeDtypeStruct((rows,), jnp.int32), (), {})
    block = allocate_block(block_schema(spec, length, rows, acted, extras=False))
    buffer = UnrollBuffer(spec, block, envs, seeds)
    random = np.random.default_rng(seeds)
    shape = (length * unrolls, rows)
    rewards = random.integers(-5, 6, shape).astype(np.float32)
    terminated, truncated = random.random(shape) < 0.2, random.random(shape) < 0.1
    ended = terminated | truncated
    valid = np.ones(shape, np.bool_)
    if next_step_reset:  # the step after an end only resets: no reward, and marked as an end that does not count
        for t in range(1, len(valid)):
            valid[t] = ~(ended[t - 1] & valid[t - 1])
            rewards[t][~valid[t]], terminated[t][~valid[t]], truncated[t][~valid[t]] = 0.0, False, True
        ended = terminated | truncated
    episodes: list = [[] for _ in range(max(seeds, 1))]
    totals, lengths = np.zeros(rows), np.zeros(rows, np.int64)
    for k in range(unrolls):
        for t in range(length):
            out, at = buffer.outs[t + 1], k * length + t
            out.reward[:], out.terminated[:], out.truncated[:] = rewards[at], terminated[at], truncated[at]
            if out.valid is not None:
                out.valid[:] = valid[at]
        totals, lengths = buffer.count_episodes(totals, lengths, episodes)
        buffer.roll()
    expected, left, steps = count_slowly(rewards, ended, valid)
    assert len(expected) > 20
    for seed in range(max(seeds, 1)):
        assert episodes[seed] == _in_unrolls(expected, length, envs, seed)
    np.testing.assert_array_equal(totals, left)
    np.testing.assert_array_equal(lengths, steps)


def _in_unrolls(expected, length, envs, seed):
    return [(t % length, row, total, n) for t, row, total, n in expected if row // envs == seed]


def test_the_compiled_loop_counts_right_over_many_unrolls():
    algorithm, _ = bound(Probe(unroll=5), Counter(length=3, ends="terminated"), envs=3)
    rollout = make_rollout([Actor("act", algorithm)], Staggered())
    state = jax.jit(rollout.init)(jnp.int32(0), jnp.arange(3))
    unroll = jax.jit(rollout.unroll)
    params = {"act": {"weight": jnp.float32(0.0)}}
    blocks, slices = [], []
    for _ in range(4):
        state, block, found = unroll(params, state)
        blocks.append(jax.device_get(block["act"]))
        slices.append(jax.device_get(found["act"]))
    rewards = np.concatenate([b.reward for b in blocks])
    ended = np.concatenate([b.terminated | b.truncated for b in blocks])
    expected, left, steps = count_slowly(rewards, ended, np.ones_like(ended))
    assert len({row for _, row, _, _ in expected}) == 3
    assert len({n for _, _, _, n in expected}) > 1
    for name, pick in (("episodes", lambda e: 1), ("return_sum", lambda e: e[2]), ("length_sum", lambda e: e[3])):
        by_step = [sum(pick(e) for e in expected if e[0] == t) for t in range(20)]
        np.testing.assert_array_equal(np.concatenate([getattr(s, name) for s in slices]), by_step)
    np.testing.assert_array_equal(state.running["act"].returns, left)
    np.testing.assert_array_equal(state.running["act"].lengths, steps)
    assert int(state.step) == 20


class Staggered(Counter):
    """Episodes whose length is drawn at reset, from 1 to 4."""

    def step(self, state, action, key):
        state, transition = super().step(state, action, key)
        return state, transition._replace(terminated=state[0] >= 1 + jnp.floor(state[1] * 4), truncated=False)
