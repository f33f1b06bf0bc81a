import jax
import jax.numpy as jnp
import numpy as np
import pytest

from weft.core.errors import ConfigError
from weft.ops import approx_kl, clipped_surrogate, policy_gradient, value_loss


@pytest.fixture
def numbers():
    rng = np.random.default_rng(0)
    return [rng.normal(size=(64,)).astype(np.float32) for _ in range(3)]


@pytest.mark.parametrize("dual_clip", [None, 1.5])
def test_clipped_surrogate_matches_numpy(numbers, dual_clip):
    log_ratio, advantage, _ = numbers
    expected = []
    for lr, a in zip(log_ratio.astype(np.float64), advantage.astype(np.float64), strict=True):
        ratio = np.exp(lr)
        objective = min(ratio * a, min(max(ratio, 0.8), 1.2) * a)
        if dual_clip is not None and a < 0:
            objective = max(objective, dual_clip * a)
        expected.append(-objective)
    np.testing.assert_allclose(clipped_surrogate(log_ratio, advantage, 0.2, dual_clip), expected, rtol=1e-5)


def test_clipped_surrogate_matches_rlax_with_its_gradient(numbers, rlax):
    log_ratio, advantage = map(jnp.asarray, numbers[:2])

    def ours(log_ratio):
        return jnp.mean(clipped_surrogate(log_ratio, advantage, 0.2))

    def oracle(log_ratio):
        return rlax.clipped_surrogate_pg_loss(jnp.exp(log_ratio), advantage, 0.2)

    np.testing.assert_allclose(ours(log_ratio), oracle(log_ratio), rtol=1e-5)
    np.testing.assert_allclose(jax.grad(ours)(log_ratio), jax.grad(oracle)(log_ratio), rtol=1e-5, atol=1e-7)


def test_dual_clip_binds_only_below():
    """Ratio 5, clip 0.2, dual clip 3: with advantage -1 the loss is 3 and not 5; with +1 it is -1.2 either way."""
    log_ratio, advantage = jnp.log(jnp.asarray([5.0, 5.0])), jnp.asarray([-1.0, 1.0])
    np.testing.assert_allclose(clipped_surrogate(log_ratio, advantage, 0.2), [5.0, -1.2], rtol=1e-6)
    np.testing.assert_allclose(clipped_surrogate(log_ratio, advantage, 0.2, 3.0), [3.0, -1.2], rtol=1e-6)


@pytest.mark.parametrize("log_ratio", [-1e4, -100.0, 100.0, 1e4])
@pytest.mark.parametrize("advantage", [-1.0, 0.0, 1.0])
def test_extreme_ratios_give_finite_losses_and_gradients(log_ratio, advantage):
    loss, gradient = jax.value_and_grad(clipped_surrogate)(log_ratio, advantage, 0.2)
    assert np.isfinite(loss)
    assert np.isfinite(gradient)


def test_policy_gradient_is_reinforce(numbers):
    log_prob, advantage, _ = map(jnp.asarray, numbers)
    np.testing.assert_allclose(policy_gradient(log_prob, advantage), -log_prob * advantage)
    gradients = jax.grad(lambda p, a: policy_gradient(p, a).sum(), (0, 1))(log_prob, advantage)
    np.testing.assert_allclose(gradients[0], -advantage)
    np.testing.assert_array_equal(gradients[1], jnp.zeros_like(advantage))


@pytest.mark.parametrize("clip", [None, 0.3])
def test_value_loss_matches_numpy(numbers, clip):
    value, target, old = numbers

    expected = 0.5 * (value - target) ** 2
    if clip is not None:
        moved = np.clip(value, old - clip, old + clip)
        expected = np.maximum(expected, 0.5 * (moved - target) ** 2)
    np.testing.assert_allclose(value_loss(value, target, old, clip), expected, rtol=1e-4, atol=1e-6)


def test_value_loss_holds_its_target_still(numbers):
    gradients = jax.grad(lambda v, t, o: value_loss(v, t, o, 0.3).sum(), (0, 1, 2))(*map(jnp.asarray, numbers))
    assert np.abs(gradients[0]).max() > 0.1
    np.testing.assert_array_equal(gradients[1], 0.0)
    np.testing.assert_array_equal(gradients[2], 0.0)


def test_value_clip_needs_the_old_value(numbers):
    with pytest.raises(ConfigError, match="old_value"):
        value_loss(*map(jnp.asarray, numbers[:2]), clip=0.2)


def test_approx_kl_estimates_the_divergence():
    old, new = np.asarray([0.5, 0.3, 0.2]), np.asarray([0.4, 0.4, 0.2])
    estimate = old @ np.asarray(approx_kl(jnp.log(new / old)))  # its exact expectation under the old policy
    np.testing.assert_allclose(estimate, np.sum(old * np.log(old / new)), rtol=1e-5)
    assert (approx_kl(jnp.linspace(-3, 3, 101)) >= 0.0).all()
    # near 0, half the square: a plain exp(x) - 1 would leave nothing of it
    np.testing.assert_allclose(approx_kl(jnp.float32(1e-3)), 0.5e-6, rtol=1e-2)
    assert np.isfinite(approx_kl(jnp.array([-1e3, 1e3]))).all()
