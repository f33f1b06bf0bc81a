"""VDN and QMIX: the mixer and the targets by hand, each agent's exploration, the team's reward, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import same, started, train_state

import weft
from weft.core.errors import ConfigError
from weft.core.specs import Box, Discrete, EnvSpec
from weft.core.types import Timestep, Transitions
from weft.envs.jax_on_host import JaxOnHostFactory
from weft.envs.protocol import EnvSource, Transition
from weft.nets import monotonic_mixer
from weft.runtimes.prepare.config import RunConfig, prepare

SMALL = {"unroll": 4, "hidden": (8,), "batch": 8, "samples_per_insert": 1.0, "capacity": 256, "learning_begins": 64}
AGENTS = ("a", "b", "c")


@dataclass(frozen=True)
class Crowd:
    """Three agents that see ``[time, own number]``; agent k gets ``time * (k + 1)``; episodes of three steps.

    Allowed is action ``(time + k) % 2``. With ``changing``, agent c is there only at the first step.
    """

    ends: str = "truncated"
    masked: bool = False
    changing: bool = False
    action: Discrete | Box = Discrete(2)  # noqa: RUF009  frozen

    @property
    def spec(self) -> EnvSpec:
        one = EnvSpec("toys:Crowd", Box((2,)), self.action, pure=True, action_mask=self.masked)
        return EnvSpec.of_agents("toys:Crowd", one, AGENTS, changing=self.changing, max_episode_steps=3)

    def action_mask(self, time):
        turn = (time + jnp.arange(3)) % 2
        return (jnp.arange(2)[None] == turn[:, None]).reshape(-1)

    def reset(self, key):
        return jnp.int32(0), self._look(jnp.int32(0))

    def step(self, time, action, key):
        time = time + 1
        ended = time >= 3
        flags = (ended, False) if self.ends == "terminated" else (False, ended)
        return time, Transition(self._look(time), time * jnp.arange(1.0, 4.0), *map(jnp.bool_, flags))

    def _look(self, time):
        seen = {"agents": jnp.stack([jnp.full(3, time, jnp.float32), jnp.arange(3.0)], -1)}
        there = jnp.array([1, 1, 0], jnp.int8) | (time == 0).astype(jnp.int8)
        return {**seen, "present": there} if self.changing else seen


def group(choices=2, agents=("a", "b"), **rest):
    return EnvSpec.of_agents("toys:Group", EnvSpec("toys:Group", Box((1,)), Discrete(choices)), agents, **rest)


def table(params, observation):
    """A network that is a table: the values of the actions of an agent that sees ``[row]``."""
    row = params[observation[0].astype(jnp.int32)]
    return row, row.max()


def tabular(kind=weft.VDN, rows=4, spec=None, **fields):
    network = (lambda key: jnp.zeros((rows, 2)), table)
    asked = {**SMALL, "network": network, "agent_ids": False, **fields}
    return kind(**asked).bind(weft.Spec(group() if spec is None else spec, 8, 100, 1000))


def batch_of(*steps, present=None):
    """Steps of (what the agents see, their actions, the team's reward, discount, what they see then)."""
    seen, action, reward, discount, then = (np.array(x, np.float32) for x in zip(*steps, strict=True))
    there = {} if present is None else {"present": np.array(present[0], np.int8)}
    after = {} if present is None else {"present": np.array(present[1], np.int8)}
    return Transitions(
        {"agents": seen[..., None], **there}, action.astype(np.int32), reward, discount,
        {"agents": then[..., None], **after}, np.ones_like(reward), np.zeros((len(reward), 2), np.int32),
    )  # fmt: skip


ONLINE = {"agents": jnp.array([[0.0, 1.0], [5.0, 4.0], [1.0, 2.0], [3.0, 0.0]])}
TARGET = {"agents": jnp.array([[0.0, 0.0], [10.0, 20.0], [30.0, 40.0], [7.0, 9.0]])}


# ---- values of a team --------------------------------------------------------------------------------------------


def test_the_sum_and_what_it_is_moved_towards_by_hand():
    batch = batch_of(
        ([0, 1], [1, 0], 2.0, 0.5, [1, 2]),  # goes on, or was cut: what followed is valued
        ([2, 3], [1, 1], 3.0, 0.0, [1, 2]),  # terminated: it is not
    )
    value = tabular().team_value(ONLINE, batch.observation, batch.action)
    np.testing.assert_allclose(value, [1 + 5, 2 + 0])
    plain = tabular(double=False).aim(ONLINE, TARGET, batch)
    np.testing.assert_allclose(plain, [2 + 0.5 * (20 + 40), 3])
    # Double: the online network would choose action 0 for an agent that sees 1, which the target network gives 10.
    double = tabular().aim(ONLINE, TARGET, batch)
    np.testing.assert_allclose(double, [2 + 0.5 * (10 + 40), 3])
    loss, (metrics, error) = tabular().loss(ONLINE, TARGET, batch)
    np.testing.assert_allclose(error, [6 - 27, 2 - 3])
    assert float(loss) == pytest.approx((21**2 + 1) / 4)
    assert float(metrics["value"]) == 4.0
    weighted = batch._replace(weight=np.array([0.0, 0.5], np.float32))  # the first record is not valid
    assert float(tabular().loss(ONLINE, TARGET, weighted)[0]) == 0.25
    assert float(tabular(huber=1.0).loss(ONLINE, TARGET, batch)[0]) == pytest.approx((20.5 + 0.5) / 2)


def test_a_mask_keeps_each_agent_from_what_it_must_not_do():
    batch = batch_of(([0, 0], [0, 0], 0.0, 1.0, [1, 2]))
    masked = batch._replace(following_mask=np.array([[True, False, True, False]]))  # of the first agent, the second
    np.testing.assert_allclose(tabular(double=False).aim(ONLINE, TARGET, masked), [10 + 30])


@pytest.mark.parametrize("kind", [weft.VDN, weft.QMIX])
def test_an_agent_that_is_not_present_is_left_out(kind):
    spec = group(changing=True, state=Box((2,)))
    algorithm = tabular(kind, spec=spec)
    params = {**algorithm.init(jax.random.key(1)).params, **ONLINE}

    def team(seen, action, present):
        batch = batch_of((seen, action, 0.0, 1.0, seen), present=([present], [present]))
        return float(algorithm.team_value(params, {**batch.observation, "state": np.ones((1, 2))}, batch.action)[0])

    assert team([1, 1], [0, 0], [1, 0]) == team([1, 2], [0, 1], [1, 0])
    assert team([1, 1], [0, 0], [1, 0]) != team([1, 1], [0, 0], [1, 1])
    if kind is weft.VDN:
        assert team([1, 3], [0, 0], [1, 0]) == 5.0
        assert team([1, 3], [0, 0], [1, 1]) == 8.0


@pytest.mark.parametrize("hidden", [(), (16,)])
def test_the_teams_value_never_falls_where_an_agents_grows(hidden):
    mixer = monotonic_mixer(Box((3,)), 4, size=8, hidden=hidden)

    def slopes(key):
        init, state, values = jax.random.split(key, 3)
        params = mixer.init(init)
        params = jax.tree.map(lambda x: x + jax.random.normal(init, x.shape), params)  # biases too
        of = jax.grad(mixer.apply, argnums=2)
        return of(params, jax.random.normal(state, (3,)), 3 * jax.random.normal(values, (4,)))

    slope = jax.jit(jax.vmap(slopes))(jax.random.split(jax.random.key(0), 500))
    assert (slope >= 0).all()
    assert (slope > 0.01).mean() > 0.8
    assert float(slope.std()) > 0.1  # it is no sum


def test_the_mixer_by_hand():
    mixer = monotonic_mixer(Box((1,)), 2, size=1, hidden=())
    params = jax.tree.map(jnp.zeros_like, mixer.init(jax.random.key(0)))
    params["Dense_0"]["kernel"] = jnp.array([[2.0, -3.0]])  # weights of the two agents, by state 1
    params["Dense_1"]["bias"] = jnp.array([-1.0])
    params["Dense_2"]["kernel"] = jnp.array([[-0.5]])
    params["Dense_3"]["bias"] = jnp.array([10.0])
    one = jnp.ones(1)
    assert float(mixer.apply(params, one, jnp.array([1.0, 2.0]))) == 10 + 0.5 * (2 + 6 - 1)
    below = float(mixer.apply(params, one, jnp.array([0.0, 0.0])))  # elu(-1) is exp(-1) - 1
    assert below == pytest.approx(10 + 0.5 * (np.exp(-1) - 1))
    assert float(mixer.apply(params, -one, jnp.array([1.0, 2.0]))) == 10 + 0.5 * (2 + 6 - 1)  # weights are positive
    both = mixer.apply(params, jnp.ones((5, 1)), jnp.ones((5, 2)))
    assert both.shape == (5,)


def test_the_mixer_sees_the_state_or_else_what_all_agents_see():
    for spec, seen in ((group(state=Box((2,))), {"state"}), (group(), {"agents"})):
        algorithm = tabular(weft.QMIX, spec=spec)
        params = {**algorithm.init(jax.random.key(0)).params, **ONLINE}
        plain = {"agents": jnp.ones((1, 2, 1)), "state": jnp.ones((1, 2))}
        observation = {name: value for name, value in plain.items() if name in ("agents", *seen)}
        value = algorithm.mix(params, jnp.ones((1, 2)), observation)
        for name in observation:
            other = {**observation, name: 2 * observation[name]}
            assert (algorithm.mix(params, jnp.ones((1, 2)), other) != value).item() == (name in seen)


# ---- acting ------------------------------------------------------------------------------------------------------


def test_each_agent_explores_by_itself():
    algorithm = tabular(epsilon=0.6, epsilon_end=0.6)
    no = jnp.zeros((), bool)
    timestep = Timestep({"agents": jnp.array([[1.0], [2.0]])}, jnp.zeros(2), no, no)  # the best: 0 and 1
    assert algorithm.greedy(ONLINE, (), timestep).action.tolist() == [0, 1]
    keys = jax.random.split(jax.random.key(1), 20_000)
    act = jax.vmap(lambda key: algorithm.act_at(ONLINE, (), timestep, key, jnp.int32(0)).action)
    strays = np.asarray(act(keys)) != np.array([0, 1])
    np.testing.assert_allclose(strays.mean(0), 0.3, atol=0.015)
    assert (strays[:, 0] & strays[:, 1]).mean() == pytest.approx(0.09, abs=0.01)


def test_agents_that_share_params_are_told_apart_by_their_number():
    seen = {"agents": jnp.ones((1, 3, 2))}
    for ids in (True, False):
        algorithm = weft.VDN(**SMALL, agent_ids=ids).bind(weft.Spec(Crowd().spec, 8, 10))
        values = algorithm.values(algorithm.init(jax.random.key(0)).params, seen)[0]
        assert same(values[0], values[1]) != ids


# ---- the loop ----------------------------------------------------------------------------------------------------


def held(engine):
    states = engine._state.fragments if hasattr(engine, "_state") else engine._fragments
    return jax.device_get(states["replay"])


def advanced(engine, learn_steps):
    made = 0
    while made < learn_steps:
        made += engine.advance(learn_steps - made)().learn_steps


@pytest.mark.parametrize(
    ("loop", "ends", "team"),
    [
        ("compiled", "truncated", "mean"),
        ("hosted", "truncated", "sum"),
        pytest.param("compiled", "terminated", "sum", marks=pytest.mark.slow),
        pytest.param("hosted", "terminated", "mean", marks=pytest.mark.slow),
    ],
)
def test_what_is_drawn_is_the_teams(loop, ends, team):
    """Whatever is drawn leads to the step after it, also from a cut episode's last; rewards are the team's."""
    pure = Crowd(ends, masked=True)
    where = {"pure": pure} if loop == "compiled" else {"host": JaxOnHostFactory(pure)}
    algorithm = weft.QMIX(**SMALL, discount=0.5, team_reward=team, epsilon_end=0.5)
    engine = started(algorithm, EnvSource("toys:Crowd", pure.spec, **where), envs=8, steps=8 * 4 * 20)
    advanced(engine, 12)
    store = held(engine)
    engine.close()
    batch = jax.device_get(algorithm.bind(weft.Spec(pure.spec, 8, 10)).replay.draw(store)[1])
    usable = batch.weight > 0
    assert usable.all()
    time, after = batch.observation["agents"][:, 0, 0], batch.following["agents"][:, 0, 0]
    np.testing.assert_allclose(batch.reward, (time + 1) * (2 if team == "mean" else 6), rtol=1e-6)
    if ends == "truncated":
        np.testing.assert_allclose(after, time + 1)  # 3: seen by nobody but as a final observation
        np.testing.assert_allclose(batch.discount, 0.5)
    else:
        np.testing.assert_allclose(batch.discount, np.where(time == 2, 0.0, 0.5))
    np.testing.assert_array_equal(batch.action, (time[:, None] + np.arange(3)) % 2)  # what was allowed


def test_a_group_whose_agents_leave_learns_with_priorities():
    fields = {**SMALL, "prioritised": True, "n_step": 2, "dueling": True}
    engine = started(weft.QMIX(**fields), Crowd(changing=True), envs=8, steps=8 * 4 * 20)
    before = jax.device_get(train_state(engine).params)
    advanced(engine, 12)
    after = jax.device_get(train_state(engine).params)
    assert not same(before["agents"], after["agents"])
    assert not same(before["mixer"], after["mixer"])
    assert int(held(engine).refused) == 0
    engine.close()


# ---- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "fields", "words"),
    [
        ("weft:CartPole-v1", {}, r"QMIX learns for one group of agents.*'weft:CartPole-v1' has one agent. Use.*or DQN"),
        (Crowd(action=Box((1,), low=-1.0, high=1.0)), {}, r"an agent's actions in .*Crowd.* are Box\[1\].*or PPO"),
        (Crowd(), {"team_reward": "max"}, r"QMIX.team_reward must be 'mean' or 'sum', got 'max'"),
        (Crowd(), {"mixing": 0}, r"QMIX.mixing must be at least 1, got 0"),
        (Crowd(), {"hyper_hidden": (0,)}, r"QMIX.hyper_hidden must be at least 1 in every layer, got \(0,\)"),
        (Crowd(), {"network": (lambda key: (), lambda p, o: (jnp.zeros(3), 0.0))}, r"QMIX.network gives logits of .*3"),
    ],
)
def test_what_cannot_work_is_refused_with_what_to_use(environment, fields, words):
    with pytest.raises(ConfigError, match=words):
        prepare(RunConfig(weft.QMIX(**{**SMALL, **fields}), environment, envs=8, steps=10_000))
