"""The order of episodes: whatever order lanes tell in, lockstep gives that of one process."""

from __future__ import annotations

import random

import pytest

from weft.runtimes.workers.episode_order import EpisodeOrder, Told

LANES, UNROLL = 3, 4


def messages(unrolls: int = 5) -> list[dict]:
    """Every lane has two environments; each of them ends an episode now and then, with a return that tells which."""
    ended = [
        (lane, Told(step, 2 * lane + row, 1, float(100 * step + 2 * lane + row), step))
        for lane in range(LANES)
        for step in range(UNROLL * unrolls)
        for row in range(2)
        if (step + lane + row) % 3 == 0
    ]
    return [
        {
            "series": 0,
            "lane": lane,
            "until": UNROLL * (k + 1),
            "episodes": [list(one) for of, one in ended if of == lane and one.step // UNROLL == k],
        }
        for k in range(unrolls)
        for lane in range(LANES)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_the_order_is_by_step_and_environment_however_lanes_tell(seed):
    told, order = messages(), EpisodeOrder(1, LANES, in_order=True, by_step=False)
    lanes = [[m for m in told if m["lane"] == lane] for lane in range(LANES)]
    chance, given = random.Random(seed), []
    while any(lanes):  # each lane in its own order, and a report in between now and then
        order.take(chance.choice([lane for lane in lanes if lane]).pop(0))
        if chance.random() < 0.5:
            given += order.give()[0]
    given += order.give()[0]
    returns = [total for _, total, _ in given]
    assert returns == sorted(returns)
    assert len(returns) == sum(len(m["episodes"]) for m in told)


def test_what_ended_in_one_step_is_added_up_where_a_compiled_rollout_would():
    order = EpisodeOrder(1, 2, in_order=True, by_step=True)
    order.take({"series": 0, "lane": 1, "until": 4, "episodes": [[0, 2, 2, 5.0, 20], [3, 2, 1, 1.0, 10]]})
    assert order.give() == [[]]
    order.take({"series": 0, "lane": 0, "until": 4, "episodes": [[0, 0, 1, 2.0, 30]]})
    assert order.give() == [[(3, 7.0, 50), (1, 1.0, 10)]]
    assert order.give() == [[]]


def test_with_bounded_lag_episodes_are_given_as_they_come():
    order = EpisodeOrder(2, 2, in_order=False, by_step=False)
    order.take({"series": 1, "lane": 1, "until": 9, "episodes": [[8, 2, 1, 5.0, 20], [3, 3, 1, 1.0, 10]]})
    assert order.give() == [[], [(1, 5.0, 20), (1, 1.0, 10)]]
