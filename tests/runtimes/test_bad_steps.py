"""Learn steps whose loss is not a number: refused, never published, kept for inspection; three in a row end the run."""

from __future__ import annotations

import json
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest
from toys import SMALL, Counter, CounterGym

import weft
from weft.core.errors import LearningDiverged
from weft.runtimes.loop.bad_steps import BadSteps


@dataclass(frozen=True)
class Stumbles(weft.PPO):
    """Its loss, params and optimizer are NaN in learn steps ``bad`` (counted from 0) to ``bad + times - 1``."""

    bad: int = 3
    times: int = 1

    def learn(self, state, batch):
        new, metrics = super().learn(state, batch)
        wrong = (state.step >= self.bad) & (state.step < self.bad + self.times)
        ruin = jnp.where(wrong, jnp.nan, 0.0)
        return new._replace(
            params=new.params._replace(network=_add(new.params.network, ruin)), optimizer=_add(new.optimizer, ruin)
        ), {**metrics, "loss": metrics["loss"] + ruin}


def _add(tree, number):
    import jax

    return jax.tree.map(lambda x: x + number.astype(x.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)


def counter():
    return CounterGym()


ENVIRONMENTS = {"compiled": Counter(), "hosted": counter}


def train(algorithm, environment, root, **more):
    return weft.train(
        algorithm, environment, envs=8, steps=32 * 10, root=root, run="a", quiet=True, tensorboard=False, **more
    )


@pytest.mark.parametrize("loop", ENVIRONMENTS)
@pytest.mark.parametrize("times", [1, 2])
def test_fewer_than_three_bad_steps_in_a_row_change_nothing_and_the_run_goes_on(loop, times, tmp_path, capsys):
    run = train(Stumbles(**SMALL, times=times), ENVIRONMENTS[loop], tmp_path)
    assert run.summary["exit"] == "finished"
    assert run.summary["learn_steps"] == 10
    assert all(np.isfinite(leaf).all() for leaf in _leaves(run.params))
    err = capsys.readouterr().err
    assert "loss stopped being finite" in err
    assert "params and optimizer are those of before" in err
    if loop == "hosted":
        kept = sorted((tmp_path / "a/bad_batches").iterdir())
        assert [path.name for path in kept] == [f"learn-step-{4 + k:09d}.npz" for k in range(times)]
        with np.load(kept[0], allow_pickle=False) as batch:
            assert any(array.shape == (4, 8) for array in batch.values())


@pytest.mark.parametrize("loop", ENVIRONMENTS)
def test_the_third_in_a_row_ends_the_run(loop, tmp_path):
    with pytest.raises(LearningDiverged, match="loss stopped being finite"):
        train(Stumbles(**SMALL, times=3), ENVIRONMENTS[loop], tmp_path)
    assert json.loads((tmp_path / "a/summary.json").read_text())["exit"] == "failed"
    assert not any((tmp_path / "a/checkpoints").iterdir()), "nothing of it was saved"


@pytest.mark.slow
def test_in_workers_too(tmp_path, capsys):
    options = {"plan": "env*2 | act | learn", "lockstep": True}
    run = train(Stumbles(**SMALL, times=2), counter, tmp_path / "two", **options)
    assert run.summary["exit"] == "finished"
    assert all(np.isfinite(leaf).all() for leaf in _leaves(run.params))
    assert "loss stopped being finite" in capsys.readouterr().err
    assert len(list((tmp_path / "two/a/bad_batches").iterdir())) == 2
    with pytest.raises(LearningDiverged, match="loss stopped being finite"):
        train(Stumbles(**SMALL, times=3), counter, tmp_path / "three", **options)


def _leaves(tree):
    import jax

    return jax.tree.leaves(jax.device_get(tree))


def test_bad_steps_are_counted_by_seed_and_over_reports():
    bad = BadSteps()
    yes, no = True, False
    assert bad.take(np.array([[yes, no], [yes, no]])) == (2, 2)
    assert bad.take(np.array([[no, yes], [no, no]])) == (3, 2)
    assert bad.take(np.array([[no, yes]])) == (1, 3), "the first seed's third in a row"


@dataclass(frozen=True)
class Overflows(weft.DQN):
    """Its params are NaN after learn step 41, whose metrics are fine: the second of four in an iteration."""

    def learn_and_tell(self, state, batch):
        new, metrics, told = super().learn_and_tell(state, batch)
        ruin = jnp.where(state.step == 41, jnp.nan, 0.0)
        return new._replace(params=_add(new.params, ruin)), metrics, told


@pytest.mark.parametrize("environment", ["weft:CartPole-v1", "CartPole-v1"])
def test_one_of_several_calls_behind_a_store_that_overflows_is_refused_too(environment, tmp_path, capsys):
    sizes = {"unroll": 8, "hidden": (8,), "batch": 16, "capacity": 512, "learning_begins": 64}
    how = {"envs": 4, "steps": 1_000, "root": tmp_path, "run": "a", "quiet": True, "tensorboard": False}
    run = weft.train(Overflows(**sizes, samples_per_insert=2.0), environment, **how)
    assert run.summary["exit"] == "finished"
    assert all(np.isfinite(leaf).all() for leaf in _leaves(run.params))
    assert "changed nothing" in capsys.readouterr().err
