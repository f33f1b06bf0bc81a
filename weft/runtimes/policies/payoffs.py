"""Versions of a policy against each other: who wins how often, Elo ratings of it, and a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weft.core.buffers import of_team, timestep_buffers
from weft.core.types import Timestep, Tree
from weft.envs.protocol import EnvSource
from weft.graph.loops import policy_view
from weft.runtimes.policies.evaluate import EVALUATION_SEED, host_factory

ENVS = 64
"""Episodes that are played at a time."""


class Payoffs(NamedTuple):
    """``score[i, j]``: the share of games that version i won against version j; a draw is half a game."""

    names: tuple[str, ...]
    score: np.ndarray[Any, Any]  # [N, N] float64; 0.5 on the diagonal
    games: int  # of each pair
    elo: np.ndarray[Any, Any]  # [N] float64, with mean 0: 400 points are odds of ten to one


Duel = Callable[[tuple[Tree, Tree], Tree, Timestep, jax.Array], tuple[Any, Tree]]
"""``(params of side 0, of side 1), lives, timestep, key -> actions of all, lives``, for one environment."""


def play_all(
    duel: Duel, lives: Tree, versions: Mapping[str, Tree], source: EnvSource, *, team: str, episodes: int, seed: int
) -> Payoffs:
    """Play every pair of versions, each on either side for half of ``episodes``; blocks."""
    names = tuple(versions)
    score = np.full((len(names), len(names)), 0.5)
    each = max(1, episodes // 2)
    table = _Table(duel, lives, source, team, min(each, ENVS), seed)
    try:
        for i, one in enumerate(names):
            for j, other in enumerate(names[:i]):
                there = table.won((versions[one], versions[other]), each)
                back = table.won((versions[other], versions[one]), each)
                score[i, j] = (there + 1.0 - back) / 2
                score[j, i] = 1.0 - score[i, j]
    finally:
        table.env.close()
    return Payoffs(names, score, 2 * each, ratings(score))


def won_by(
    duel: Duel, lives: Tree, params: tuple[Tree, Tree], source: EnvSource, *, team: str, episodes: int, seed: int
) -> float:
    """The share of ``episodes`` games that side 0 won; a draw is half a game; blocks."""
    table = _Table(duel, lives, source, team, min(episodes, ENVS), seed)
    try:
        return table.won(params, episodes)
    finally:
        table.env.close()


class _Table:
    """A batch of environments that one pair after another plays in."""

    def __init__(self, duel: Duel, lives: Tree, source: EnvSource, team: str, envs: int, seed: int) -> None:
        self.env = host_factory(source)(envs, seed + EVALUATION_SEED)
        self._act = jax.jit(jax.vmap(duel, (None, 0, 0, 0)))
        self._draw = jax.jit(lambda step: jax.random.split(jax.random.fold_in(jax.random.key(seed), step), envs))
        self._lives: Tree = jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x), (envs, *jnp.shape(x))), lives)
        self._team, self._envs, self._step = team, envs, 0
        self._now = timestep_buffers(source.spec, (envs,))
        self.env.reset(self._now)

    def won(self, params: tuple[Tree, Tree], episodes: int) -> float:
        """The share of ``episodes`` games that side 0 won; those that were going on are played to their end first."""
        margin, begun = np.zeros(self._envs), np.array(self._now.first)
        outcomes: list[float] = []
        while len(outcomes) < episodes:
            seen = policy_view(of_team(self._now, self._team))
            self._step += 1
            moves, self._lives = self._act(params, self._lives, seen, self._draw(np.int32(self._step)))
            chosen: Any = {self._team: np.asarray(moves)} if self._team else np.asarray(moves)
            self.env.step(chosen, self._now)
            reward = np.asarray(of_team(self._now, self._team).reward)
            half = reward.shape[1] // 2
            margin += reward[:, :half].sum(1) - reward[:, half:].sum(1)
            for row in np.flatnonzero(self._now.first):
                if begun[row]:
                    outcomes.append(0.5 + 0.5 * float(np.sign(margin[row])))
                margin[row], begun[row] = 0.0, True
        return float(np.mean(outcomes[:episodes]))


def ratings(score: np.ndarray[Any, Any], rounds: int = 500) -> np.ndarray[Any, Any]:
    """Elo ratings, ``[N]`` with mean 0, under which the scores are likeliest; one that wins all stays within 800."""
    elo, clipped = np.zeros(len(score)), np.clip(score, 0.01, 0.99)
    for _ in range(rounds):
        expected = 1.0 / (1.0 + 10.0 ** ((elo[None, :] - elo[:, None]) / 400.0))
        elo += 200.0 * (clipped - expected).sum(1) / max(1, len(score))
        elo -= elo.mean()
    return elo


def picture(found: Payoffs) -> str:
    """The scores as an SVG: a row beats a column where it is blue, loses where it is red."""
    cell, left, top = 46, 120, 60
    size = cell * len(found.names)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + size + 90}" height="{top + size + 20}" '
        'font-family="sans-serif" font-size="12">',
        f'<text x="{left}" y="20">share of {found.games} games that the row won against the column; Elo</text>',
    ]
    for i, name in enumerate(found.names):
        middle = top + cell * i + cell / 2 + 4
        parts.append(f'<text x="{left - 8}" y="{middle}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<text x="{left + cell * i + cell / 2}" y="{top - 8}" text-anchor="middle">{escape(name)}</text>')
        parts.append(f'<text x="{left + size + 12}" y="{middle}">{found.elo[i]:+.0f}</text>')
        for j in range(len(found.names)):
            share = found.score[i, j]
            colour = f"rgb({_shade(share)})"
            parts.append(
                f'<rect x="{left + cell * j}" y="{top + cell * i}" width="{cell - 2}" height="{cell - 2}" '
                f'fill="{colour}"/><text x="{left + cell * j + cell / 2}" y="{middle}" text-anchor="middle">'
                f"{share:.2f}</text>"
            )
    return "".join([*parts, "</svg>\n"])


def _shade(share: float) -> str:
    """Red at 0, white at 1/2, blue at 1."""
    away = min(1.0, abs(share - 0.5) * 2)
    full, rest = (90, 150, 220) if share > 0.5 else (230, 110, 100), 255
    return ",".join(str(round(rest + (c - rest) * away)) for c in full)
