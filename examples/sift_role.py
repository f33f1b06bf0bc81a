"""A dataflow of your own: a new role, for fragments that remember unrolls and let learn see them again.

A map would do for one such fragment in one algorithm. A role is for a way of working that many graphs may use: it
makes its state from what passes the fragment, whatever that is, and says what a plan may do with it.

python examples/sift_role.py
weft show examples.sift_role:SiftedPPO weft:CartPole-v1 --plan "(env+act)*2 | sift | learn"
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import weft

PLAN = "(env+act)*2 | sift | learn"


@dataclass(frozen=True)
class Sift:
    """The code of a sifting fragment: what its role reads, and nothing that runs."""

    keep: int = 4  # unrolls


class Memory(NamedTuple):
    kept: Any  # [keep, ...] unrolls
    taken: jax.Array  # [] int32: unrolls seen so far


class SiftRole(weft.MessageRole):
    """Half of the environments' rows are those of now, the other half those of ``keep`` unrolls ago, in turn."""

    def stage(self, fragment: weft.Fragment, graph: weft.Graph) -> weft.Stage:
        (into,), (out,), keep = fragment.inputs, fragment.outputs, fragment.code.keep

        def init(key: jax.Array) -> Memory:
            kept = jax.tree.map(lambda leaf: jnp.zeros((keep, *leaf.shape), leaf.dtype), into.schema)
            return Memory(kept, jnp.int32(0))

        def run(memory: Memory, inputs: dict[str, Any], params: dict[str, Any], given: jax.Array) -> weft.Ran:
            now, slot = inputs[into.name], memory.taken % keep
            old = jax.tree.map(lambda leaf: leaf[slot], memory.kept)
            rows = jnp.arange(now.reward.shape[1])
            again = ((rows + memory.taken) % 2 == 1) & (memory.taken >= keep)
            mixed = weft.Unroll(*(_mix(name, again, o, n) for name, o, n in zip(now._fields, old, now, strict=True)))
            kept = jax.tree.map(lambda all_, one: all_.at[slot].set(one), memory.kept, now)
            return weft.Ran(Memory(kept, memory.taken + 1), {out.name: [mixed]})

        return weft.Stage(init, run)


def _mix(field: str, again: jax.Array, old: Any, now: Any) -> Any:
    """One field of an unroll: the old rows where ``again``, those of now elsewhere."""
    axis = 0 if field in ("carry", "last_observation", "last_first") else 1  # the environments'

    def choose(o: jax.Array, n: jax.Array) -> jax.Array:
        return jnp.where(again.reshape([-1 if a == axis else 1 for a in range(n.ndim)]), o, n)

    return jax.tree.map(choose, old, now)


SIFT = SiftRole()
weft.register_role(weft.Role("sift", runs=f"{__name__}:SIFT", single=True))  # one memory, so one replica


@dataclass(frozen=True)
class SiftedPPO(weft.PPO):
    """PPO that sees half of its unrolls twice. V-trace corrects for the older params that made them."""

    unroll: int = 32
    learning_rate: float = 2e-3
    discount: float = 0.98
    vtrace: bool = True
    keep: int = 4

    def graph(self) -> weft.Graph:
        return super().graph().insert("sift", role="sift", code=Sift(self.keep), on="unroll")


def main(steps: int = 200_000, plan: str = PLAN, **settings: Any) -> weft.Run:
    run = weft.train(SiftedPPO(), "weft:CartPole-v1", plan=plan, envs=32, steps=steps, run="sift-role", **settings)
    print(f"return {run.summary['return_mean']:.1f}, kept in {run.folder}")
    return run


if __name__ == "__main__":
    main()
