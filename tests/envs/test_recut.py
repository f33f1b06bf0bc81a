"""Snapshots of environments, cut into other batches: every environment stands where it stood."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft.core.buffers import timestep_buffers
from weft.envs.jax_on_host import JaxOnHostFactory
from weft.envs.recut import cut_again
from weft.envs.registry import open_environment

BEFORE, AFTER = [(0, 2), (2, 2), (4, 2)], [(0, 1), (1, 4), (5, 1)]


def batch(factory: Any, first: int, rows: int) -> tuple[Any, Any]:
    env = factory(rows, 3, first)
    return env, timestep_buffers(env.spec, (rows,))


@pytest.mark.parametrize("name", ["CartPole-v1", "weft:CartPole-v1"])
def test_environments_go_on_exactly_in_other_batches(name: str) -> None:
    source = open_environment(name, vector="each")
    factory = source.host or JaxOnHostFactory(source.pure)
    actions = np.random.default_rng(0).integers(0, 2, (40, 6))
    whole, out = batch(factory, 0, 6)
    whole.reset(out)
    parts = [batch(factory, *place) for place in BEFORE]
    for env, own in parts:
        env.reset(own)
    for action in actions[:20]:
        whole.step(action, out)
        for (env, own), (first, rows) in zip(parts, BEFORE, strict=True):
            env.step(action[first : first + rows], own)
    snapshots = cut_again({str(k): env.snapshot() for k, (env, _) in enumerate(parts)}, BEFORE, AFTER)
    again = [batch(factory, *place) for place in AFTER]
    for k, (env, own) in enumerate(again):
        assert env.restore(snapshots[str(k)], own) == []
    for action in actions[20:]:
        whole.step(action, out)
        for (env, own), (first, rows) in zip(again, AFTER, strict=True):
            env.step(action[first : first + rows], own)
            np.testing.assert_array_equal(own.observation, out.observation[first : first + rows])
    for env in [whole, *(env for env, _ in parts + again)]:
        env.close()
