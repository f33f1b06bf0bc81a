"""How many batches a store in a worker may draw: the ratio over all lanes, in whole batches."""

from __future__ import annotations

import pytest

from weft.runtimes.roles.store_pace import StorePace


@pytest.mark.parametrize(("draws", "parts", "filling"), [(8, 1, 0), (8, 2, 3), (1, 3, 0), (5, 4, 7)])
def test_after_so_many_unrolls_of_all_lanes_so_many_batches_were_drawn(draws, parts, filling):
    pace, rounds = StorePace(draws, parts, filling), 10
    for kept in range(1, filling + rounds * parts + 1):
        pace.kept += 1
        while pace.may_draw(1):
            pace.drawn += 1
        owed = (kept - filling) * draws / parts
        assert pace.drawn <= max(0, owed) < pace.drawn + 1 or (pace.drawn, kept <= filling) == (0, True)
    assert pace.drawn == rounds * draws


def test_several_are_drawn_at_a_time_only_where_all_of_them_are_allowed():
    pace = StorePace(8, 2, 0)
    pace.kept = 1
    assert pace.may_draw(4)
    assert not pace.may_draw(5)
    pace.drawn = 1
    assert not pace.may_draw(4)
