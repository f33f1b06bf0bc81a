"""Entities with masks: their order does not matter, and those that are not seen change nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weft
from weft.core.specs import Box, MultiBinary
from weft.envs.builtin.hide_and_seek import HideAndSeek
from weft.nets.actor_critic import actor_critic
from weft.nets.central import central_actor_critic
from weft.nets.entities import entities_of
from weft.runtimes.prepare.config import RunConfig, prepare

SPACE = {"self": Box((3,)), "boxes": Box((4, 2)), "boxes_seen": MultiBinary(4), "far": Box((2, 2))}


def seen(mask: list[int]) -> dict[str, jax.Array]:
    keys = jax.random.split(jax.random.key(1), 3)
    return {
        "self": jax.random.normal(keys[0], (3,)),
        "boxes": jax.random.normal(keys[1], (4, 2)),
        "boxes_seen": jnp.array(mask, jnp.int8),
        "far": jax.random.normal(keys[2], (2, 2)),
    }


def test_which_are_entities() -> None:
    assert entities_of(SPACE) == ["boxes"]
    assert entities_of(Box((4, 2))) == []


@pytest.mark.parametrize("recurrent", ["", "gru"])
@pytest.mark.parametrize("central", [False, True])
def test_a_set_has_no_order_and_what_is_out_of_sight_changes_nothing(central: bool, recurrent: str) -> None:
    build = central_actor_critic if central else actor_critic
    space = {"own": SPACE, "state": Box((2,))} if central else SPACE
    net = build(space, 5, hidden=(8, 8), recurrent=recurrent, recurrent_size=8, attention=8)  # type: ignore[arg-type]
    params = net.init(jax.random.key(0))

    def logits(observation: dict[str, jax.Array]) -> np.ndarray:
        whole = {"own": observation, "state": jnp.ones(2)} if central else observation
        return np.asarray(net.apply(params, net.carry, whole).logits)

    now, order = seen([1, 1, 0, 1]), jnp.array([3, 1, 0, 2])
    turned = {**now, "boxes": now["boxes"][order], "boxes_seen": now["boxes_seen"][order]}
    np.testing.assert_allclose(logits(now), logits(turned), rtol=1e-5, atol=1e-7)
    hidden = {**now, "boxes": now["boxes"].at[2].set(100.0)}
    np.testing.assert_array_equal(logits(now), logits(hidden))
    moved = {**now, "boxes": now["boxes"].at[1].set(100.0)}
    assert not np.allclose(logits(now), logits(moved))
    nothing = seen([0, 0, 0, 0])
    assert np.isfinite(logits(nothing)).all()


@pytest.mark.slow
def test_hide_and_seek_is_learned_with_attention(tmp_path) -> None:
    env = HideAndSeek(horizon=10)
    ppo = weft.PPO(unroll=10, minibatches=2, hidden=(16,), attention=16, recurrent="gru", recurrent_size=16)
    run = weft.train(ppo, env, envs=8, steps=160, seed=1, root=tmp_path, run="hide", quiet=True, tensorboard=False)
    assert run.summary["learn_steps"] == 2
    assert "Entities_0" in run.params["hider"].network["Encoder_0"]


def test_heads_must_divide_the_embedding() -> None:
    with pytest.raises(weft.ConfigError, match="attention must be a multiple of its 4 heads, got 6"):
        prepare(RunConfig(weft.PPO(attention=6), "weft:CartPole-v1", steps=4096, envs=16))
