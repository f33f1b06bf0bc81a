"""Self-play in a game whose equilibrium is known: rock, paper, scissors with wins of unequal worth.

Two copies of a policy learn against each other; the more its entropy is worth, the less they chase each other round the
three moves, and it falls towards the run's end. Then the versions that were kept play each other.

python examples/self_play.py
weft league roshambo
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import weft
from weft.envs.builtin.roshambo import STAKES, exploitability

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
    played = strategies(run)
    print(f"a best reply gains {np.mean(exploitability(played, STAKES)):.3f} a round; against even play it is 0.667")
    return run


def strategies(run: weft.Run) -> np.ndarray:
    """[3, 3]: how often the newest policy plays each move in each of the three games, by 2,000 draws."""
    policy = run.policy_for(greedy=False)
    games = np.repeat(np.eye(3, dtype=np.float32), 2_000, axis=0)
    moves = np.asarray(policy({"agents": np.stack([games, games], 1)}))[:, 0]
    return np.asarray(jax.nn.one_hot(jnp.asarray(moves), 3).reshape(3, 2_000, 3).mean(1))


if __name__ == "__main__":
    main()
