"""A dataflow of your own: values are found anew with the newest params, just before learn sees them.

Without lockstep an unroll was made by older params than those that learn from it. What act remembered of an action's
probability must stay, for it says what was done; but the values are better asked of the newest params. (MuZero
Reanalyse, arXiv 2104.06294, does so with targets from a replay.)

python examples/reanalyse.py
weft show examples.reanalyse:FreshPPO weft:CartPole-v1 --plan "(env+act)*2 | reanalyse | learn"
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import weft

PLAN = "(env+act)*2 | reanalyse | learn"


@dataclass(frozen=True)
class FreshPPO(weft.PPO):
    """PPO whose advantages come from the values of the newest params, however old the unroll is."""

    unroll: int = 32
    learning_rate: float = 2e-3
    discount: float = 0.98

    def check(self) -> None:
        super().check()
        if self.recurrent:
            raise weft.ConfigError("FreshPPO values each observation by itself, which a recurrent network cannot do")

    def graph(self) -> weft.Graph:
        return super().graph().insert("reanalyse", self.reanalyse, on="unroll", reads="learn")

    def reanalyse(self, state: Any, unroll: weft.Unroll, params: Any) -> tuple[Any, weft.Unroll]:
        """The newest params of whom it reads follow the message."""

        def value(observation: jax.Array) -> jax.Array:
            return jax.vmap(self.bootstrap, (None, 0, 0))(params, unroll.carry, observation)

        values = jax.vmap(value)(unroll.observation)
        # What follows the last step, unless an episode ended there; the others are of observations that are gone.
        ended = unroll.terminated[-1] | unroll.truncated[-1]
        after = jnp.where(ended, unroll.bootstrap[-1], value(unroll.last_observation))
        return state, unroll._replace(
            extras={**unroll.extras, "value": values}, bootstrap=jnp.concatenate([unroll.bootstrap[:-1], after[None]])
        )


def main(steps: int = 200_000, plan: str = PLAN, **settings: Any) -> weft.Run:
    run = weft.train(FreshPPO(), "weft:CartPole-v1", plan=plan, envs=32, steps=steps, run="reanalyse", **settings)
    print(f"return {run.summary['return_mean']:.1f}, kept in {run.folder}")
    return run


if __name__ == "__main__":
    main()
