"""What cannot be learned from is refused before anything starts: sizes, priorities, actions, data of another shape."""

from __future__ import annotations

import dataclasses
import math

import pytest
from recorded import folder_of

import weft
from weft.core.errors import ConfigError
from weft.runtimes.prepare.config import RunConfig, prepare

SIZES = {"unroll": 4, "hidden": (8,), "capacity": 256, "batch": 32, "learning_begins": 1, "samples_per_insert": 1.0}
KEPT = weft.UniformReplay()


def refused(algorithm, environment: str = "weft:CartPole-v1", **asked) -> str:
    with pytest.raises(ConfigError) as caught:
        prepare(RunConfig(algorithm, environment, envs=8, steps=10_000, **asked))
    return str(caught.value)


@dataclasses.dataclass(frozen=True)
class Mine(weft.DQN):
    """A user's algorithm with a replay of its own making, which it does not check."""

    kept: weft.UniformReplay = KEPT

    def graph(self):
        return weft.off_policy(self, self.kept)


@pytest.mark.parametrize(
    ("replay", "words"),
    [
        (weft.UniformReplay(capacity=64, batch=128), "Mine: a replay of 64 steps is smaller than a batch of 128"),
        (
            weft.UniformReplay(capacity=16, batch=8),
            "Mine: a replay of 16 steps does not hold one unroll of 4 steps x 8",
        ),
        (weft.UniformReplay(batch=0), "Mine: batch must be at least 1, got 0"),
        (weft.UniformReplay(samples_per_insert=math.nan), "Mine: samples_per_insert must be above 0, got nan"),
        (weft.PrioritisedReplay(begin=1, alpha=math.nan), "Mine: alpha must be between 0 and 1, got nan"),
        (weft.PrioritisedReplay(begin=1, beta=math.inf), "Mine: beta must be between 0 and 1, got inf"),
    ],
)
def test_a_replay_of_the_users_own_graph_is_looked_at_too(replay, words):
    assert words in refused(Mine(unroll=4, hidden=(8,), kept=replay))


def test_a_replay_of_sequences_smaller_than_a_batch():
    few = {**SIZES, "capacity": 64, "batch": 32, "recurrent_size": 8}
    assert "holds 16 sequences of 4, and a batch has 32. Choose a capacity of at least 128" in refused(weft.R2D2(**few))


@pytest.mark.parametrize(
    ("algorithm", "environment"),
    [
        (weft.DQN(**SIZES), "weft:Pendulum-v1"),
        (weft.R2D2(**{**SIZES, "batch": 8}), "weft:Pendulum-v1"),
        (weft.PQN(unroll=4, hidden=(8,), minibatches=1), "weft:Pendulum-v1"),
        (weft.SAC(**SIZES), "weft:CartPole-v1"),
        (weft.TD3(**SIZES), "weft:CartPole-v1"),
    ],
)
def test_actions_that_an_algorithm_cannot_choose(algorithm, environment):
    message = refused(algorithm, environment)
    assert type(algorithm).__name__ in message
    assert "actions" in message
    assert "Use" in message, "it does not say what to do instead"


@pytest.mark.parametrize("made", [weft.BC, weft.IQL])
def test_data_of_another_shape(made):
    data = folder_of("CartPole-v1")
    message = refused(made(unroll=4, hidden=(8,), batch=32, updates=1, data=data), "weft:Pendulum-v1")
    assert f"{made.__name__}: the data set" in message
    assert "CartPole" in message


@pytest.mark.parametrize("plan", ["(env+act)*2 | replay*2 | learn*2", "(env+act+replay+learn)*2"])
def test_a_batch_that_learners_cannot_share(plan):
    message = refused(weft.DQN(**{**SIZES, "batch": 15, "samples_per_insert": 2.0}), plan=plan)
    assert "2 learners share every batch, and 2 does not divide a batch of 15" in message
