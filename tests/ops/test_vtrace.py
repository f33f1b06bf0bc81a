import jax
import jax.numpy as jnp
import numpy as np
import pytest

from weft.ops import gae, vtrace

DISCOUNT, TRACE_DECAY = 0.97, 0.9
NAMES = ("reward", "value", "bootstrap", "terminated", "truncated")
jitted = jax.jit(vtrace)


def slow_vtrace(case, discount, trace_decay, clip_rho, clip_c):
    """The sum over the rest of the episode as in the paper's equation (1), and the advantage of its section 4.2."""
    steps, envs = case.reward.shape
    target, advantage = np.array(case.value, np.float64), np.zeros((steps, envs))

    def ends(t, b):
        return case.terminated[t, b] or case.truncated[t, b] or t == steps - 1

    def following(t, b):
        if case.terminated[t, b]:
            return 0.0
        return float(case.bootstrap[t, b]) if ends(t, b) else float(case.value[t + 1, b])

    for b in range(envs):
        for s in range(steps):
            if not case.valid[s, b]:
                continue
            product = 1.0
            for t in range(s, steps):
                ratio = float(np.exp(case.log_ratio[t, b]))
                error = float(case.reward[t, b]) + discount * following(t, b) - float(case.value[t, b])
                target[s, b] += product * min(clip_rho, ratio) * error
                if ends(t, b):
                    break
                product *= discount * trace_decay * min(clip_c, ratio)
    for b in range(envs):
        for s in range(steps):
            if case.valid[s, b]:
                q = following(s, b)
                if not ends(s, b):
                    q = trace_decay * target[s + 1, b] + (1 - trace_decay) * q
                rho = min(clip_rho, float(np.exp(case.log_ratio[s, b])))
                advantage[s, b] = rho * (float(case.reward[s, b]) + discount * q - float(case.value[s, b]))
    return target, advantage


@pytest.mark.parametrize(("trace_decay", "clip_rho", "clip_c"), [(1.0, 1.0, 1.0), (0.9, 1.5, 0.8)])
def test_matches_a_slow_loop(case, trace_decay, clip_rho, clip_c):
    arguments = (DISCOUNT, trace_decay, clip_rho, clip_c)
    target, advantage = jitted(*case.arrays(*NAMES, "log_ratio"), *arguments, case.valid)
    expected_target, expected_advantage = slow_vtrace(case, *arguments)
    np.testing.assert_allclose(target, expected_target, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(advantage, expected_advantage, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("trace_decay", [1.0, 0.8])
def test_matches_rlax_without_truncation(only_terminations, rlax, trace_decay):
    c = only_terminations
    target, advantage = jitted(*c.arrays(*NAMES, "log_ratio"), DISCOUNT, trace_decay, 1.3, 1.0)
    following = jnp.concatenate([c.value[1:], np.nan_to_num(c.bootstrap[-1:])])
    discounts = jnp.where(c.terminated, 0.0, DISCOUNT)

    def oracle(value, following, reward, discount, log_ratio):
        return rlax.vtrace_td_error_and_advantage(
            value, following, reward, discount, jnp.exp(log_ratio), trace_decay, 1.3, 1.3
        )

    expected = jax.vmap(oracle, 1, 1)(*c.arrays("value"), following, *c.arrays("reward"), discounts, c.log_ratio)
    np.testing.assert_allclose(target - c.value, expected.errors, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(advantage, expected.pg_advantage, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("trace_decay", [1.0, 0.9])
def test_on_policy_it_is_gae(case, trace_decay):
    arrays = case.arrays(*NAMES)
    target, advantage = jitted(
        *arrays, jnp.zeros_like(arrays[0]), DISCOUNT, trace_decay, clip_rho=1.0, clip_c=2.0, valid=case.valid
    )
    expected_advantage, expected_target = gae(*arrays, DISCOUNT, trace_decay, case.valid)
    np.testing.assert_allclose(target, expected_target, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(advantage, expected_advantage, rtol=1e-5, atol=1e-5)


def test_by_hand():
    # ratios 2, 1/2, 4 clipped at 1 to rho = c = 1, 1/2, 1; discount 1/2; the last step is truncated with bootstrap 4
    def column(*numbers):
        return jnp.asarray(numbers, jnp.float32)[:, None]

    no = jnp.zeros((3, 1), bool)
    log_ratio = jnp.log(column(2, 0.5, 4))
    arguments = column(1, 2, 4), column(2, 4, 8), column(0, 0, 4), no, no.at[2].set(True), log_ratio
    target, advantage = vtrace(*arguments, 0.5)
    # last: 4 + 2 - 8 = -2; middle: (2 + 4 - 4)/2 + (-2)/2/2 = 0.5; first: (1 + 2 - 2) + 0.5/2 = 1.25
    np.testing.assert_allclose(target[:, 0], (3.25, 4.5, 6), rtol=1e-6)
    # last: -2; middle: (2 + 6/2 - 4)/2 = 0.5; first: 1 + 4.5/2 - 2 = 1.25
    np.testing.assert_allclose(advantage[:, 0], (1.25, 0.5, -2), rtol=1e-6)


def test_the_steps_own_weight_can_be_left_out(case):
    """The targets stay, and an advantage is that of the step without its own ratio: what follows is still corrected."""
    arrays = [*case.arrays(*NAMES), jnp.nan_to_num(case.log_ratio)]
    target, advantage = vtrace(*arrays, DISCOUNT, TRACE_DECAY, valid=case.valid)
    same_target, without = vtrace(*arrays, DISCOUNT, TRACE_DECAY, valid=case.valid, weigh=False)
    np.testing.assert_array_equal(target, same_target)
    np.testing.assert_allclose(advantage, jnp.minimum(1.0, jnp.exp(arrays[-1])) * without, rtol=1e-5)
    assert not np.allclose(advantage, without)


def test_a_huge_ratio_is_just_clipped():
    shape = (4, 2)
    zeros = jnp.zeros(shape)
    no = jnp.zeros(shape, bool)
    target, advantage = vtrace(jnp.ones(shape), zeros, zeros, no, no, jnp.full(shape, 1e3), 0.9)
    expected, _ = vtrace(jnp.ones(shape), zeros, zeros, no, no, jnp.zeros(shape), 0.9)
    np.testing.assert_array_equal(target, expected)
    assert np.isfinite(advantage).all()
