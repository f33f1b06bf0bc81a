"""Data sets of Minari (minari.farama.org), Gymnasium's own collection, as ours: arrays of the same episodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.core.errors import ConfigError, MissingExtra
from weft.core.specs import Box, EnvSpec, allocate
from weft.core.trees import tree_leaves
from weft.data.dataset import Dataset, Episode, NDArray
from weft.envs.observations import Misfit, ObservationWriter
from weft.envs.spaces import action_spec, native_layout, observation_spec


def from_minari(dataset: Any) -> Dataset:
    """The episodes of a ``minari.MinariDataset``, or of the one of this name on this machine."""
    if isinstance(dataset, str):
        dataset = _found(dataset)
    name = str(getattr(dataset.env_spec, "id", None) or dataset.id)
    start, shape = native_layout(dataset.action_space)
    spec = EnvSpec(
        name,
        observation_spec(dataset.observation_space, name),
        action_spec(dataset.action_space, name),
        action_start=start,
        action_shape=shape,
        max_episode_steps=getattr(dataset.env_spec, "max_episode_steps", None),
        gymnasium_id=name if dataset.env_spec is not None else "",
    )
    return Dataset.from_episodes(spec, _episodes(dataset, spec), minari=str(dataset.id))


def _found(name: str) -> Any:
    try:
        import minari
    except ImportError:
        raise MissingExtra(f"the data set 'minari:{name}'", "minari", "minari") from None
    try:
        return minari.load_dataset(name)
    except (FileNotFoundError, ValueError) as error:
        raise ConfigError(
            f"minari has no data set {name!r} on this machine ({error}). `minari list local` lists them, "
            f"`minari download {name}` brings one."
        ) from None


def _episodes(dataset: Any, spec: EnvSpec) -> Iterator[Episode]:
    for episode in dataset.iterate_episodes():
        length = len(episode.rewards)
        observation = allocate(spec.observation, (length + 1,))
        try:
            writer = ObservationWriter(dataset.observation_space, (length + 1,))
            writer.write_batch(tree_leaves(observation), episode.observations)
        except Misfit as error:
            raise ConfigError(f"minari's data set {dataset.id!r}, episode {episode.id}: {error}") from None
        last = np.arange(length) == length - 1  # a mark before an episode's end means nothing
        yield Episode(
            observation,
            to_policy(np.asarray(episode.actions), spec),
            np.asarray(episode.rewards, np.float32),
            np.asarray(episode.terminations, np.bool_) & last,
            np.asarray(episode.truncations, np.bool_) & last,
        )


def to_policy(action: NDArray, spec: EnvSpec) -> NDArray:
    """``[T, ...]`` actions in the environment's own units as policies see them: what ``spec.to_native`` undoes."""
    native = spec.native_action
    if not isinstance(native, Box):
        shifted = action - np.asarray(spec.action_start)
        flat: NDArray = shifted.reshape((len(action), *native.shape)).astype(native.dtype)
        return flat
    bounded = native.bounded
    low, high = np.where(bounded, native.low, -1.0), np.where(bounded, native.high, 1.0)
    scaled = np.clip(2.0 * (action - low) / np.where(high > low, high - low, 1.0) - 1.0, -1.0, 1.0)
    return np.where(bounded, scaled, action).astype(np.float32)
