"""A trained policy: observations in, actions out, in the environment's own units."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weft.core.errors import ConfigError
from weft.core.specs import describe
from weft.core.trees import tree_map, tree_paths
from weft.core.types import Timestep, Tree
from weft.graph.algorithm import Algorithm
from weft.graph.loops import policy_view, timestep_schema

END = np.array(2**31 - 1, np.int32)
"""The step that a trained policy is asked for: beyond the end of the run, where exploration is what it came to."""


class Policy:
    """Acts for one environment, or for a batch of them that begin and end together.

    Recurrent policies remember: call ``reset`` before each episode; another batch size begins anew. ``greedy`` takes
    the likeliest action, else one is drawn.
    """

    def __init__(self, algorithm: Algorithm, params: Tree, *, greedy: bool = True, seed: int = 0) -> None:
        self.algorithm, self.params, self.greedy = algorithm, params, greedy
        self._key, self._step = jax.random.key(seed), 0
        self._carry: Tree = None
        self._count = 0  # environments that the carry is of

        # One key for every step would draw the same each time, and may always draw badly.
        undefined = type(algorithm).greedy is Algorithm.greedy

        def act(params: Tree, carry: Tree, timestep: Timestep, keys: jax.Array) -> tuple[Tree, Tree]:
            def one(carry: Tree, timestep: Timestep, key: jax.Array) -> tuple[Tree, Tree]:
                if greedy and not undefined:
                    acted = algorithm.greedy(params, carry, timestep)
                else:
                    acted = algorithm.act_at(params, carry, timestep, key, END)
                return acted.action, acted.carry

            action, carry = jax.vmap(one)(carry, timestep, keys)
            return action, jax.tree.map(jnp.copy, carry)  # never a view of the caller's observation

        self._act = jax.jit(act)

    def reset(self) -> None:
        """Forget: the next call begins an episode."""
        self._carry = None

    def take(self, params: Tree) -> None:
        """Act with other params from now on, as one that is made with them would; nothing is compiled again."""
        self.params, self._carry, self._step = params, None, 0

    def __call__(self, observation: Tree, action_mask: Any = None) -> Any:
        """The action for an observation (or ``[B, ...]`` of them), NumPy in the environment's own units."""
        batch = self._batch_size(observation)
        rows = tree_map(np.asarray if batch else lambda x: np.asarray(x)[None], observation)
        mask = None
        if self.algorithm.spec.environment.action_mask:
            choices = self.algorithm.spec.environment.mask_size
            mask = np.ones(choices, np.bool_) if action_mask is None else np.asarray(action_mask, np.bool_)
            mask = np.broadcast_to(mask, (batch or 1, choices))
        no = np.zeros(batch or 1, np.bool_)
        nothing = np.zeros((batch or 1, *self.algorithm.spec.environment.reward_shape), np.float32)
        timestep = Timestep(rows, nothing, no, no, action_mask=mask)
        action = self.act(timestep)
        native = self.algorithm.spec.environment.to_native(action)
        return native if batch else native[0]

    def act(self, timestep: Timestep) -> np.ndarray[Any, Any]:
        """Actions as policies see them for a ``[B, ...]`` timestep, keeping the carry; ``first`` rows start anew."""
        count = int(np.shape(timestep.reward)[0])
        if self._carry is None or count != self._count:  # another number of environments: not the same ones
            self._count = count
            start = self.algorithm.initial_carry()
            self._carry = jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x), (count, *jnp.shape(x))), start)
        self._step += 1
        keys = jax.random.split(jax.random.fold_in(self._key, self._step), count)
        action, self._carry = self._act(self.params, self._carry, policy_view(timestep), keys)
        return np.asarray(action)

    def _batch_size(self, observation: Tree) -> int:
        """0 for a single observation; refuses what is neither one nor a batch."""
        spec = self.algorithm.spec.environment
        want = timestep_schema(spec, 1).observation
        got = {path: np.shape(leaf) for path, leaf in tree_paths(observation)}
        shapes = {path: leaf.shape[1:] for path, leaf in tree_paths(want)}
        if got == shapes:
            return 0
        sizes = {shape[0] if shape[1:] == shapes.get(path) else -1 for path, shape in got.items() if shape}
        if got.keys() == shapes.keys() and len(sizes) == 1 and min(sizes) > 0:
            return sizes.pop()
        raise ConfigError(
            f"policy: got an observation of shape {_words(got)}; expected {describe(spec.observation)}, "
            "or a batch of such with one more axis in front"
        )


def _words(shapes: dict[str, tuple[int, ...]]) -> str:
    if list(shapes) == [""]:
        return str(list(shapes[""]))
    return "{" + ", ".join(f"{path}: {list(shape)}" for path, shape in shapes.items()) + "}"
