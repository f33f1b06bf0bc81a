"""gymnax's environments through Weft's protocol."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from contextlib import nullcontext
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from weft.core.errors import EnvironmentFault, MissingExtra, UnknownName
from weft.core.specs import Box, Discrete
from weft.envs.autoreset import advance, begin
from weft.envs.builtin import load as load_builtin
from weft.envs.gymnax import GymnaxEnv, load, names


@cache
def loaded(name: str) -> GymnaxEnv:
    return load(name)


@cache
def rollout(name: str, steps: int, batch: int) -> Any:
    """Random play with auto-reset under jit and vmap: (states before, actions, timesteps), each ``[steps, batch]``."""
    env = loaded(name)
    action = env.spec.action

    def draw(key: jax.Array) -> jax.Array:
        if isinstance(action, Discrete):
            return jax.random.randint(key, (batch,), 0, action.n)
        return jax.random.uniform(key, (batch, *action.shape), minval=-1.0, maxval=1.0)

    def run(key: jax.Array) -> Any:
        def step(state: Any, key: jax.Array) -> Any:
            act_key, env_key = jax.random.split(key)
            actions = draw(act_key)
            stepped, timestep = jax.vmap(lambda s, a, k: advance(env, s, a, k))(
                state, actions, jax.random.split(env_key, batch)
            )
            return stepped, (state, actions, timestep)

        state, _ = jax.vmap(lambda k: begin(env, k))(jax.random.split(key, batch))
        return jax.lax.scan(step, state, jax.random.split(key, steps))[1]

    return jax.jit(run)(jax.random.key(0))


def test_spaces_are_converted() -> None:
    cartpole, pendulum, breakout = (loaded(n).spec for n in ("CartPole-v1", "Pendulum-v1", "Breakout-MinAtar"))
    assert cartpole.name == "gymnax:CartPole-v1"
    assert cartpole.observation == load_builtin("CartPole-v1").spec.observation
    assert cartpole.native_action == Discrete(2)
    assert cartpole.max_episode_steps == 500
    assert cartpole.pure
    assert pendulum.native_action == Box((1,), "float32", -2.0, 2.0)
    assert pendulum.action == Box((1,), "float32", -1.0, 1.0)
    assert breakout.observation == Box((10, 10, 4), "float32", 0.0, 1.0)


def test_the_dtype_is_the_true_one_where_gymnaxs_space_is_wrong() -> None:
    assert loaded("Catch-bsuite").spec.observation == Box((10, 5), "float32", 0.0, 1.0)  # gymnax says integers


@pytest.mark.parametrize("name", ["CartPole-v1", "Breakout-MinAtar"])
def test_random_play_ends_where_gymnax_ends(name: str) -> None:
    """The transition is gymnax's own ``step_env``, and terminated or truncated is exactly its end."""
    env = loaded(name)
    states, actions, timesteps = rollout(name, 300, 4)
    key = jax.random.key(7)

    def both(state: Any, action: jax.Array) -> Any:
        theirs = env.environment.step_env(key, state, action, env.params)
        return env.step(state, action, key), (theirs[0], theirs[2], theirs[3])

    flat = jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), (states, actions))
    with pytest.warns() if name == "Breakout-MinAtar" else nullcontext():  # gymnax's own idioms, called here directly
        (_, ours), (observation, reward, ended) = jax.jit(jax.vmap(both))(*flat)
    np.testing.assert_allclose(ours.observation, observation, rtol=1e-6)
    np.testing.assert_array_equal(ours.reward, reward)
    np.testing.assert_array_equal(ours.terminated | ours.truncated, ended)
    assert int(np.asarray(timesteps.terminated).sum()) > 5
    assert not np.asarray(timesteps.truncated).any()
    assert np.isfinite(np.asarray(timesteps.observation)).all()


def test_the_limit_truncates_and_does_not_terminate() -> None:
    _, _, timesteps = rollout("Pendulum-v1", 401, 2)
    truncated = np.asarray(timesteps.truncated)
    assert np.nonzero(truncated[:, 0])[0].tolist() == [199, 399]
    assert not np.asarray(timesteps.terminated).any()


@pytest.mark.parametrize("name", ["CartPole-v1", "Breakout-MinAtar"])
def test_at_the_limit_the_two_ends_are_told_apart(name: str) -> None:
    """Breakout stores in its state that it ended: the limit must not pass for a termination."""
    env = loaded(name)
    states, actions, timesteps = rollout(name, 300, 4)
    flat = jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), (states, actions, timesteps))
    states, actions, timesteps = jax.tree.map(lambda x: x[:600], flat)
    limit = env.spec.max_episode_steps
    assert limit is not None
    late = states.replace(time=jnp.full_like(states.time, limit - 1))
    _, transition = jax.jit(jax.vmap(env.step, (0, 0, None)))(late, actions, jax.random.key(0))
    assert transition.truncated.all()
    np.testing.assert_array_equal(transition.terminated, timesteps.terminated)
    assert 0 < int(transition.terminated.sum()) < 600


def test_cartpole_agrees_with_ours() -> None:
    """Two JAX writings of one environment: same dynamics, reward and ends from the same states."""
    from weft.envs.builtin.cartpole import CartPole, CartPoleState

    states, actions, _ = rollout("CartPole-v1", 300, 4)
    states, actions = jax.tree.map(lambda x: x.reshape(-1), (states, actions))
    key = jax.random.key(0)
    _, theirs = jax.jit(jax.vmap(lambda s, a: loaded("CartPole-v1").step(s, a, key)))(states, actions)
    body = jnp.stack([states.x, states.x_dot, states.theta, states.theta_dot], axis=1)
    _, ours = jax.jit(jax.vmap(lambda b, t, a: CartPole().step(CartPoleState(b, t), a, key)))(
        body, states.time, actions
    )
    np.testing.assert_allclose(ours.observation, theirs.observation, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(ours.terminated, theirs.terminated)
    np.testing.assert_array_equal(ours.reward, theirs.reward)


def test_an_unknown_name_says_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'gymnax:Breakout-MinAtar'"):
        load("breakout-minatar")


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "gymnax" else real(name, *a))
    for ask in (names, lambda: load("CartPole-v1")):
        with pytest.raises(MissingExtra, match=r"pip install 'weft\[gymnax\]'"):
            ask()


def test_what_gymnax_itself_cannot_run_is_refused_when_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    from gymnax.environments.classic_control.cartpole import CartPole

    def broken(self: Any, *arguments: Any) -> Any:
        raise IndexError("too many indices")

    monkeypatch.setattr(CartPole, "step_env", broken)
    with pytest.raises(EnvironmentFault, match=r"'gymnax:CartPole-v1'.*IndexError: too many indices.*JAX") as caught:
        load("CartPole-v1")
    assert isinstance(caught.value.__cause__, IndexError)


def test_the_adapter_alone_does_not_load_gymnax() -> None:
    code = "import sys; import weft.envs.gymnax; assert 'gymnax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
