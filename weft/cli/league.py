"""``weft league``: the versions of a run of self-play against each other."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from weft.cli.flags import Flags, parse
from weft.core.errors import ConfigError
from weft.core.setting import REQUIRED, check_settings, setting
from weft.runtimes.prepare.settings import Settings

ABOUT = "Play every pair of the versions that a run of self-play has kept: who wins, Elo ratings, and a picture."


@dataclass(frozen=True)
class LeagueFlags:
    """What to play."""

    run: str = setting(REQUIRED, "a run's name or folder", argument="RUN")
    root: Path = setting(Settings.root, "the folder that runs are in")
    episodes: int = setting(64, "of each pair", at_least=2)
    trust: bool = setting(False, "import what the run's folder names, although it was not made by you here")

    def __post_init__(self) -> None:
        check_settings(self)


def main(command: str, arguments: list[str]) -> int:
    """Play, print a table, write ``payoffs.json`` and ``payoffs.svg`` into the run's folder."""
    (given,) = parse("weft league", ABOUT, arguments, Flags(LeagueFlags))
    _play(LeagueFlags(**given))
    return 0


def _play(flags: LeagueFlags) -> None:
    from weft.algorithms.self_play import SelfPlay, versions_of
    from weft.api import load
    from weft.runtimes.actors import actors_of
    from weft.runtimes.policies.payoffs import picture, play_all

    run = load(flags.run, root=flags.root, trust=flags.trust)
    actors = [a for a in actors_of(run.algorithm.graph()) if isinstance(a.algorithm, SelfPlay)]
    if not actors:
        raise ConfigError(f"run {run.folder.name!r} is not one of self-play: it has kept no versions to play")
    actor = actors[0]
    assert isinstance(actor.algorithm, SelfPlay)
    assert run.source is not None
    params = run.params if not run.teams else run.params[actor.name.partition(".")[2]]
    lives = actor.algorithm.initial_carry().lives
    found = play_all(
        actor.algorithm.duel,
        lives,
        versions_of(params),
        run.source,
        team=actor.team,
        episodes=flags.episodes,
        seed=int(run.summary["seed"]),
    )
    table = {"versions": found.names, "score": found.score.tolist(), "games": found.games, "elo": found.elo.tolist()}
    (run.folder / "payoffs.json").write_text(json.dumps(table, indent=1))
    (run.folder / "payoffs.svg").write_text(picture(found))
    print(f"{'version':>10}  {'Elo':>6}  won against each, from the oldest")
    for name, elo, row in zip(found.names, found.elo, found.score, strict=True):
        print(f"{name:>10}  {elo:>+6.0f}  {'  '.join(f'{share:.2f}' for share in row)}")
    print(f"{run.folder / 'payoffs.svg'}")
