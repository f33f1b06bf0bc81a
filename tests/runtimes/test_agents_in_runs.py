"""A run with agents in host environments: brought back exactly, opened again, evaluated."""

from __future__ import annotations

import json

import jax
import zoo
from toys import SMALL, farthest, prepared, same, train_state

import weft
from weft.runtimes.loop.engines import make_engine


def test_a_run_with_agents_that_come_and_go_is_brought_back_exactly() -> None:
    """In the middle of episodes: observations, rewards, who was there, and a carry for each agent."""
    run = prepared(weft.PPO(**SMALL, recurrent="gru"), zoo.dying, envs=8)
    whole, first, second = (make_engine(run) for _ in range(3))
    try:
        whole.start()
        whole.advance(4)()
        first.start()
        first.advance(3)()
        tree, document = first.saved()
        second.resume(tree, json.loads(json.dumps(document)))
        second.advance(1)()
        assert same(train_state(whole).params, train_state(second).params)
    finally:
        for engine in (whole, first, second):
            engine.close()


def test_a_run_with_agents_is_opened_again_and_evaluated(tmp_path) -> None:
    """The algorithm is the one that was written, not what runs it for every agent."""
    steps = 2 * SMALL["unroll"] * 8
    settings = {"root": tmp_path, "quiet": True, "tensorboard": False}
    weft.train(weft.PPO(**SMALL), zoo.dying, envs=8, steps=steps, run="meadow", **settings)
    found = weft.evaluate("meadow", root=tmp_path, episodes=3)
    assert found.episodes == 3
    assert found.length_mean == 6
    # Four hens, mean: 6 steps of hen_0, 2 of hen_1, 4 of hen_2, 3 of hen_3 (which comes by step 3), 1 to 3 each.
    least = (6 * 1 + 2 * 11 + 4 * 21 + 3 * 31) / 4
    assert least <= found.return_min <= found.return_max <= least + 2 * 15 / 4


def test_marks_of_presence_change_nothing_where_all_always_take_part() -> None:
    """The same episodes, cut ends among them, with and without ``present``: the same params."""
    learned = []
    for changing in (True, False):
        run = prepared(weft.PPO(**SMALL), zoo.fixed, envs=8, env_options={"changing": changing, "state": False})
        engine = make_engine(run)
        try:
            engine.start()
            engine.advance(6)()
            learned.append(jax.device_get(train_state(engine).params))
        finally:
            engine.close()
    assert farthest(*learned) < 1e-6
