"""The environments of a batch, each by itself: made, reset, begun again where it fails, closed.

What is written of them, and how they are stepped together, is the vectoriser's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

import gymnasium as gym

from weft.core.errors import THEIRS, ConfigError, EnvironmentFault, EnvironmentRaised, WeftError
from weft.core.keys import host_seed
from weft.core.specs import EnvSpec, describe
from weft.core.theirs import their_traceback
from weft.envs.episodes import EpisodeLog, generator_state
from weft.envs.guards import FAILS_FAST, Failures, Remedy, Troubles
from weft.envs.observations import Misfit
from weft.envs.spaces import action_spec, observation_spec

Begun: TypeAlias = tuple[Any, dict[str, Any]]
"""What a reset gives: an observation and its info."""
MakeEnv: TypeAlias = Callable[[bool], gym.Env[Any, Any]]
"""Makes one environment; the argument says whether it will be rendered."""


class GivenUp(Exception):
    """In place of a step of an environment that has been given up."""


class Rows:
    """``num_envs`` environments, by their row in the batch.

    ``steps`` are the batch steps so far, which are also every environment's: the vectoriser counts them. ``steppers``
    are the environments' ``step``; that of one that has been given up raises ``GivenUp``. With ``goes_on`` one that
    raises is begun again, else that ends the run.
    """

    def __init__(
        self, spec: EnvSpec, make: MakeEnv, num_envs: int, seed: int, first_index: int, render: bool, goes_on: bool
    ) -> None:
        if num_envs < 1:
            raise ConfigError(f"environment {spec.name!r}: a batch needs at least 1 environment, got {num_envs}")
        self._spec, self._make, self._first_index, self.goes_on = spec, make, first_index, goes_on
        self.seeds = [host_seed(seed, first_index + i) for i in range(num_envs)]
        self.troubles = Troubles()
        self.steps = 0
        self.envs: list[gym.Env[Any, Any]] = []
        try:
            for row in range(num_envs):
                self.envs.append(self._made(row, render and row == 0))
        except BaseException:
            self.close()
            raise
        self.steppers: list[Callable[[Any], Any]] = [env.step for env in self.envs]
        self.cores = [env.unwrapped for env in self.envs]
        self.begin_counting(0)

    def begin_counting(self, steps: int) -> None:
        """As after ``steps`` batch steps: no episode is known, and nothing has failed."""
        self.steps, self.log, self.failures = steps, EpisodeLog(len(self.envs)), Failures(len(self.envs))

    def start(self) -> list[Begun | None]:
        """Every environment's first episode, from its seed; None for one that has been given up."""
        begun: list[Begun | None] = []
        failed: list[EnvironmentRaised] = []
        for row, seed in enumerate(self.seeds):
            try:
                begun.append(self.reset(row, seed))
            except EnvironmentRaised as error:
                failed.append(error)
                if not self.goes_on or len(failed) == len(self.envs):
                    raise failed[0] from failed[0].__cause__
                begun.append(self.begin_again(row, error))
        return begun

    def reset(self, row: int, seed: int | None) -> Begun:
        """A row's next episode, from ``seed`` where there is one. Raises EnvironmentRaised.

        An adapter that looks at what its environment gives raises Misfit: that is a fault, as it is elsewhere.
        """
        try:
            observation, info = self.envs[row].reset(seed=seed)
        except Misfit as misfit:
            raise self.fault(row, str(misfit)) from None
        except THEIRS as error:
            raise self.raised(row, "reset", error) from error
        return observation, info

    def follow(self, row: int) -> Begun | None:
        """The episode after one that has ended; None where the environment fails in it for good."""
        self.log.begin(row, generator_state(self.cores[row]))
        return self.begin(row, None)

    def begin(self, row: int, seed: int | None) -> Begun | None:
        """As ``reset``; but where that fails and the run goes on, begun again."""
        try:
            return self.reset(row, seed)
        except EnvironmentRaised as error:
            if not self.goes_on:
                raise
            return self.begin_again(row, error)

    def begin_again(self, row: int, raised: EnvironmentRaised) -> Begun | None:
        """A row has failed: reset it from a new seed, in need made anew; None where nothing helps.

        Raises EnvironmentFault where no environment of the batch is left.
        """
        while True:
            self._count(row, raised)
            remedy = self.failures.add(row, self.steps)
            if remedy is Remedy.GIVE_UP:
                if len(self.failures.given_up) == len(self.envs):
                    raise EnvironmentFault(
                        f"environment {self._spec.name!r}: all {len(self.envs)} of a batch failed again and again, "
                        f"made anew too; the last: {raised}"
                    ) from raised.__cause__
                self.give_up(row)
                return None
            self.begin_anew(row)
            try:
                if remedy is Remedy.REMAKE:
                    self._remake(row)
                return self.reset(row, self.seeds[row])
            except EnvironmentRaised as again:
                raised = again

    def begin_anew(self, row: int) -> None:
        """The row's next episode is to be the first from another seed."""
        self.seeds[row] = host_seed(self.seeds[row], self.steps + 1)
        self.log.begin(row, None)

    def give_up(self, row: int) -> None:
        """Step a row no more."""
        number = self._first_index + row
        self.failures.given_up.add(row)
        self.steppers[row] = _given_up
        self.troubles.add(
            f"environment {number} given up",
            lambda: (
                f"environment {self._spec.name!r}: number {number} failed {2 * FAILS_FAST} times without a good step "
                "in between, made anew too: it is given up. The others go on; its steps are not trained on.",
                "",
            ),
        )

    def raised(self, row: int, doing: str, error: BaseException) -> EnvironmentRaised:
        """What a row's code has raised, with its number and step; the cause is set."""
        raised = EnvironmentRaised(self._spec.name, self._first_index + row, self.steps, doing, error)
        raised.__cause__ = error
        return raised

    def fault(self, row: int, what: str) -> EnvironmentFault:
        """A row broke its contract."""
        return EnvironmentFault(
            f"environment {self._spec.name!r}: number {self._first_index + row}, step {self.steps}: {what}. "
            "Correct the environment, or wrap it in one that does."
        )

    def close(self) -> None:
        """Close every environment; may be called twice."""
        envs, self.envs = self.envs, []
        failure: EnvironmentRaised | None = None
        for row, env in enumerate(envs):
            try:
                env.close()
            except THEIRS as error:  # the others must be closed too
                failure = self.raised(row, "close", error)
        if failure is not None:
            raise failure

    def _made(self, row: int, render: bool) -> gym.Env[Any, Any]:
        index = self._first_index + row
        try:
            env = self._make(render)
        except WeftError:
            raise
        except THEIRS as error:
            raise EnvironmentRaised(self._spec.name, index, 0, "making it", error) from error
        if any(env.unwrapped is other.unwrapped for other in self.envs):
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

    def _remake(self, row: int) -> None:
        with suppress(*THEIRS):
            self.envs[row].close()
        env = self._made(row, self.envs[row].render_mode is not None)
        self.envs[row], self.steppers[row], self.cores[row] = env, env.step, env.unwrapped

    def _count(self, row: int, raised: EnvironmentRaised) -> None:
        cause = raised.__cause__
        assert cause is not None
        at, place = cause.__traceback__, ""
        while at is not None:  # by hand: the traceback module would read the sources, each time
            place, at = f" ({os.path.basename(at.tb_frame.f_code.co_filename)}:{at.tb_lineno})", at.tb_next
        seed = self.seeds[row]
        self.troubles.add(
            f"{type(cause).__name__}{place}",
            lambda: (f"{raised} (its seed was {seed})", their_traceback(cause)),
            errors=1,
        )


def _given_up(action: Any) -> Any:
    raise GivenUp
