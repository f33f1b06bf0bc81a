"""A curriculum: options follow evaluation, in force at the next episode, recorded, and brought back exactly."""

import json
from pathlib import Path
from typing import Any

import curricula
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weft
from weft.envs.autoreset import advance, begin
from weft.envs.dialled_jax import DialledJax, Follower
from weft.envs.dials import Dials

ENVIRONMENTS = {"jax": curricula.Marked(), "gymnasium": "curricula:MarkedGym"}
SMALL = {"envs": 4, "eval_every": 64, "eval_episodes": 4, "quiet": True, "tensorboard": False}


def learner() -> weft.PPO:
    return weft.PPO(unroll=8, epochs=1, minibatches=1, hidden=(4,))


def trained(kind: str, root: Path, steps: int, **more: Any) -> weft.Run:
    rule = more.pop("curriculum", curricula.rise)
    how = {**SMALL, "steps": steps, "run": "run", "root": root, "curriculum": rule, "vector": "each", **more}
    return weft.train(learner(), ENVIRONMENTS[kind], **how)


def records(run: weft.Run) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "curriculum/mark" in line]


@pytest.mark.parametrize("kind", list(ENVIRONMENTS))
def test_options_follow_evaluation_and_are_recorded(kind: str, tmp_path: Path) -> None:
    """Evaluated after 64, 128, 192 and 256 steps, each time at the options of then; training follows."""
    run = trained(kind, tmp_path, 256)
    told = run.summary["curriculum"]
    assert told["first"] == {"mark": 1.0}
    assert told["options"] == {"mark": 5.0}
    assert [change["env_steps"] for change in told["changes"]] == [64, 128, 192, 256]
    assert [change["options"]["mark"] for change in told["changes"]] == [2.0, 3.0, 4.0, 5.0]
    seen = records(run)
    assert [record["curriculum/mark"] for record in seen] == [2.0, 3.0, 4.0, 5.0]
    assert [record["eval/return_mean"] for record in seen] == [4.0, 8.0, 12.0, 16.0]
    # 16 episodes between two evaluations. An episode begins in the step that ends the one before: the first of each of
    # the 4 environments after an evaluation has begun with the options before it.
    assert run.summary["return_mean"] == pytest.approx(np.mean([4] * 20 + [8] * 16 + [12] * 16 + [16] * 12))


@pytest.mark.parametrize("kind", list(ENVIRONMENTS))
def test_interrupted_and_resumed_is_the_same_to_the_bit(kind: str, tmp_path: Path) -> None:
    """Stopped by a signal in the middle, within an episode that began with older options."""
    whole = trained(kind, tmp_path / "whole", 512)
    stopped = trained(kind, tmp_path / "parts", 512, curriculum=Stopping(3))
    assert stopped.summary["exit"] == "interrupted"
    parts = trained(kind, tmp_path / "parts", 512, curriculum=Stopping(10**9))
    assert parts.summary["exit"] == "finished"
    assert parts.summary["curriculum"] == whole.summary["curriculum"]
    assert jax.tree.all(jax.tree.map(np.array_equal, parts.params, whole.params))


class Stopping:
    """``rise``, and the signal of Ctrl-C when it is asked for the n-th time."""

    __qualname__ = "Stopping"

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, found: Any, options: Any) -> Any:
        import signal

        self.left -= found is not None
        if self.left == 0:
            signal.raise_signal(signal.SIGINT)
        return curricula.rise(found, options)


APART, BESIDE = "env*2 | act | learn", "(env+act)*2 | learn"


@pytest.mark.parametrize(
    ("kind", "plan"),
    [
        pytest.param("jax", BESIDE, marks=pytest.mark.slow),
        ("gymnasium", APART),
        pytest.param("jax", APART, marks=pytest.mark.slow),
        pytest.param("gymnasium", BESIDE, marks=pytest.mark.slow),
    ],
)
def test_in_workers_environments_follow_too(kind: str, plan: str, tmp_path: Path) -> None:
    """Evaluation is not waited for, but at the end. So all that follows then is of later options."""
    first = trained(kind, tmp_path, 1_000, plan=plan, eval_every=500)
    marks = [change["options"]["mark"] for change in first.summary["curriculum"]["changes"]]
    assert marks == [2.0 + k for k in range(len(marks))], "each evaluation was of the options of then"
    assert marks
    run = trained(kind, tmp_path, 2_000, plan=plan, eval_every=500)
    assert run.summary["curriculum"]["changes"][: len(marks)] == first.summary["curriculum"]["changes"]
    assert run.summary["return_mean"] >= 4 * marks[-1], "of the last 100 episodes"
    samples = run.summary["samples"]
    assert samples["produced"] == samples["trained"] + sum(samples["dropped"].values()) + samples["in_flight"]


def test_states_follow_the_dials_and_only_when_they_turn() -> None:
    dials = Dials.of({"mark": 1.0})
    env = DialledJax(curricula.Marked(), dials)
    step = jax.jit(jax.vmap(lambda state: advance(env, state, jnp.int32(0), jax.random.key(0))))
    state, _ = jax.vmap(lambda key: begin(env, key))(jax.random.split(jax.random.key(0), 2))
    follower, marks = Follower(env), []
    for turn in range(12):  # episodes of 4 steps
        if turn == 5:
            dials.turn({"mark": 3.0})
        state = follower.follow(state)
        assert follower.follow(state) is state
        state, timestep = step(state)
        marks.append(float(timestep.reward[0]))
    assert marks == [1.0] * 8 + [3.0] * 4, "the episode that was going on is not touched"
    assert Follower(curricula.Marked()).follow(state) is state


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(weft.ConfigError, match="set eval_every"):
        trained("jax", tmp_path, 64, eval_every=0)
    with pytest.raises(weft.ConfigError, match="nothing waits"):
        trained("jax", tmp_path, 64, plan="env*2 | act | learn", lockstep=True)
    with pytest.raises(weft.ConfigError, match=r"no reset_with\(key, options\)"):
        weft.train("ppo", "weft:Catch-v0", steps=64, root=tmp_path, curriculum=curricula.rise, **SMALL)
    with pytest.raises(weft.ConfigError, match="gave the options size, and began with mark"):
        trained("jax", tmp_path, 64, curriculum=curricula.forgetful)
    with pytest.raises(weft.ConfigError, match="must give a dict of options"):
        trained("jax", tmp_path / "other", 64, curriculum=lambda found, options: None)
    with pytest.raises(weft.ConfigError, match="has no function 'up'"):
        trained("jax", tmp_path / "other", 64, curriculum="curricula:up")


def test_dials_are_read_whole_and_move() -> None:
    dials = Dials.of({"a": 1.0, "b": 2.0})
    before = dials.turned
    words = np.zeros(13)
    other = Dials(("a", "b"), words)
    dials.move_to(words)
    assert other.now() == {"a": 1.0, "b": 2.0}
    dials.turn({"b": 4.0, "a": 3.0})
    assert other.now() == {"a": 3.0, "b": 4.0}
    assert other.turned != before
