"""A step's act is handed what it reads, and gives what it would give of everything."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import bound

import weft
from weft.core.types import Timestep
from weft.runtimes.compiled.replicas import Layout, Spread
from weft.runtimes.hosted.act_call import ActCall
from weft.runtimes.hosted.programs import act_programs

ROWS = 3
PARAMS = {"bias": jnp.arange(2.0), "critic": jnp.ones(5), "scale": jnp.float32(3)}
NOISE = jnp.linspace(0.0, 1.0, ROWS)
TIMESTEP = Timestep(
    observation=jnp.arange(6.0).reshape(ROWS, 2),
    reward=jnp.array([0.5, -1.0, 2.0]),
    terminated=jnp.array([True, False, False]),
    truncated=jnp.array([False, True, False]),
    final_observation=None,
    action_mask=None,
    valid=None,
)


def policy(params: Any, carry: Any, timestep: Timestep, noise: Any) -> Any:
    return timestep.observation @ params["bias"] + noise


def rewarded(params: Any, carry: Any, timestep: Timestep, noise: Any) -> Any:
    return jnp.where(timestep.truncated, timestep.reward, 0.0) * params["scale"] + carry


def blind(params: Any, carry: Any, timestep: Timestep, noise: Any) -> Any:
    return jnp.zeros(timestep.observation.shape[0]) + params["scale"]


def within_a_call(params: Any, carry: Any, timestep: Timestep, noise: Any) -> Any:
    return jax.jit(lambda p, t: t.observation[:, 0] * p["scale"])(params, timestep)


def handed(function: Any) -> tuple[ActCall, tuple[Any, ...]]:
    arguments = PARAMS, jnp.arange(float(ROWS)), TIMESTEP, NOISE
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arguments)
    return ActCall(function, Layout((jax.local_devices()[0],)), Spread.SPLIT, *one), arguments


@pytest.mark.parametrize(
    ("function", "params", "seen"),
    [
        (policy, ["bias"], ["observation"]),
        (rewarded, ["scale"], ["reward", "truncated"]),
        (blind, ["scale"], ["observation"]),  # which says how many environments there are
        (within_a_call, ["bias", "critic", "scale"], ["observation", "reward", "terminated", "truncated"]),
    ],
)
def test_what_is_handed_over_is_what_is_read_and_gives_the_same(function, params, seen):
    act, arguments = handed(function)
    given, shown = act.params(jax.tree.leaves(PARAMS)), act.seen(TIMESTEP)
    read = act.params_read(jax.tree.leaves(PARAMS))
    assert [id(leaf) for leaf in read] == [id(PARAMS[name]) for name in params]
    assert len(given) == 1, "all that is read, as one array"
    assert [id(leaf) for leaf in shown] == [id(getattr(TIMESTEP, name)) for name in seen]
    gave = act.call(given, arguments[1], shown, NOISE)
    np.testing.assert_array_equal(gave, jax.jit(function)(*arguments))


def test_what_a_callback_is_told_is_read():
    told = []

    def telling(params: Any, carry: Any, timestep: Timestep, noise: Any) -> Any:
        jax.debug.callback(lambda reward: told.append(reward.tolist()), timestep.reward)
        return noise

    act, arguments = handed(telling)
    jax.block_until_ready(act.call(act.params(jax.tree.leaves(PARAMS)), arguments[1], act.seen(TIMESTEP), NOISE))
    jax.effects_barrier()
    assert told == [TIMESTEP.reward.tolist()]


def test_ppo_acts_by_the_observation_and_the_actors_params():
    algorithm, _ = bound(weft.PPO(), "weft:CartPole-v1", envs=ROWS)
    programs = act_programs(algorithm, Layout((jax.local_devices()[0],)))
    leaves = jax.tree.leaves(algorithm.init(jax.random.key(0)).params)
    assert 2 * len(programs.act.params_read(leaves)) == len(leaves)
    assert len(programs.act_and_value.params_read(leaves)) == len(leaves)
    for act in (programs.act, programs.act_and_value):
        assert [leaf is TIMESTEP.observation for leaf in act.seen(TIMESTEP)] == [True]
