import jax
import jax.numpy as jnp
import numpy as np
import pytest

from weft.ops import gae

DISCOUNT, TRACE_DECAY = 0.97, 0.9
NAMES = ("reward", "value", "bootstrap", "terminated", "truncated")
jitted = jax.jit(gae)


def slow_gae(case, discount, trace_decay):
    """From the definition: each advantage is the decayed sum of the errors that follow, up to the episode's end."""
    steps, envs = case.reward.shape
    advantage = np.zeros((steps, envs))
    for b in range(envs):
        for t in range(steps):
            weight = 1.0
            for k in range(t, steps):
                if not case.valid[k, b]:
                    break
                if case.terminated[k, b]:
                    following = 0.0
                elif case.truncated[k, b] or k == steps - 1:
                    following = float(case.bootstrap[k, b])
                else:
                    following = float(case.value[k + 1, b])
                error = float(case.reward[k, b]) + discount * following - float(case.value[k, b])
                advantage[t, b] += weight * error
                weight *= discount * trace_decay
                if case.terminated[k, b] or case.truncated[k, b]:
                    break
    return advantage


def test_matches_a_slow_loop(case):
    advantage, target = jitted(*case.arrays(*NAMES), DISCOUNT, TRACE_DECAY, case.valid)
    expected = slow_gae(case, DISCOUNT, TRACE_DECAY)
    np.testing.assert_allclose(advantage, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(target, expected + case.value, rtol=1e-5, atol=1e-5)


def test_matches_rlax_without_truncation(only_terminations, rlax):
    c = only_terminations
    advantage, _ = jitted(*c.arrays(*NAMES), DISCOUNT, TRACE_DECAY)
    values = jnp.concatenate([c.value, np.where(c.terminated[-1:], 0.0, c.bootstrap[-1:])])
    discounts = jnp.where(c.terminated, 0.0, DISCOUNT)
    oracle = jax.vmap(rlax.truncated_generalized_advantage_estimation, (1, 1, None, 1), 1)
    np.testing.assert_allclose(advantage, oracle(c.reward, discounts, TRACE_DECAY, values), rtol=1e-5, atol=1e-5)


def column(*numbers):
    return jnp.asarray(numbers, jnp.float32)[:, None]


def flags(*places):
    return jnp.zeros((3, 1), bool).at[jnp.asarray(places, int), 0].set(True)


@pytest.mark.parametrize(
    ("terminated", "truncated", "expected"),
    [
        # discount 0.5, trace decay 0.5; rewards 1, 2, 4; values 8, 16, 32; bootstrap 64 where read
        # nothing ends: deltas 1, 2, 4; from the back: 4, 2 + 4/4, 1 + 3/4
        ((), (), (1.75, 3.0, 4.0)),
        # terminated at 1: its delta is 2-16=-14 and takes nothing from later; the first: 1 - 14/4
        ((1,), (), (-2.5, -14.0, 4.0)),
        # truncated at 1: its delta is 2 + 0.5*64 - 16 = 18, and takes nothing from later; the first: 1 + 18/4
        ((), (1,), (5.5, 18.0, 4.0)),
        # terminated at the last: 4 - 32; then 2 - 28/4, 1 - 5/4
        ((2,), (), (-0.25, -5.0, -28.0)),
        # truncated at the last: as if the unroll just stopped
        ((), (2,), (1.75, 3.0, 4.0)),
        # both at 1: terminated
        ((1,), (1,), (-2.5, -14.0, 4.0)),
    ],
)
def test_by_hand(terminated, truncated, expected):
    reward, value, bootstrap = column(1, 2, 4), column(8, 16, 32), column(64, 64, 64)
    advantage, target = gae(reward, value, bootstrap, flags(*terminated), flags(*truncated), 0.5, 0.5)
    np.testing.assert_array_equal(advantage[:, 0], expected)
    np.testing.assert_array_equal(target[:, 0], np.add(expected, (8, 16, 32)))


def test_invalid_records_contribute_nothing():
    # the episode terminates at 0, record 1 only resets, record 2 is the new episode's first
    nan = jnp.nan
    reward, value, bootstrap = column(1, nan, 4), column(8, 16, 32), column(nan, nan, 64)
    valid = jnp.asarray([[True], [False], [True]])
    advantage, target = gae(reward, value, bootstrap, flags(0), flags(), 0.5, 0.5, valid)
    np.testing.assert_array_equal(advantage[:, 0], (-7, 0, 4))
    np.testing.assert_array_equal(target[:, 0], (1, 16, 36))


def test_discount_may_differ_by_record(case):
    arrays = case.arrays(*NAMES)
    scalar = jitted(*arrays, DISCOUNT, TRACE_DECAY, case.valid)
    array = jitted(*arrays, jnp.full(case.reward.shape, DISCOUNT), TRACE_DECAY, case.valid)
    np.testing.assert_allclose(scalar, array, rtol=1e-6, atol=1e-6)


def test_batch_and_rows_alone_agree(case):
    """An environment's advantage does not depend on which others are beside it."""
    whole, _ = jitted(*case.arrays(*NAMES), DISCOUNT, TRACE_DECAY, case.valid)
    half = [x[:, 8:] for x in case.arrays(*NAMES, "valid")]
    alone, _ = jitted(*half[:5], DISCOUNT, TRACE_DECAY, half[5])
    np.testing.assert_allclose(whole[:, 8:], alone, rtol=1e-6, atol=1e-6)
