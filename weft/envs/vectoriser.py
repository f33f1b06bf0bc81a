"""The lean vectoriser: B Gymnasium environments in one Python loop, written straight into the caller's arrays.

For light environments the loop is the cost, so a step allocates nothing for an environment, checks by identity where it
can, and collects scalars in lists that are copied once. What is rare (an episode's end, an odd observation) is
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np

from weft.core.errors import THEIRS, ConfigError, EnvironmentFault, EnvironmentRaised, MissingExtra, WeftError
from weft.core.keys import host_seed
from weft.core.specs import EnvSpec, allocate, describe
from weft.core.trees import tree_leaves
from weft.core.types import Timestep
from weft.envs.episodes import EpisodeLog, generator_digest, generator_state, replay
from weft.envs.masks import dimension_starts, mask_row
from weft.envs.observations import LARGEST, FiniteScan, Misfit, ObservationWriter, is_flag, leaves_of, shorten
from weft.envs.protocol import HostEnv, Snapshot
from weft.envs.spaces import action_shape, action_spec, batch_converter, observation_spec, scalar_converter

NDArray: TypeAlias = np.ndarray[Any, Any]
MakeEnv: TypeAlias = Callable[[bool], gym.Env[Any, Any]]
"""Makes one environment; the argument says whether it will be rendered."""


@dataclass(frozen=True)
class VectoriserFactory:
    """A ``HostFactory`` of vectorisers: ``make`` is called once for every environment."""

    name: str
    spec: EnvSpec
    make: MakeEnv

    def __call__(self, num_envs: int, seed: int, first_index: int = 0, render: bool = False) -> HostEnv:
        """Make ``num_envs`` environments, not yet reset."""
        return Vectoriser(self.spec, self.make, num_envs, seed, first_index, render)


class Vectoriser:
    """A ``HostEnv`` of ``num_envs`` environments made by ``make``; ``envs.protocol`` has what each method promises."""

    def __init__(
        self, spec: EnvSpec, make: MakeEnv, num_envs: int, seed: int, first_index: int = 0, render: bool = False
    ) -> None:
        if num_envs < 1:
            raise ConfigError(f"environment {spec.name!r}: a batch needs at least 1 environment, got {num_envs}")
        self._spec, self._num_envs, self._first_index = spec, num_envs, first_index
        self._seeds = [host_seed(seed, first_index + i) for i in range(num_envs)]
        self._envs: list[gym.Env[Any, Any]] = []
        self._steps = 0  # batch steps so far, which is also every environment's
        try:
            for _ in range(num_envs):
                self._envs.append(self._make(make, render and not self._envs))
        except BaseException:
            self.close()
            raise
        self._steppers = [env.step for env in self._envs]
        self._cores = [env.unwrapped for env in self._envs]
        self._writer = ObservationWriter(self._envs[0].observation_space)
        plain = self._writer.plain
        self._plain = (plain.dtype, plain.given) if plain else (None, ())
        buffers = tree_leaves(allocate(spec.observation, (num_envs,)))
        self._scan = FiniteScan(buffers, self._writer.leaves)
        self._scan_row = FiniteScan([buffer[:1] for buffer in buffers], self._writer.leaves)
        action_space = self._envs[0].action_space
        self._convert = batch_converter(action_space, spec)
        self._to_scalars = scalar_converter(action_space) if isinstance(action_space, gym.spaces.Discrete) else None
        self._action_shape = (num_envs, *action_shape(action_space))
        self._mask_starts = dimension_starts(spec.native_action)
        self._native_action = (tuple(action_space.shape or ()), action_space.dtype)
        self._log = EpisodeLog(num_envs)
        self._latest: list[Any] = [None] * num_envs  # the observations as the environments gave them
        self._rewards: list[Any] = [0.0] * num_envs
        self._none = np.zeros(num_envs, np.bool_)
        self._ended: dict[int, tuple[bool, bool]] = {}  # rows whose episode ended in the last step: their flags

    @property
    def spec(self) -> EnvSpec:
        """The spaces."""
        return self._spec

    @property
    def num_envs(self) -> int:
        """How many environments there are, B."""
        return self._num_envs

    def reset(self, out: Timestep) -> None:
        """Start every environment from its own seed; blocks."""
        self._steps, self._log = 0, EpisodeLog(self._num_envs)
        self._clear(out)
        self._ended = dict.fromkeys(range(self._num_envs), (False, True))
        out.truncated.fill(True)  # type: ignore[union-attr]  # each observation is a first
        for row in range(self._num_envs):
            self._place(row, *self._reset_row(row, self._seeds[row]), out)
        self._check_finite(leaves_of(out.observation))

    def step(self, action: NDArray, out: Timestep) -> None:
        """Step every environment by ``action`` ([B, ...], as policies see it); blocks."""
        if action.shape != self._action_shape:
            raise ConfigError(
                f"environment {self._spec.name!r}: actions have shape {list(action.shape)}, "
                f"expected {list(self._action_shape)}"
            )
        actions: list[Any]
        logged: list[Any] | NDArray
        if self._to_scalars is not None:
            actions = logged = self._to_scalars(action)
        else:
            logged = self._convert(action)
            actions = list(np.copy(logged))  # an environment may write into what it is given
        self._log.actions.append(logged)
        self._log.trim()
        if self._ended:
            self._ended = {}

        # Local names, and a dtype of None where no array can be assigned as it comes: each check costs nanoseconds.
        targets, mask, starts = leaves_of(out.observation), out.action_mask, self._mask_starts
        (dtype, shape), target = self._plain, targets[0]
        latest, rewards, write_row, ndarray = self._latest, self._rewards, self._writer.write_row, np.ndarray
        self._clear_flags(out)
        row = 0
        try:
            for row, step, act in zip(range(self._num_envs), self._steppers, actions, strict=True):
                observation, rewards[row], terminated, truncated, info = step(act)
                if (terminated is not False or truncated is not False) and self._ends(terminated, truncated):
                    observation, info = self._turn(row, observation, bool(terminated), bool(truncated), out)
                latest[row] = observation
                if type(observation) is ndarray and observation.dtype is dtype and observation.shape == shape:
                    target[row] = observation
                else:
                    write_row(targets, row, observation)
                if mask is not None:
                    mask[row] = mask_row(info, mask.shape[-1], starts)
        except WeftError:
            raise
        except Misfit as misfit:
            raise self._fault(row, str(misfit)) from None
        except THEIRS as error:
            raise EnvironmentRaised(self._spec.name, self._first_index + row, self._steps, "step", error) from error
        try:
            for reward in rewards:  # by Python: NumPy's code would come from afar, and push the loop's out of the cache
                if not -LARGEST <= reward <= LARGEST:
                    raise self._bad_reward()
            out.reward[:] = rewards
        except (TypeError, ValueError):
            raise self._bad_reward() from None
        self._check_finite(targets)
        self._steps += 1

    def render(self) -> NDArray:
        """The first environment as uint8 [H, W, 3]; only where it was made with ``render=True``."""
        if self._envs[0].render_mode != "rgb_array":
            raise ConfigError(f"environment {self._spec.name!r} was not made for rendering: make it with render=True")
        try:
            frame = self._envs[0].render()
        except gym.error.DependencyNotInstalled as error:
            raise MissingExtra(f"rendering {self._spec.name!r} ({error})", "pygame", "video") from error
        except THEIRS as error:
            raise EnvironmentRaised(self._spec.name, self._first_index, self._steps, "render", error) from error
        return np.asarray(frame, np.uint8)

    def snapshot(self) -> Snapshot:
        """For each environment its generator before the current episode and its actions since; JSON-serialisable.

        Exact for environments that draw only from their ``np_random``. Restoring takes as long as the episodes so far.
        """
        rows = []
        for row in range(self._num_envs):
            generator, actions = self._log.row(row)
            terminated, truncated = self._ended.get(row, (False, False))
            rows.append(
                {
                    "seed": self._seeds[row],
                    "generator": generator,
                    "actions": actions,
                    "reward": float(self._rewards[row]),
                    "terminated": terminated,
                    "truncated": truncated,
                    "digest": self._digest(row),
                }
            )
        return {"kind": "replay", "environment": self._spec.name, "steps": self._steps, "rows": rows}

    def restore(self, snapshot: Snapshot, out: Timestep) -> list[int]:
        """In place of ``reset``: replay every environment's current episode, and check that it stands where it did.

        ``reward``, ``terminated`` and ``truncated`` are as the last step left them; ``final_observation`` is not
        brought back. Rows that did not come out the same begin a fresh episode from a new seed, and are returned.
        """
        rows = snapshot.get("rows", [])
        if snapshot.get("kind") != "replay" or len(rows) != self._num_envs:
            raise ConfigError(
                f"environment {self._spec.name!r}: a snapshot of kind {snapshot.get('kind')!r} with {len(rows)} "
                f"environments cannot be restored into {self._num_envs} that are replayed"
            )
        self._steps, self._log = int(snapshot["steps"]), EpisodeLog(self._num_envs)
        self._clear(out)
        inexact = []
        for row, saved in enumerate(rows):
            if not self._replay(row, saved, out):
                inexact.append(row)
                self._seeds[row] = host_seed(int(saved["seed"]), self._steps + 1)
                self._log.begin(row, None)
                self._rewards[row], self._ended[row] = 0.0, (False, True)
                self._place(row, *self._reset_row(row, self._seeds[row]), out)
            out.reward[row] = self._rewards[row]
            out.terminated[row], out.truncated[row] = self._ended.get(row, (False, False))
        self._check_finite(leaves_of(out.observation))
        return inexact

    def close(self) -> None:
        """Close every environment; may be called twice."""
        envs, self._envs = self._envs, []
        failure: EnvironmentRaised | None = None
        for row, env in enumerate(envs):
            try:
                env.close()
            except THEIRS as error:  # the others must be closed too
                failure = EnvironmentRaised(self._spec.name, self._first_index + row, self._steps, "close", error)
                failure.__cause__ = error
        if failure is not None:
            raise failure

    def _make(self, make: MakeEnv, render: bool) -> gym.Env[Any, Any]:
        index = self._first_index + len(self._envs)
        try:
            env = make(render)
        except WeftError:
            raise
        except THEIRS as error:
            raise EnvironmentRaised(self._spec.name, index, 0, "making it", error) from error
        if any(env.unwrapped is other.unwrapped for other in self._envs):
            raise EnvironmentFault(
                f"environment {self._spec.name!r}: number {index} is the same object as an earlier one. The function "
                "that makes environments must make a new one each time that it is called."
            )
        came = observation_spec(env.observation_space, self._spec.name), action_spec(env.action_space, self._spec.name)
        for what, space, expected in zip(
            ("observation", "action"), came, (self._spec.observation, self._spec.native_action), strict=True
        ):
            if describe(space) != describe(expected):
                env.close()
                raise EnvironmentFault(
                    f"environment {self._spec.name!r}: number {index} has {what}s {describe(space)}, but the first "
                    f"that was made had {describe(expected)}. All environments of a batch need the same spaces."
                )
        return env

    def _clear(self, out: Timestep) -> None:
        """Nothing ended, no reward: in ``out`` and here."""
        self._rewards, self._ended = [0.0] * self._num_envs, {}
        out.reward[:] = 0.0
        self._clear_flags(out)

    def _clear_flags(self, out: Timestep) -> None:
        out.terminated[:] = self._none
        out.truncated[:] = self._none
        if out.valid is not None:
            out.valid.fill(True)  # type: ignore[union-attr]

    def _reset_row(self, row: int, seed: int | None) -> tuple[Any, dict[str, Any]]:
        try:
            observation, info = self._envs[row].reset(seed=seed)
        except THEIRS as error:
            raise EnvironmentRaised(self._spec.name, self._first_index + row, self._steps, "reset", error) from error
        return observation, info

    def _place(self, row: int, observation: Any, info: dict[str, Any], out: Timestep) -> None:
        """Write one row's observation and mask, outside the hot loop."""
        self._latest[row] = observation
        try:
            self._writer.write_row(leaves_of(out.observation), row, observation)
            if out.action_mask is not None:
                out.action_mask[row] = mask_row(info, self._spec.mask_size, self._mask_starts)
        except Misfit as misfit:
            raise self._fault(row, str(misfit)) from None

    def _ends(self, terminated: Any, truncated: Any) -> bool:
        """Whether flags that are not both plain False say that the episode ended; Misfit where they are no flags."""
        for what, flag in (("terminated", terminated), ("truncated", truncated)):
            if type(flag) is not bool and not is_flag(flag):
                raise Misfit(f"{what} is {shorten(flag)}, expected True or False")
        return bool(terminated or truncated)

    def _turn(
        self, row: int, final: Any, terminated: bool, truncated: bool, out: Timestep
    ) -> tuple[Any, dict[str, Any]]:
        """An episode ended: its flags and final observation are written, and the next one's first is returned."""
        out.terminated[row], out.truncated[row] = terminated, truncated
        self._ended[row] = (terminated, truncated)
        if out.final_observation is not None:
            targets = leaves_of(out.final_observation)
            self._writer.write_row(targets, row, final)
            one = [target[row : row + 1] for target in targets]
            if not self._scan_row.clean(one):
                raise self._fault(row, "final " + self._scan_row.first(one)[1])
        self._log.begin(row, generator_state(self._cores[row]))
        return self._reset_row(row, None)

    def _replay(self, row: int, saved: dict[str, Any], out: Timestep) -> bool:
        """Bring one row back, and say whether it stands where it did."""
        shape, dtype = self._native_action
        revive = np.dtype(dtype).type if self._to_scalars else (lambda act: np.asarray(act, dtype).reshape(shape))
        replayed = replay(self._envs[row], saved, revive)
        if replayed is None:
            return False
        observation, info = replayed
        self._seeds[row] = int(saved["seed"])
        self._log.begin(row, saved["generator"], list(saved["actions"]))
        self._rewards[row] = float(saved["reward"])
        if saved["terminated"] or saved["truncated"]:
            self._ended[row] = (bool(saved["terminated"]), bool(saved["truncated"]))
        self._place(row, observation, info, out)
        return bool(self._digest(row) == saved["digest"])

    def _digest(self, row: int) -> list[int]:
        return [self._writer.digest(self._latest[row]), generator_digest(self._cores[row])]

    def _check_finite(self, targets: list[NDArray]) -> None:
        if not self._scan.clean(targets):
            row, what = self._scan.first(targets)
            raise self._fault(row, what)

    def _bad_reward(self) -> EnvironmentFault:
        for row, reward in enumerate(self._rewards):
            if not isinstance(reward, int | float | np.number | np.bool_ | np.ndarray) or np.shape(reward) != ():
                return self._fault(row, f"the reward is {shorten(reward)}, not a number")
            if not -LARGEST <= reward <= LARGEST:
                return self._fault(row, f"the reward is {shorten(reward)}")
        raise AssertionError("every reward is a finite number")

    def _fault(self, row: int, what: str) -> EnvironmentFault:
        return EnvironmentFault(
            f"environment {self._spec.name!r}: number {self._first_index + row}, step {self._steps}: {what}. "
            "Correct the environment, or wrap it in one that does."
        )
