"""The lean vectoriser: B Gymnasium environments in one Python loop, written straight into the caller's arrays.

For light environments the loop is the cost, so a step allocates nothing for an environment, checks by identity where it
can, and collects scalars in lists that are copied once. What is rare (an episode's end, an odd observation) is
elsewhere.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np

from weft.core.errors import (
    THEIRS,
    ConfigError,
    EnvironmentFault,
    EnvironmentRaised,
    LeaveAtOnce,
    MissingExtra,
    WeftError,
)
from weft.core.specs import EnvSpec, allocate
from weft.core.trees import tree_leaves
from weft.core.types import Timestep
from weft.envs.episodes import generator_digest, replay
from weft.envs.guards import UNGUARDED, Guards, Troubles
from weft.envs.masks import dimension_starts, mask_row
from weft.envs.observations import LARGEST, Misfit, ObservationWriter, is_flag, leaves_of, shorten
from weft.envs.protocol import HostEnv, Snapshot
from weft.envs.rows import Begun, GivenUp, MakeEnv, Rows
from weft.envs.scan import ValueScan
from weft.envs.spaces import action_shape, batch_converter, scalar_converter

NDArray: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class VectoriserFactory:
    """A ``HostFactory`` of vectorisers: ``make`` is called once for every environment."""

    name: str
    spec: EnvSpec
    make: MakeEnv
    guards: Guards = UNGUARDED

    def __call__(self, num_envs: int, seed: int, first_index: int = 0, render: bool = False) -> HostEnv:
        """Make ``num_envs`` environments, not yet reset."""
        return Vectoriser(self.spec, self.make, num_envs, seed, first_index, render, self.guards)

    def guarded(self, guards: Guards) -> VectoriserFactory:
        """The same with other guards. Where environments may fail and go on, the spec says so."""
        return replace(self, guards=guards, spec=replace(self.spec, may_fail=guards.errors == "reset"))


class Vectoriser:
    """A ``HostEnv`` of ``num_envs`` environments made by ``make``; ``envs.protocol`` has what each method promises.

    ``guards`` says what follows where one raises or shows something outside its Box; ``troubles`` has what came of it.
    Environments may fail and go on only where the spec says ``may_fail``: the records of such steps are not valid.
    """

    def __init__(
        self,
        spec: EnvSpec,
        make: MakeEnv,
        num_envs: int,
        seed: int,
        first_index: int = 0,
        render: bool = False,
        guards: Guards = UNGUARDED,
    ) -> None:
        self._spec, self._num_envs, self._first_index, self._guards = spec, num_envs, first_index, guards
        goes_on = guards.errors == "reset" and spec.may_fail
        self._rows = Rows(spec, make, num_envs, seed, first_index, render, goes_on)
        self._asked_to_stop = False
        first = self._rows.envs[0]
        self._writer = ObservationWriter(first.observation_space)
        plain = self._writer.plain
        self._plain = (plain.dtype, plain.given) if plain else (None, ())
        buffers = tree_leaves(allocate(spec.observation, (num_envs,)))
        bounds = None if guards.bounds == "ignore" else spec.observation
        self._scan = ValueScan(buffers, self._writer.leaves, bounds)
        self._scan_row = ValueScan([buffer[:1] for buffer in buffers], self._writer.leaves, bounds)
        action_space = first.action_space
        self._convert = batch_converter(action_space, spec)
        self._to_scalars = scalar_converter(action_space) if isinstance(action_space, gym.spaces.Discrete) else None
        self._action_shape = (num_envs, *action_shape(action_space))
        self._mask_starts = dimension_starts(spec.native_action)
        self._native_action = (tuple(action_space.shape or ()), action_space.dtype)
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

    @property
    def envs(self) -> list[gym.Env[Any, Any]]:
        """The environments by row; one that is made anew is another object."""
        return self._rows.envs

    @property
    def troubles(self) -> Troubles:
        """What went wrong and did not end the run, until it is taken."""
        return self._rows.troubles

    def reset(self, out: Timestep) -> None:
        """Start every environment from its own seed; blocks."""
        self._rows.begin_counting(0)
        self._clear(out)
        self._ended = dict.fromkeys(range(self._num_envs), (False, True))
        out.truncated.fill(True)  # type: ignore[union-attr]  # each observation is a first
        for row, begun in enumerate(self._rows.start()):
            self._place(row, begun, out)
        self._check(leaves_of(out.observation))

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
        self._rows.log.actions.append(logged)
        self._rows.log.trim()
        if self._ended:
            self._ended = {}

        # Local names, and a dtype of None where no array can be assigned as it comes: each check costs nanoseconds.
        targets, mask, starts = leaves_of(out.observation), out.action_mask, self._mask_starts
        (dtype, shape), target = self._plain, targets[0]
        latest, rewards, write_row, ndarray = self._latest, self._rewards, self._writer.write_row, np.ndarray
        steppers, count = self._rows.steppers, self._num_envs
        self._clear_flags(out)
        failed: list[EnvironmentRaised] = []
        row = start = 0
        while start < count:  # once; and again from the next row on after one that failed
            try:
                for row, step, act in zip(range(start, count), steppers[start:], actions[start:], strict=True):
                    observation, rewards[row], terminated, truncated, info = step(act)
                    if (terminated is not False or truncated is not False) and self._ends(terminated, truncated):
                        self._turn(row, observation, bool(terminated), bool(truncated), out)
                        continue
                    latest[row] = observation
                    if type(observation) is ndarray and observation.dtype is dtype and observation.shape == shape:
                        target[row] = observation
                    else:
                        write_row(targets, row, observation)
                    if mask is not None:
                        mask[row] = mask_row(info, mask.shape[-1], starts)
                break
            except GivenUp:
                self._leave_out(row, out)
                self._place(row, None, out)
            except WeftError:
                raise
            except Misfit as misfit:
                raise self._fault(row, str(misfit)) from None
            except (*THEIRS, KeyboardInterrupt) as error:
                failed.append(self._failed(row, error, out))
            start = row + 1
        if len(failed) == count and self._rows.steps == 0:  # it never worked: a mistake rather than an accident
            raise failed[0] from failed[0].__cause__
        try:
            for reward in rewards:  # by Python: NumPy's code would come from afar, and push the loop's out of the cache
                if not -LARGEST <= reward <= LARGEST:
                    raise self._bad_reward()
            out.reward[:] = rewards
        except (TypeError, ValueError):
            raise self._bad_reward() from None
        self._check(targets)
        self._rows.steps += 1

    def render(self) -> NDArray:
        """The first environment as uint8 [H, W, 3]; only where it was made with ``render=True``."""
        first = self._rows.envs[0]
        if first.render_mode != "rgb_array":
            raise ConfigError(f"environment {self._spec.name!r} was not made for rendering: make it with render=True")
        try:
            frame = first.render()
        except gym.error.DependencyNotInstalled as error:
            raise MissingExtra(f"rendering {self._spec.name!r} ({error})", "pygame", "video") from error
        except THEIRS as error:
            raise self._rows.raised(0, "render", error) from error
        return np.asarray(frame, np.uint8)

    def snapshot(self) -> Snapshot:
        """For each environment its generator before the current episode and its actions since; JSON-serialisable.

        Exact for environments that draw only from their ``np_random``. Restoring takes as long as the episodes so far.
        """
        rows, held = [], self._rows
        for row in range(self._num_envs):
            generator, actions = held.log.row(row)
            terminated, truncated = self._ended.get(row, (False, False))
            rows.append(
                {
                    "seed": held.seeds[row],
                    "generator": generator,
                    "actions": actions,
                    "reward": float(self._rewards[row]),
                    "terminated": terminated,
                    "truncated": truncated,
                    "digest": None if row in held.failures.given_up else self._digest(row),
                    "failures": held.failures.saved(row),
                }
            )
            if (options := getattr(held.envs[row], "began_with", None)) is not None:
                rows[-1]["options"] = options
        return {"kind": "replay", "environment": self._spec.name, "steps": held.steps, "rows": rows}

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
        held = self._rows
        held.begin_counting(int(snapshot["steps"]))
        self._clear(out)
        inexact = []
        for row, saved in enumerate(rows):
            held.failures.restore(row, saved.get("failures", [0, -2, 0]))
            held.seeds[row] = int(saved["seed"])
            if row in held.failures.given_up:
                held.give_up(row)
                self._ended[row] = (False, True)
                self._place(row, None, out)
            elif not self._replay(row, saved, out):
                inexact.append(row)
                held.begin_anew(row)
                self._rewards[row], self._ended[row] = 0.0, (False, True)
                self._place(row, held.begin(row, held.seeds[row]), out)
            out.reward[row] = self._rewards[row]
            out.terminated[row], out.truncated[row] = self._ended.get(row, (False, False))
        self._check(leaves_of(out.observation))
        return inexact

    def close(self) -> None:
        """Close every environment; may be called twice."""
        self._rows.close()

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

    def _place(self, row: int, begun: Begun | None, out: Timestep) -> None:
        """Write one row's observation and mask, outside the hot loop; None is one that has been given up: zeros."""
        targets = leaves_of(out.observation)
        if begun is None:
            for target in targets:
                target[row] = 0
            if out.action_mask is not None:
                out.action_mask[row] = True
            return
        observation, info = begun
        self._latest[row] = observation
        try:
            self._writer.write_row(targets, row, observation)
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

    def _turn(self, row: int, final: Any, terminated: bool, truncated: bool, out: Timestep) -> None:
        """An episode ended: its flags and final observation are written, and the next one's first observation."""
        out.terminated[row], out.truncated[row] = terminated, truncated
        self._ended[row] = (terminated, truncated)
        if out.final_observation is not None:
            targets = leaves_of(out.final_observation)
            self._writer.write_row(targets, row, final)
            one = [target[row : row + 1] for target in targets]
            if not self._scan_row.clean(one):
                self._unclean(self._scan_row, one, row, "final ")
        self._place(row, self._rows.follow(row), out)  # where that fails, the record of this step is a good one still

    def _failed(self, row: int, error: BaseException, out: Timestep) -> EnvironmentRaised:
        """A row's step raised: it begins again, and the record of that step is not valid. Raises where it may not."""
        asked = isinstance(error, KeyboardInterrupt)
        if asked and (isinstance(error, LeaveAtOnce) or not self._rows.goes_on):
            raise error
        raised = self._rows.raised(row, "step", error)
        if not self._rows.goes_on:
            raise raised from error
        self._leave_out(row, out)
        self._place(row, self._rows.begin_again(row, raised), out)
        if asked and not self._asked_to_stop:  # it may have caught what was meant for the run: pass it on
            self._asked_to_stop = True
            signal.raise_signal(signal.SIGINT)
        return raised

    def _leave_out(self, row: int, out: Timestep) -> None:
        """The record of this step is to teach nothing, and what follows it counts as the first of an episode."""
        assert out.valid is not None
        out.valid[row] = False
        out.terminated[row], out.truncated[row] = False, True
        self._ended[row], self._rewards[row] = (False, True), 0.0

    def _replay(self, row: int, saved: dict[str, Any], out: Timestep) -> bool:
        """Bring one row back, and say whether it stands where it did."""
        shape, dtype = self._native_action
        revive = np.dtype(dtype).type if self._to_scalars else (lambda act: np.asarray(act, dtype).reshape(shape))
        replayed = replay(self._rows.envs[row], saved, revive)
        if replayed is None:
            return False
        self._rows.log.begin(row, saved["generator"], list(saved["actions"]))
        self._rewards[row] = float(saved["reward"])
        if saved["terminated"] or saved["truncated"]:
            self._ended[row] = (bool(saved["terminated"]), bool(saved["truncated"]))
        self._place(row, replayed, out)
        return bool(self._digest(row) == saved["digest"])

    def _digest(self, row: int) -> list[int]:
        return [self._writer.digest(self._latest[row]), generator_digest(self._rows.cores[row])]

    def _check(self, targets: list[NDArray]) -> None:
        """All is finite, or it is a fault; what is outside its Box is counted."""
        if not self._scan.clean(targets):
            self._unclean(self._scan, targets)

    def _unclean(self, scan: ValueScan, targets: list[NDArray], first: int = 0, which: str = "") -> None:
        """Tell what is wrong in these rows, of which the first is row ``first``."""
        bad = scan.not_finite(targets)
        if bad is not None:
            raise self._fault(first + bad[0], which + bad[1])
        row, count, what = scan.outside(targets)
        self._outside(first + row, count, which + what)

    def _outside(self, row: int, count: int, what: str) -> None:
        if self._guards.bounds == "fail":
            raise self._fault(row, what)
        number, step = self._first_index + row, self._rows.steps
        self.troubles.add(
            "observations outside their Box",
            lambda: (f"environment {self._spec.name!r}: number {number}, step {step}: {what}", ""),
            outside=count,
        )

    def _bad_reward(self) -> EnvironmentFault:
        for row, reward in enumerate(self._rewards):
            if not isinstance(reward, int | float | np.number | np.bool_ | np.ndarray) or np.shape(reward) != ():
                return self._fault(row, f"the reward is {shorten(reward)}, not a number")
            if not -LARGEST <= reward <= LARGEST:
                return self._fault(row, f"the reward is {shorten(reward)}")
        raise AssertionError("every reward is a finite number")

    def _fault(self, row: int, what: str) -> EnvironmentFault:
        return self._rows.fault(row, what)
