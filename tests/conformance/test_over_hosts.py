"""Cells of the matrix on three hosts: what docs/cluster.md says became of each.

Quick: that the page has a row for each, and which are refused. At length: all of them are run.
"""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
from cells import TOLERANCE, learned, learned_over_hosts, learners, prepare_cell, reference
from toys import farthest, same

from weft.core.errors import PlanError
from weft.runtimes.cluster.opening import opened

ON = "processes:3"
ALGORITHMS = ("ppo", "impala", "dqn", "mappo")
PLANS = ("actors", "srl", "replicated", "apex")
ENVIRONMENT = "gymnasium"
PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
ROW = re.compile(r"^\| (\w+) \| " + r" \| ".join([r"(equal|runs|refused)"] * len(PLANS)) + r" \|$", re.MULTILINE)


def told() -> dict[tuple[str, str], str]:
    """What the page says of each cell."""
    rows = [row.groups() for row in ROW.finditer(PAGE.read_text())]
    return {(row[0], plan): said for row in rows for plan, said in zip(PLANS, row[1:], strict=True)}


def test_the_page_has_a_row_for_each_and_says_which_are_refused() -> None:
    assert "| | " + " | ".join(f"`{plan}`" for plan in PLANS) + " |" in PAGE.read_text()
    assert sorted(told()) == sorted(product(ALGORITHMS, PLANS))
    with opened(ON) as cluster:
        for (algorithm, plan), said in told().items():
            try:
                prepare_cell(algorithm, plan, ENVIRONMENT, cluster.machine)
            except PlanError:
                assert said == "refused", (algorithm, plan)
            else:
                assert said != "refused", (algorithm, plan)


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "plan"), [cell for cell, said in told().items() if said != "refused"])
def test_over_hosts_it_learns_what_one_machine_learns(algorithm: str, plan: str) -> None:
    """*equal*: bit for bit what one process learns with as many learners; *runs*: as near as workers on one host come.

    Either way the bits are those of the same workers on one host.
    """
    over = learned_over_hosts(algorithm, plan, ENVIRONMENT, ON)
    here = learned(algorithm, plan, ENVIRONMENT)
    assert same(over.params, here.params)
    assert over.episodes == here.episodes
    one = reference(algorithm, ENVIRONMENT, learners(prepare_cell(algorithm, plan, ENVIRONMENT)))
    assert farthest(over.params, one) <= TOLERANCE
    assert same(over.params, one) or told()[algorithm, plan] == "runs"
