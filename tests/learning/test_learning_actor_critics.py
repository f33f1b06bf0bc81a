"""IMPALA and A2C with their tuned settings learn to a threshold, in seconds. Longer figures are in the docs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from toys import bound

import weft
from weft.algorithms.tuned import tuned
from weft.runtimes.compiled.rollout import Actor, make_rollout

THRESHOLDS = {  # algorithm, environment: steps, the return to reach (random play, the best possible)
    ("impala", "weft:CartPole-v1"): (250_000, 475),  # 22, 500
    ("a2c", "weft:CartPole-v1"): (250_000, 475),
    ("impala", "weft:Memory-v0"): (150_000, 0.95),  # 0, 1; with a recurrent network
    ("a2c", "weft:Catch-v0"): (150_000, 0.9),  # -0.6, 1
    ("impala", "CartPole-v1"): (250_000, 475),
}


AT_LENGTH = {("a2c", "weft:CartPole-v1"), ("impala", "CartPole-v1")}


@pytest.mark.parametrize(
    ("algorithm", "environment"),
    [pytest.param(*row, marks=[pytest.mark.slow] if row in AT_LENGTH else []) for row in THRESHOLDS],
    ids=["-".join(row) for row in THRESHOLDS],
)
def test_learns(algorithm, environment, tmp_path):
    steps, threshold = THRESHOLDS[algorithm, environment]
    run = weft.train(algorithm, environment, steps=steps, seed=1, root=tmp_path, quiet=True, tensorboard=False)
    assert run.summary["exit"] == "finished"
    assert run.summary["return_mean"] >= threshold


@pytest.mark.parametrize("lag", [2])
def test_impala_learns_from_batches_that_older_params_made(lag):
    """Act is always ``lag`` updates behind; the mean return of the last tenth of the run."""
    environment = "weft:CartPole-v1"
    _, source = bound(weft.IMPALA(), environment)
    row = tuned("impala", environment, source.spec)
    learn_steps = 250_000 // (row.envs * row.fields["unroll"])
    algorithm, source = bound(weft.IMPALA(**row.fields), environment, envs=row.envs, learn_steps=learn_steps)
    rollout = make_rollout([Actor("act", algorithm)], source.pure)

    def iteration(now, _):
        state, loop, behind = now  # behind: [lag + 1, ...] params, the oldest first
        loop, batches, slices = rollout.unroll({"act": jax.tree.map(lambda x: x[0], behind)}, loop)
        batch, episodes = batches["act"], slices["act"]
        state, metrics = algorithm.learn(state, batch)
        behind = jax.tree.map(lambda x, new: jnp.concatenate([x[1:], new[None]]), behind, state.params)
        return (state, loop, behind), (episodes.episodes.sum(), episodes.return_sum.sum(), metrics["approx_kl"])

    def run(seed):
        state = algorithm.init(jax.random.key(seed))
        behind = jax.tree.map(lambda x: jnp.stack([x] * (lag + 1)), state.params)
        start = (state, rollout.init(seed, jnp.arange(row.envs)), behind)
        return jax.lax.scan(iteration, start, None, length=learn_steps)[1]

    episodes, returns, moved = jax.jit(run)(jnp.int32(1))
    last = learn_steps // 10
    assert returns[-last:].sum() / episodes[-last:].sum() >= 475
    assert moved[lag : 10 * lag].max() > 1e-4  # they were stale
