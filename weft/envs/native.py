"""Native vector environments: a batch that the environment's author wrote, under each of Gymnasium's auto-reset modes.

    mode        at the step that ends an episode                       at the step after it
    SAME_STEP   observation: the next episode's first; the final one   an ordinary step
                from ``info["final_obs"]``
    DISABLED    the same, by a ``reset`` of those rows alone           an ordinary step
    NEXT_STEP   observation: the final one (``final_observation``      only resets: the action is ignored, and the
                too); the flags                                        record is not valid

In NEXT_STEP the policy acts once on the final observation, to no effect. That record is reported as an episode of one
step that is not valid and is truncated: so the observation after it counts as a first, and recurrent carries start
anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from weft.core.buffers import timestep_buffers
from weft.core.errors import THEIRS, ConfigError, EnvironmentFault, EnvironmentRaised, MissingExtra
from weft.core.keys import host_seed
from weft.core.specs import EnvSpec, allocate
from weft.core.trees import tree_leaves
from weft.core.types import Timestep
from weft.envs.frames import frames_of
from weft.envs.guards import UNGUARDED, Guards, Troubles
from weft.envs.masks import KEY, dimension_starts, mask_batch
from weft.envs.observations import Misfit, ObservationWriter, leaves_of
from weft.envs.probe import attempt, first_allowed, frame_skip_of
from weft.envs.protocol import HostEnv, Snapshot
from weft.envs.scan import ValueScan
from weft.envs.spaces import action_shape, action_spec, batch_converter, observation_spec, text_parts

NDArray: TypeAlias = np.ndarray[Any, Any]
MakeVector: TypeAlias = Callable[[int, bool], VectorEnv[Any, Any, Any]]
"""Makes a native vector environment of so many environments; the flag says whether it will be rendered."""


@dataclass(frozen=True)
class NativeFactory:
    """A ``HostFactory`` of native vector environments."""

    name: str
    spec: EnvSpec
    make: MakeVector
    by_row: bool = False  # each row depends on its own seed alone, as in our vectoriser
    guards: Guards = UNGUARDED

    def __call__(self, num_envs: int, seed: int, first_index: int = 0, render: bool = False) -> HostEnv:
        """Make one vector environment of ``num_envs``, not yet reset."""
        env = attempt(self.name, "making it", lambda: self.make(num_envs, render))
        return NativeVector(self.spec, env, seed, first_index, self.guards)

    def guarded(self, guards: Guards) -> NativeFactory:
        """The same with other guards. A batch that raises ends the run in any case: none of its rows is known."""
        return replace(self, guards=guards)


def autoreset_mode(env: VectorEnv[Any, Any, Any], name: str) -> AutoresetMode:
    """The mode that the environment says it has; Gymnasium's default is NEXT_STEP."""
    mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
    try:
        return mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)
    except ValueError:
        known = ", ".join(m.value for m in AutoresetMode)
        raise EnvironmentFault(f"environment {name!r}: autoreset_mode {mode!r} is unknown (known: {known})") from None


def probe_native(name: str, make: Callable[[], VectorEnv[Any, Any, Any]]) -> EnvSpec:
    """The spec of the vector environment that ``make`` makes: it is reset, stepped once, checked and closed."""
    env = attempt(name, "making it", make)
    if not isinstance(env, VectorEnv):
        raise ConfigError(f"environment {name!r}: expected a gymnasium.vector.VectorEnv, got {type(env).__name__}")
    max_steps = getattr(env, "max_episode_steps", None) or (env.spec and env.spec.max_episode_steps)
    spec = EnvSpec(
        name=name,
        observation=observation_spec(env.single_observation_space, name),
        native_action=action_spec(env.single_action_space, name),
        next_step_reset=autoreset_mode(env, name) is AutoresetMode.NEXT_STEP,
        max_episode_steps=int(max_steps) if max_steps else None,
        frame_skip=frame_skip_of(env.unwrapped),
        frames=frames_of(env),
        gymnasium_id=env.spec.id if env.spec else "",
        left_out=text_parts(env.single_observation_space),
    )
    _, info = attempt(name, "reset", lambda: env.reset(seed=0))
    spec = EnvSpec(**{**vars(spec), "action_mask": info.get(KEY) is not None})
    vector = NativeVector(spec, env, seed=0)
    try:
        out = timestep_buffers(spec, (env.num_envs,))
        vector.reset(out)
        if out.action_mask is not None:
            rows = [first_allowed(spec.native_action, np.asarray(row)) for row in out.action_mask]
            action = np.concatenate(rows)
        else:
            action = np.zeros((env.num_envs, *spec.action.shape), spec.action.dtype)
        vector.step(action, out)
    finally:
        vector.close()
    return spec


