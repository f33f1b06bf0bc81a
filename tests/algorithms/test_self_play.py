"""Self-play: who plays with which params, what is learned from, who is drawn; and where it ends in a known game."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from teams import Names, RedAndBlue

import weft
from weft.algorithms.self_play import Record, SelfPlay, versions_of
from weft.core.specs import Spec
from weft.runtimes.policies.payoffs import ratings
from weft.runtimes.prepare.config import RunConfig, prepare


@dataclasses.dataclass(frozen=True)
class Says(weft.Algorithm):
    """Its action is its params; learning adds 1 to them, and tells what it was given."""

    unroll: int = 4

    def init(self, key: jax.Array) -> weft.TrainState:
        return weft.TrainState(jnp.int32(0), (), jnp.int32(0), key)

    def act(self, params: Any, carry: Any, timestep: weft.Timestep, key: jax.Array) -> weft.Acted:
        return weft.Acted(params % 4, carry, {"seen": timestep.observation})

    def learn(self, state: weft.TrainState, batch: weft.Unroll) -> Any:
        assert batch.valid is not None
        said = jnp.where(batch.valid, batch.action, 0).sum() / batch.valid.sum()
        new = state._replace(params=state.params + 1, step=state.step + 1)
        return new, {"said": said, "rows": batch.valid.sum().astype(jnp.float32)}


def group() -> weft.EnvSpec:
    return Names(agents=4).spec


def bound(**fields: Any) -> SelfPlay:
    return SelfPlay(of=Says(), **fields).bind(Spec(group(), 8, 100))


def test_each_side_plays_with_its_own_params_and_only_the_newest_learn() -> None:
    """The newest params say 3, the past ones 0 and 1: the mean of what is learned from is 3, and half of all rows."""
    algorithm = bound(versions=2, opponents="uniform", every=100)
    state = algorithm.init(jax.random.key(0))
    versions = state.params._replace(
        newest=jnp.int32(3), past=jnp.array([0, 1]), chance=jnp.array([0.5, 0.5]), taken=jnp.array([0, 5])
    )
    seen = jnp.zeros((4, 4))
    start = weft.Timestep({"agents": seen}, jnp.zeros(4), jnp.bool_(False), jnp.bool_(True))
    acted = jax.vmap(lambda key: algorithm.act_at(versions, algorithm.initial_carry(), start, key, jnp.int32(0)))(
        jax.random.split(jax.random.key(1), 64)
    )
    side, opponent = acted.extras["side"], acted.extras["opponent"]
    assert set(side.tolist()) == {0, 1}
    assert set(opponent.tolist()) == {0, 1}
    for k in range(64):
        mine, theirs = ([3, 3], [int(opponent[k])] * 2)
        assert acted.action[k].tolist() == (mine + theirs if side[k] == 0 else theirs + mine)

    no = jnp.zeros((1, 64), jnp.bool_)
    reward = jnp.where(jnp.arange(4) < 2, 1.0, 0.0) * jnp.ones((1, 64, 1))  # side 0 wins each
    unroll = weft.Unroll(
        observation={"agents": jnp.zeros((1, 64, 4, 4))},
        first=~no,
        action=acted.action[None],
        extras=jax.tree.map(lambda x: x[None], acted.extras),
        reward=reward,
        terminated=~no,
        truncated=no,
        bootstrap=jnp.zeros((1, 64, 4)),
        carry=acted.carry,
        last_observation={"agents": jnp.zeros((64, 4, 4))},
        last_first=~no[0],
    )
    new, metrics = algorithm.learn(state._replace(params=versions), unroll)
    assert float(metrics["said"]) == 3.0
    assert float(metrics["rows"]) == 2 * 64
    assert float(metrics["win_rate"]) == pytest.approx(float((side == 0).mean()))
    assert int(new.params.newest) == 4
    for k in range(2):
        assert float(new.optimizer.games[k]) == int((opponent == k).sum())
        assert float(new.optimizer.won[k]) == int(((opponent == k) & (side == 0)).sum())


def test_a_version_is_kept_every_so_often_and_the_oldest_gives_way() -> None:
    algorithm = bound(versions=2, every=2)
    state = algorithm.init(jax.random.key(0))
    assert state.params.taken.tolist() == [0, -1]
    assert state.params.chance.tolist() == [1.0, 0.0]
    no = jnp.zeros((4, 8), jnp.bool_)
    extras = {"learner": {"seen": jnp.zeros((4, 8, 4, 4))}, "margin": jnp.zeros((4, 8))}
    unroll = weft.Unroll(
        observation={"agents": jnp.zeros((4, 8, 4, 4))},
        first=no,
        action=jnp.zeros((4, 8, 4), jnp.int32),
        extras=extras | dict.fromkeys(("opponent", "side"), jnp.zeros((4, 8), jnp.int32)),
        reward=jnp.zeros((4, 8, 4)),
        terminated=no,
        truncated=no,
        bootstrap=jnp.zeros((4, 8, 4)),
        carry=jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * 8), algorithm.initial_carry()),
        last_observation={"agents": jnp.zeros((8, 4, 4))},
        last_first=no[0],
    )
    taken = []
    for _ in range(6):
        state, _metrics = algorithm.learn(state, unroll)
        taken.append(sorted(state.params.taken.tolist()))
    assert taken == [[-1, 0], [0, 2], [0, 2], [2, 4], [2, 4], [4, 6]]
    kept = {name: int(np.asarray(params)) for name, params in versions_of(state.params).items()}
    assert kept == {"4": 4, "6": 6, "newest": 6}


def test_who_is_drawn() -> None:
    record = Record((), games=jnp.array([8.0, 8.0, 0.0]), won=jnp.array([7.0, 1.0, 0.0]))
    taken = jnp.array([10, 20, -1])
    chances = {rule: bound(versions=3, opponents=rule)._chance(taken, record) for rule in ("latest", "uniform")}
    assert chances["latest"].tolist() == [0.0, 1.0, 0.0]
    assert chances["uniform"].tolist() == [0.5, 0.5, 0.0]
    hard = np.asarray(bound(versions=3, opponents="prioritised")._chance(taken, record))
    weights = np.array([0.2**2 + 1e-3, 0.8**2 + 1e-3, 0.0])  # (1 - (won + 1) / (games + 2))^2
    np.testing.assert_allclose(hard, weights / weights.sum(), rtol=1e-6)


def test_what_is_refused() -> None:
    with pytest.raises(weft.ConfigError, match="two sides with as many agents each"):
        prepare(RunConfig(SelfPlay(), Names(agents=3), steps=4096, envs=16))
    with pytest.raises(weft.ConfigError, match=r"SelfPlay needs two sides.*has 5 agents"):
        prepare(RunConfig(SelfPlay(), RedAndBlue(), steps=4096, envs=16))


def test_elo_ratings_follow_from_scores() -> None:
    """Odds of ten to one are 400 points."""
    won = 10 / 11
    assert ratings(np.array([[0.5, won], [1 - won, 0.5]])) == pytest.approx([200, -200], abs=1)


YOUNG = {"latest": (8, 4), "uniform": (3, 2), "prioritised": (3, 2)}
"""Versions and the learn calls between two: opponents of 2 to 3 learn calls ago, in the mean."""


@pytest.mark.slow  # quicker: Rally's versions, in tests/learning
@pytest.mark.parametrize("rule", YOUNG)
def test_self_play_ends_near_the_equilibrium(rule: str, tmp_path: Path) -> None:
    """In the three games of Roshambo a best reply gains 2/3 a round against even play, and little against this."""
    versions, every = YOUNG[rule]
    assert _gain(tmp_path, steps=200_000, opponents=rule, versions=versions, every=every) < 0.25


@pytest.mark.slow
def test_old_opponents_are_why_it_ends_further_away(tmp_path: Path) -> None:
    """Whichever rule draws them: of the same age, 8 learn calls in the mean, both end alike; of 16, further away."""
    mild = [
        _gain(tmp_path / rule, steps=300_000, opponents=rule, versions=versions, every=every)
        for rule, versions, every in (("latest", 8, 16), ("uniform", 16, 1))
    ]
    old = _gain(tmp_path / "old", steps=300_000, opponents="latest", versions=8, every=32)
    assert abs(mild[0] - mild[1]) < 0.1
    assert min(mild) > 0.09
    assert old > 1.5 * max(mild)


def _gain(root: Path, *, steps: int, **fields: Any) -> float:
    """What a best reply gains in a round from a player that was trained so, with the example's settings."""
    import importlib.util

    from weft.envs.builtin.roshambo import STAKES, exploitability

    path = Path(__file__).parents[2] / "examples" / "self_play.py"
    spec = importlib.util.spec_from_file_location("self_play_example", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    learns = weft.SelfPlay(of=example.PLAYER, **fields)
    run = weft.train(learns, "weft:Roshambo-v0", envs=64, steps=steps, seed=1, run="roshambo", root=root, quiet=True)
    return float(np.mean(exploitability(example.strategies(run), STAKES)))
