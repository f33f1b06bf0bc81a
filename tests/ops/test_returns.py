from functools import partial

import jax
import numpy as np
import pytest

from weft.core.errors import ConfigError
from weft.ops import discounted_return, gae, n_step_return

DISCOUNT, TRACE_DECAY = 0.97, 0.9
WITH_VALUE = ("reward", "value", "bootstrap", "terminated", "truncated")
WITHOUT = ("reward", "bootstrap", "terminated", "truncated")


def slow_n_step(case, discount, n):
    """Rewards one by one until n are summed, the episode ends or the unroll does; then the value of what follows."""
    steps, envs = case.reward.shape
    result = np.array(case.value, np.float64)
    for b in range(envs):
        for t in range(steps):
            if not case.valid[t, b]:
                continue
            total, weight, k = 0.0, 1.0, t
            while True:
                total += weight * float(case.reward[k, b])
                weight *= discount
                if case.terminated[k, b]:
                    break
                if case.truncated[k, b] or k == steps - 1:
                    total += weight * float(case.bootstrap[k, b])
                    break
                if k - t + 1 == n:
                    total += weight * float(case.value[k + 1, b])
                    break
                k += 1
            result[t, b] = total
    return result


@pytest.mark.parametrize("n", [1, 3, 23, 100])
def test_n_step_matches_a_slow_loop(case, n):
    result = jax.jit(partial(n_step_return, n=n))(*case.arrays(*WITH_VALUE), DISCOUNT, valid=case.valid)
    np.testing.assert_allclose(result, slow_n_step(case, DISCOUNT, n), rtol=1e-5, atol=1e-5)


def test_discounted_return_is_the_longest_n_step_return(case):
    result = jax.jit(discounted_return)(*case.arrays(*WITHOUT), DISCOUNT, case.valid)
    expected = np.where(case.valid, slow_n_step(case, DISCOUNT, 10**9), 0.0)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_the_target_of_gae_is_the_weighted_mean_of_n_step_returns(case):
    """(1 - λ) λ^(n-1) for each n, and what is left on the longest: the definition."""
    longest = case.reward.shape[0]
    expected = TRACE_DECAY**longest * slow_n_step(case, DISCOUNT, 10**9)
    for n in range(1, longest + 1):
        expected += (1 - TRACE_DECAY) * TRACE_DECAY ** (n - 1) * slow_n_step(case, DISCOUNT, n)
    _, result = jax.jit(gae)(*case.arrays(*WITH_VALUE), DISCOUNT, TRACE_DECAY, case.valid)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_n_step_needs_a_reward(case):
    with pytest.raises(ConfigError, match=r"n = 0.*at least 1"):
        n_step_return(*case.arrays(*WITH_VALUE), DISCOUNT, 0)
