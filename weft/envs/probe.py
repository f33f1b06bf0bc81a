"""Finding out what an environment is: one is made, reset, stepped once by an action, checked, and closed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np

from weft.core.errors import THEIRS, ConfigError, EnvironmentFault, EnvironmentRaised, WeftError
from weft.core.specs import Discrete, EnvSpec, MultiDiscrete, Space, allocate
from weft.core.trees import tree_leaves
from weft.envs.frames import frames_of
from weft.envs.masks import KEY, dimension_starts, mask_row
from weft.envs.observations import LARGEST, Misfit, ObservationWriter, is_flag, shorten
from weft.envs.scan import ValueScan
from weft.envs.spaces import action_spec, batch_converter, native_layout, observation_spec, text_parts

NDArray: TypeAlias = np.ndarray[Any, Any]


def probe(name: str, make: Callable[[], gym.Env[Any, Any]]) -> EnvSpec:
    """The spec of the environment that ``make`` makes. Raises where what it gives disagrees with its own spaces."""
    env = attempt(name, "making it", make)
    try:
        return _probe(name, env)
    finally:
        attempt(name, "close", env.close)


def attempt(name: str, doing: str, call: Callable[[], Any]) -> Any:
    """``call()``; what the user's code raises is passed on with the environment's name."""
    try:
        return call()
    except WeftError:
        raise
    except THEIRS as error:
        raise EnvironmentRaised(name, 0, 0, doing, error) from error


def frame_skip_of(env: Any) -> int:
    """How many frames of the underlying simulator one step takes, where the environment or a wrapper says so."""
    spec = getattr(env, "spec", None)
    skips = [kwargs.get("frameskip") for kwargs in [getattr(spec, "kwargs", None) or {}]]
    while env is not None:
        inside = getattr(env, "__dict__", {})
        skips.append(inside.get("frame_skip"))
        env = inside.get("env")
    said = [skip for skip in skips if isinstance(skip, int) and skip > 1]
    return said[-1] if said else 1


def first_allowed(space: Space, mask: NDArray) -> NDArray:
    """A policy's action that ``mask`` ([choices] bool) allows, in a batch of one."""
    match space:
        case Discrete():
            return np.array([np.argmax(mask)], space.dtype)
        case MultiDiscrete(nvec=nvec):
            ends = np.cumsum(nvec)
            parts = [np.argmax(mask[end - n : end]) for n, end in zip(nvec, ends, strict=True)]
            return np.array([parts], space.dtype)
    bits: NDArray = np.argmax(mask.reshape(-1, 2), axis=1)[None].astype(space.dtype)
    return bits


def _probe(name: str, env: gym.Env[Any, Any]) -> EnvSpec:
    if not isinstance(env, gym.Env):
        raise ConfigError(f"environment {name!r}: expected a gymnasium.Env, got {type(env).__name__}")
    for attribute in ("observation_space", "action_space"):
        if not isinstance(getattr(env, attribute, None), gym.Space):
            raise EnvironmentFault(f"environment {name!r}: {attribute} is not a gymnasium.Space. Set it in __init__.")
    native = action_spec(env.action_space, name)
    start, shape = native_layout(env.action_space)
    spec = EnvSpec(
        name=name,
        observation=observation_spec(env.observation_space, name),
        native_action=native,
        max_episode_steps=None if env.spec is None else env.spec.max_episode_steps,
        frame_skip=frame_skip_of(env),
        frames=frames_of(env),
        gymnasium_id="" if env.spec is None else env.spec.id,
        left_out=text_parts(env.observation_space),
        action_start=start,
        action_shape=shape,
    )
    writer = ObservationWriter(env.observation_space)

    gave = attempt(name, "reset", lambda: env.reset(seed=0))
    if not isinstance(gave, tuple) or len(gave) != 2 or not isinstance(gave[1], Mapping):
        raise EnvironmentFault(f"environment {name!r}: reset must return (observation, info dict), got {_words(gave)}")
    _check_observation(name, "reset", spec, writer, gave[0])
    masked = gave[1].get(KEY) is not None
    if masked:
        spec = EnvSpec(**{**vars(spec), "action_mask": True})
        action = _row(first_allowed(native, _mask(name, gave[1], spec)), env.action_space, spec)
    else:
        env.action_space.seed(0)
        action = env.action_space.sample()

    gave = attempt(name, "step", lambda: env.step(action))
    if not isinstance(gave, tuple) or len(gave) != 5 or not isinstance(gave[4], Mapping):
        raise EnvironmentFault(
            f"environment {name!r}: step must return (observation, reward, terminated, truncated, info dict), "
            f"got {_words(gave)}"
        )
    observation, reward, terminated, truncated, info = gave
    _check_observation(name, "step", spec, writer, observation)
    _check_scalars(name, reward, terminated, truncated)
    if masked and not (terminated or truncated):
        _mask(name, info, spec)
    return spec


def _row(policy: NDArray, space: gym.Space[Any], spec: EnvSpec) -> Any:
    batch = batch_converter(space, spec)(policy)
    return batch.tolist()[0] if isinstance(space, gym.spaces.Discrete) else batch[0]


def _mask(name: str, info: Mapping[str, Any], spec: EnvSpec) -> NDArray:
    if spec.mask_size == 0:
        raise EnvironmentFault(f"environment {name!r}: info has {KEY!r}, but a Box of actions has no choices to mask")
    try:
        return mask_row(info, spec.mask_size, dimension_starts(spec.native_action))
    except Misfit as misfit:
        raise EnvironmentFault(f"environment {name!r}: {misfit}. Give it in the infos of reset and step.") from None


def _check_observation(name: str, doing: str, spec: EnvSpec, writer: ObservationWriter, observation: Any) -> None:
    targets = tree_leaves(allocate(spec.observation, (1,)))
    try:
        writer.write_row(targets, 0, observation)
    except Misfit as misfit:
        raise EnvironmentFault(
            f"environment {name!r}: {doing}: {misfit}. Correct observation_space, or what {doing} returns."
        ) from None
    bad = ValueScan(targets, writer.leaves).not_finite(targets)
    if bad is not None:
        raise EnvironmentFault(f"environment {name!r}: {doing}: {bad[1]}. Observations must be finite.")


def _check_scalars(name: str, reward: Any, terminated: Any, truncated: Any) -> None:
    try:
        number = float(reward) if np.shape(reward) == () else None
    except (TypeError, ValueError, OverflowError):  # the last: an integer beyond every float
        number = None
    if number is None or not -LARGEST <= number <= LARGEST:
        raise EnvironmentFault(
            f"environment {name!r}: step: the reward is {shorten(reward)}, expected a finite number (float32)"
        )
    for what, flag in (("terminated", terminated), ("truncated", truncated)):
        if not is_flag(flag):
            raise EnvironmentFault(f"environment {name!r}: step: {what} is {shorten(flag)}, expected True or False")


def _words(gave: Any) -> str:
    return f"{len(gave)} values" if isinstance(gave, tuple) else type(gave).__name__