class NativeVector:
    """A ``HostEnv`` over a vector environment.

    Environment ``i``'s randomness depends on the batch it is in, unless the vector environment says ``seeds_rows``: its
    ``reset`` then gets a list with the seed of each row.
    """

    def __init__(
        self,
        spec: EnvSpec,
        env: VectorEnv[Any, Any, Any],
        seed: int,
        first_index: int = 0,
        guards: Guards = UNGUARDED,
    ) -> None:
        self._spec, self._env, self._num_envs = spec, env, env.num_envs
        self._first_index = first_index
        self._seed: int | list[int] = host_seed(seed, first_index)
        if getattr(env, "seeds_rows", False):  # as our vectoriser does
            self._seed = [host_seed(seed, first_index + row) for row in range(self._num_envs)]
        self._mode = autoreset_mode(env, spec.name)
        space = env.single_observation_space
        self._writer = ObservationWriter(space, (self._num_envs,))
        self._row_writer = ObservationWriter(space)
        self._final = tree_leaves(allocate(spec.observation, (self._num_envs,)))  # NEXT_STEP: of rows that ended
        self._guards, self.troubles = guards, Troubles()
        bounds = None if guards.bounds == "ignore" else spec.observation
        self._scan = ValueScan(self._final, self._writer.leaves, bounds)
        self._convert = batch_converter(env.single_action_space, spec)
        self._action_shape = (self._num_envs, *action_shape(env.single_action_space))
        self._mask_starts = dimension_starts(spec.native_action)
        self._ended = np.zeros(self._num_envs, np.bool_)  # the rows whose episode ended in the last step
        self._steps = 0
        self._closed = False

    @property
    def spec(self) -> EnvSpec:
        """The spaces; ``next_step_reset`` is set in the NEXT_STEP mode."""
        return self._spec

    @property
    def num_envs(self) -> int:
        """How many environments there are, B."""
        return self._num_envs

    def reset(self, out: Timestep) -> None:
        """Start every environment; blocks. The batch is seeded as a whole."""
        self._begin(self._seed, out)

    def step(self, action: NDArray, out: Timestep) -> None:
        """Step every environment by ``action`` ([B, ...], as policies see it); blocks."""
        if action.shape != self._action_shape:
            raise ConfigError(
                f"environment {self._spec.name!r}: actions have shape {list(action.shape)}, "
                f"expected {list(self._action_shape)}"
            )
        native = self._convert(action)
        observation, reward, terminated, truncated, info = self._call("step", lambda: self._env.step(native))
        targets = leaves_of(out.observation)
        final = None if out.final_observation is None else leaves_of(out.final_observation)
        try:
            self._writer.write_batch(targets, observation)
            self._write_scalars(reward, terminated, truncated, out)
            ended = np.logical_or(out.terminated, out.truncated)
            if out.action_mask is not None:
                # Only SAME_STEP's mask is already the next episode's; elsewhere that of an ended row is of no use.
                idle = None if self._mode is AutoresetMode.SAME_STEP else ended
                out.action_mask[...] = self._masks(info, idle)
            if self._mode is AutoresetMode.NEXT_STEP:
                self._next_step(ended, targets, final, out)
            elif ended.any() and self._mode is AutoresetMode.SAME_STEP:
                self._write_final(final, ended, info)
            elif ended.any():
                self._reset_rows(ended, targets, final, out)
        except Misfit as misfit:
            raise self._fault(str(misfit)) from None
        self._check(targets)
        self._steps += 1

    def render(self) -> NDArray:
        """The first environment as uint8 [H, W, 3]; only where it was made with ``render=True``."""
        if self._env.render_mode != "rgb_array":
            raise ConfigError(f"environment {self._spec.name!r} was not made for rendering: make it with render=True")
        try:
            frames = self._env.render()
        except gym.error.DependencyNotInstalled as error:
            raise MissingExtra(f"rendering {self._spec.name!r} ({error})", "pygame", "video") from error
        except THEIRS as error:
            raise EnvironmentRaised(self._spec.name, self._first_index, self._steps, "render", error) from error
        if frames is None:
            raise EnvironmentFault(f"environment {self._spec.name!r}: render gave nothing")
        return np.asarray(frames[0], np.uint8)

    def snapshot(self) -> Snapshot:
        """Only how far it came: a native batch cannot be replayed row by row."""
        return {"kind": "native", "environment": self._spec.name, "steps": self._steps, "num_envs": self._num_envs}

    def restore(self, snapshot: Snapshot, out: Timestep) -> list[int]:
        """In place of ``reset``: every row begins a fresh episode from a new seed, and is returned."""
        steps = int(snapshot.get("steps", 0))
        seeds = self._seed if isinstance(self._seed, list) else [self._seed]
        again = [host_seed(seed, steps + 1) for seed in seeds]
        self._begin(again if isinstance(self._seed, list) else again[0], out)
        self._steps = steps
        return list(range(self._num_envs))

    def close(self) -> None:
        """Close the vector environment; may be called twice."""
        if not self._closed:
            self._closed = True
            self._call("close", self._env.close)

    def _begin(self, seed: int | list[int], out: Timestep) -> None:
        observation, info = self._call("reset", lambda: self._env.reset(seed=seed))  # type: ignore[arg-type]
        self._steps = 0
        self._ended.fill(False)
        targets = leaves_of(out.observation)
        try:
            self._writer.write_batch(targets, observation)
            if out.action_mask is not None:
                out.action_mask[...] = self._masks(info)
        except Misfit as misfit:
            raise self._fault(str(misfit)) from None
        self._check(targets)
        out.reward[:] = 0.0
        out.terminated.fill(False)  # type: ignore[union-attr]
        out.truncated.fill(True)  # type: ignore[union-attr]  # each observation is a first
        if out.valid is not None:
            out.valid.fill(True)  # type: ignore[union-attr]

    def _next_step(self, ended: NDArray, targets: list[NDArray], final: list[NDArray] | None, out: Timestep) -> None:
        """Rows that ended in the last step were only reset now; rows that end now have their final observation."""
        resetting = self._ended
        if out.valid is not None:
            out.valid[:] = ~resetting
        if resetting.any():
            if final is not None:
                for target, kept in zip(final, self._final, strict=True):
                    target[resetting] = kept[resetting]
            out.reward[resetting] = 0.0
            out.terminated[resetting] = False
            out.truncated[resetting] = True
            ended = ended & ~resetting
        if ended.any():
            for i, target in enumerate(targets):
                self._final[i][ended] = target[ended]
                if final is not None:
                    final[i][ended] = target[ended]
        self._ended = ended

    def _write_final(self, final: list[NDArray] | None, ended: NDArray, info: dict[str, Any]) -> None:
        given = info.get("final_obs", info.get("final_observation"))
        if final is None:
            return
        if given is None:
            raise Misfit("info has no 'final_obs' though episodes ended, and auto-reset is SameStep")
        if isinstance(given, np.ndarray) and given.dtype == object:
            for row in np.flatnonzero(ended):
                self._row_writer.write_row(final, int(row), given[row])
        else:
            self._writer.write_batch(final, given, ended)
        if not all(np.isfinite(target[ended]).all() for target in final if target.dtype.kind == "f"):
            raise Misfit("a final observation is not finite")

    def _reset_rows(self, ended: NDArray, targets: list[NDArray], final: list[NDArray] | None, out: Timestep) -> None:
        if final is not None:
            for target, last in zip(final, targets, strict=True):
                target[ended] = last[ended]
        options = {"reset_mask": ended.copy()}
        observation, info = self._call("reset", lambda: self._env.reset(options=options))
        self._check(targets)  # of what has just become final
        self._writer.write_batch(targets, observation, ended)
        if out.action_mask is not None:
            out.action_mask[ended] = self._masks(info, ~ended)[ended]

    def _write_scalars(self, reward: Any, terminated: Any, truncated: Any, out: Timestep) -> None:
        for what, value, target, kinds, of in (
            ("reward", reward, out.reward, "biuf", "numbers"),
            ("terminated", terminated, out.terminated, "biu", "flags"),
            ("truncated", truncated, out.truncated, "biu", "flags"),
        ):
            array = np.asarray(value)
            if array.shape != (self._num_envs,) or array.dtype.kind not in kinds:
                raise Misfit(f"{what} came as {array.dtype} {list(array.shape)}, expected [{self._num_envs}] {of}")
            target[:] = array
        if not np.isfinite(out.reward).all():
            row = int(np.argmin(np.isfinite(out.reward)))
            raise Misfit(f"the reward in row {row} is {out.reward[row]}")

    def _masks(self, info: dict[str, Any], idle: NDArray | None = None) -> NDArray:
        return mask_batch(info, self._num_envs, self._spec.mask_size, self._mask_starts, idle)

    def _check(self, targets: list[NDArray]) -> None:
        if self._scan.clean(targets):
            return
        bad = self._scan.not_finite(targets)
        if bad is not None:
            raise self._fault(f"row {bad[0]}: {bad[1]}")
        row, count, what = self._scan.outside(targets)
        fault = self._fault(f"row {row}: {what}")
        if self._guards.bounds == "fail":
            raise fault
        self.troubles.add("observations outside their Box", lambda: (str(fault), ""), outside=count)

    def _call(self, doing: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except THEIRS as error:
            raise EnvironmentRaised(self._spec.name, self._first_index, self._steps, doing, error) from error

    def _fault(self, what: str) -> EnvironmentFault:
        return EnvironmentFault(
            f"environment {self._spec.name!r} (native batch from number {self._first_index}), step {self._steps}: "
            f"{what}. Correct the environment, or use our own vectoriser (vector='each')."
        )
