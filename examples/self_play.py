"""Self-play in a game whose equilibrium is known: rock, paper, scissors with wins of unequal worth.

Two copies of a policy learn against each other; the more its entropy is worth, the less they chase each other round the
three moves, and it falls towards the run's end. Then the versions that were kept play each other.

python examples/self_play.py
weft league roshambo
"""

from typing import Any

import numpy as np

import weft

STAKES = np.array([(1, 2, 3), (3, 1, 2), (2, 3, 1)])  # what a win with rock, paper or scissors is worth, by game
BEATS = np.array([(0, 0, 1), (1, 0, 0), (0, 1, 0)])  # the row beats the column

PLAYER = weft.PPO(
    unroll=16,
    learning_rate=1e-3,
    learning_rate_end=1e-5,
    hidden=(16,),
    epochs=2,
    minibatches=2,
    discount=0.0,  # a round does not change the next one
    entropy_cost=0.6,
    entropy_cost_end=0.1,
    normalise_advantages=False,  # near the equilibrium no move is better than another
)


def main(steps: int = 300_000, **settings: Any) -> weft.Run:
    learns = weft.SelfPlay(of=PLAYER, opponents="latest", every=4)
    run = weft.train(learns, "weft:Roshambo-v0", envs=64, steps=steps, seed=1, run="roshambo", **settings)
    gain = np.mean([exploitability(strategy, game) for strategy, game in zip(strategies(run), STAKES, strict=True)])
    print(f"return of a best reply to it: {gain:.3f} a round, against even play it is 0.667, kept in {run.folder}")
    return run


def exploitability(strategy: np.ndarray, worth: np.ndarray) -> float:
    """What the best reply to a mixed strategy (``[3]``) gets in a round: 0 at the equilibrium."""
    wins = worth[:, None] * BEATS
    return float(((wins - wins.T) @ strategy).max())


def strategies(run: weft.Run) -> np.ndarray:
    """[3, 3]: how often the newest policy plays each move in each of the three games, by 2,000 draws."""
    policy = run.policy_for(greedy=False)
    games = np.repeat(np.eye(3, dtype=np.float32), 2_000, axis=0)
    moves = np.asarray(policy({"agents": np.stack([games, games], 1)}))[:, 0]
    return np.eye(3)[moves].reshape(3, 2_000, 3).mean(1)


if __name__ == "__main__":
    main()
