"""A store beside several learners that are one program: each has a shard of it, and draws its part of every batch.

Learners' params are the same on all devices; what a shard holds is its own. So its state gets an axis in front along
which the shards lie, one on each device, and the store itself does not know.
"""

from __future__ import annotations

import jax

from weft.core.replicas import mean_over_replicas, of_replica
from weft.core.types import Array, Tree
from weft.runtimes.stage import Draws, Ran, Stage


def sharded(stage: Stage, replicas: int) -> Stage:
    """The stage of a store as one of ``replicas`` shards; ``waits`` is asked of the first, since all fill alike."""
    draws = stage.draws
    assert draws is not None

    def init(key: Array) -> Tree:
        return _laid_out(stage.init(of_replica(key)))

    def run(held: Tree, inputs: dict[str, Tree], params: dict[str, Tree], given: Array) -> Ran:
        ran = stage.run(_own(held), inputs, params, given)
        figures = None if ran.metrics is None else {k: replicas * mean_over_replicas(x) for k, x in ran.metrics.items()}
        return ran._replace(state=_laid_out(ran.state), metrics=figures)

    def draw(held: Tree) -> tuple[Tree, dict[str, Tree]]:
        held, messages = draws.draw(_own(held))
        return _laid_out(held), messages

    def tell(held: Tree, messages: dict[str, Tree]) -> Tree:
        return _laid_out(draws.tell(_own(held), messages))

    def ahead(held: Tree) -> tuple[Tree, dict[str, Tree]] | None:
        found = draws.ahead(_own(held))
        return None if found is None else (_laid_out(found[0]), found[1])

    return stage._replace(
        init=init,
        run=run,
        draws=Draws(draws.times, draw, tell, lambda held: draws.waits(_own(held)), ahead),
    )


def _own(held: Tree) -> Tree:
    return jax.tree.map(lambda x: x[0], held)


def _laid_out(held: Tree) -> Tree:
    return jax.tree.map(lambda x: x[None], held)
