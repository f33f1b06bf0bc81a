"""A2C with fragments of one's own on its streams, by name; workers import it, and the fault tests copy it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

import weft


@dataclass(frozen=True)
class Mapped(weft.A2C):
    """A2C with maps: their names in ``MAPS``, of those the options of ``Graph.insert``."""

    maps: ClassVar[tuple[str, ...]] = ()

    def graph(self) -> weft.Graph:
        graph = super().graph()
        for name in self.maps:
            called, step, options = MAPS[name]
            graph = graph.insert(called, step, **options)
        return graph


class Centred(Mapped):
    """A pure map with a state."""

    maps = ("centre",)


class CentredOnHost(Mapped):
    """Host code with a state."""

    maps = ("centre on host",)


class Filtered(Mapped):
    """Host code that gives none for every second unroll."""

    maps = ("every second",)


class Doubled(Mapped):
    """Host code that gives two messages."""

    maps = ("twice",)


class DoubledPurely(Mapped):
    """A pure map that gives two messages."""

    maps = ("twice purely",)


class Chained(Mapped):
    """Two maps on the unrolls: a pure one with a state, then host code with one."""

    maps = ("centre", "count")


class Reading(Mapped):
    """A map that reads the learner's params."""

    maps = ("reads",)


class Rounded(Mapped):
    """A map on params: act has them to three binary places."""

    maps = ("round",)


class RoundedOnHost(Mapped):
    """The same in host code."""

    maps = ("round on host",)


class Clipped(Mapped):
    """A map on gradients."""

    maps = ("clip",)


class ClippedOnHost(Mapped):
    """The same in host code, with a state."""

    maps = ("clip on host",)


class Scaled(Mapped):
    """A map on gradients that may come before or after their mean."""

    maps = ("scale",)


class ScaledOnHost(Mapped):
    """The same in host code."""

    maps = ("scale on host",)


def centre(state: Any, unroll: Any) -> Any:
    """Rewards less their running mean."""
    count, mean = state
    mean = mean + (unroll.reward.mean() - mean) / (count + 1)
    return (count + 1, mean), unroll._replace(reward=unroll.reward - mean)


def centre_on_host(state: Any, unroll: Any) -> Any:
    """The same in double precision, in place."""
    state["count"] += 1
    state["mean"] += (unroll.reward.mean(dtype=np.float64) - state["mean"]) / state["count"]
    return state, unroll._replace(reward=(unroll.reward - state["mean"]).astype(np.float32))


def every_second(state: Any, unroll: Any) -> Any:
    """None for every second."""
    return state + 1, [unroll] if state % 2 == 0 else []


def twice(state: Any, unroll: Any) -> Any:
    """Two for each: as it is, and with the reward doubled."""
    return state + 1, [unroll, unroll._replace(reward=unroll.reward * 2)]


def count(state: Any, unroll: Any) -> Any:
    """As it is; counts."""
    return state + np.int64(1), unroll


def reads(state: Any, unroll: Any, params: Any) -> Any:
    """Rewards plus a number that follows from the params."""
    total = sum(leaf.sum() for leaf in jax.tree.leaves(params))
    return state, unroll._replace(reward=unroll.reward + jnp.tanh(total))


def rounded(state: Any, params: Any) -> Any:
    """To multiples of 1 / 8; counts the versions."""
    return state + 1, jax.tree.map(lambda x: jnp.round(x * 8) / 8, params)


def rounded_on_host(state: Any, params: Any) -> Any:
    """The same in NumPy."""
    return state + 1, jax.tree.map(lambda x: np.round(x * 8) / np.float32(8), params)


def clip(state: Any, message: Any) -> Any:
    """Gradients by value."""
    return state, message._replace(tree=jax.tree.map(lambda g: jnp.clip(g, -0.01, 0.01), message.tree))


def clip_on_host(state: Any, message: Any) -> Any:
    """The same in NumPy; counts."""
    clipped = jax.tree.map(lambda g: np.clip(g, np.float32(-0.01), np.float32(0.01)), message.tree)
    return state + 1, message._replace(tree=clipped)


def scale(state: Any, message: Any) -> Any:
    """Each leaf by its own factor; some are turned round."""
    leaves, structure = jax.tree.flatten(message.tree)
    scaled = [leaf * np.float32(1 - k % 3) for k, leaf in enumerate(leaves)]
    return state, message._replace(tree=jax.tree.unflatten(structure, scaled))


def _zero(key: Any) -> Any:
    return np.int64(0)


MAPS: dict[str, Any] = {
    "centre": ("relabel", centre, {"init": lambda key: (jnp.int32(0), jax.random.uniform(key))}),
    "centre on host": (
        "relabel",
        centre_on_host,
        {"init": lambda key: {"count": np.int64(0), "mean": np.float64(1 / 3)}, "host": True},
    ),
    "every second": ("relabel", every_second, {"init": _zero, "host": True}),
    "twice": ("relabel", twice, {"init": _zero, "host": True}),
    "twice purely": ("relabel", twice, {"init": lambda key: jnp.int32(0)}),
    "count": ("count", count, {"init": _zero, "host": True}),
    "reads": ("relabel", reads, {"reads": "learn"}),
    "round": ("round", rounded, {"init": lambda key: jnp.int32(0), "on": "params"}),
    "round on host": ("round", rounded_on_host, {"init": _zero, "on": "params", "host": True}),
    "scale": ("scale", scale, {"on": "gradients"}),
    "scale on host": ("scale", scale, {"on": "gradients", "host": True}),
    "clip": ("clip", clip, {"on": "gradients"}),
    "clip on host": ("clip", clip_on_host, {"init": _zero, "on": "gradients", "host": True}),
}
