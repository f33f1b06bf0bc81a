"""What a population is asked to be, declared once: the command line and the Python functions follow."""

from __future__ import annotations

from dataclasses import dataclass

from weft.core.setting import check_settings, setting

APART = "train members one after another, each compiled by itself: any field may then be varied"


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """How values are chosen, and for how many members."""

    members: int = setting(16, "how many to train; of a grid, at most", at_least=2, unit="members")
    how: str = setting(
        "random",
        "how values are chosen; halving draws them at random, and trains the better half on, again and again; optuna "
        "chooses a batch of members by how those before it did",
        choices=("random", "grid", "halving", "optuna"),
        noun="way to choose values",
    )
    batch: int | None = setting(
        None,
        "with how=optuna: members that are chosen and trained at a time; unless set: a quarter of them",
        at_least=1,
        unit="members",
    )
    apart: bool = setting(False, APART)

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class PbtConfig:
    """How many members there are, and when they copy each other."""

    members: int = setting(16, "how many to train side by side", at_least=2, unit="members")
    every: int | None = setting(
        None,
        "env steps of each member between two rounds, in which the worst quarter copies the best; unless set: a "
        "twentieth of its steps",
        at_least=1,
        unit="env steps",
    )
    apart: bool = setting(False, APART)

    def __post_init__(self) -> None:
        check_settings(self)
