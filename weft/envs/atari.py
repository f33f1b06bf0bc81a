"""Atari games: ale-py's own preprocessing, the same one by one and in a batch; scores are the game's own.

An id such as ``ALE/Pong-v5`` is played with the preset ``atari``, the preprocessing that Gymnasium documents as
standard (Machado et al., arXiv 1709.06009): 84 by 84 grey pictures, four of them stacked; an action lasts four frames,
of which the last two are joined by their maximum; up to 30 no-ops at the start of a game; sticky actions as the id has
them. The preset ``none`` is the game as ``gymnasium.make`` gives it.

Both forms are ``AtariBatch``: of one row for our vectoriser, or of many. A row depends on its own seed and actions
alone, so the same rows come out however they are batched. Rewards are never clipped here, and no episode ends with a
life: then returns would not be scores. Learners clip what they learn from (``reward_clip``).
"""

from __future__ import annotations

import importlib.metadata
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec as GymSpec
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv

from weft.core.errors import ConfigError, UnknownName
from weft.core.specs import FrameStack

NDArray: TypeAlias = np.ndarray[Any, Any]

ENTRY_POINT = "ale_py.env:AtariEnv"
OLDEST = (0, 12)
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "atari": {
        "img_height": 84,
        "img_width": 84,
        "grayscale": True,
        "stack_num": 4,
        "frameskip": 4,
        "maxpool": True,
        "noop_max": 30,
        "use_fire_reset": False,
        "seeded_episodes": False,
    },
}
"""What each preset sets. ``none`` leaves everything to ``gymnasium.make``."""

_FROM_ID = ("repeat_action_probability", "full_action_space", "max_num_frames_per_episode")
_MORE = ("continuous", "continuous_action_threshold", "num_threads")
_REFUSED = {
    "reward_clipping": "returns would not be the game's scores. --algo.reward-clip 1 clips what is learned from",
    "episodic_life": "returns would be of single lives, and not the game's scores",
    "life_loss_info": "episodes would end with a life, and returns would not be the game's scores",
}
_SCREEN = {"img_height": 210, "img_width": 160, "grayscale": False, "stack_num": 1}


def is_atari(spec: GymSpec) -> bool:
    """Whether an id is one of ale-py's games."""
    return spec.entry_point == ENTRY_POINT


def atari_settings(spec: GymSpec, options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Everything that an id's game is played with; None where it is played as ``gymnasium.make`` gives it.

    Unless ``options`` name a ``preset``, ids of the namespace ``ALE`` have ``atari`` and the older ones ``none``.
    """
    preset = options.get("preset", "atari" if spec.namespace == "ALE" else "none")
    if preset not in PRESETS:
        raise UnknownName(f"preset of environment {spec.id!r}:", preset, PRESETS)
    if preset == "none":
        return None
    settings = {**PRESETS[preset], **{name: spec.kwargs[name] for name in _FROM_ID if name in spec.kwargs}}
    given = {name: value for name, value in options.items() if name != "preset"}
    for name in given:
        if name in _REFUSED:
            raise ConfigError(f"environment {spec.id!r}: {name} is not taken: {_REFUSED[name]}.")
        if name not in (*settings, *_MORE):
            hint = f"The preset {preset!r} does not take it. The game as gymnasium.make gives it may: --env.preset none"
            raise UnknownName(f"option of environment {spec.id!r}:", name, [*settings, *_MORE], hint)
    _check_version(spec.id)
    return {**settings, **given}


def describe_settings(settings: Mapping[str, Any]) -> str:
    """What is done to a game, in words: for the run's summary."""
    colour = "grey" if settings["grayscale"] else "RGB"
    joined = ", the maximum of the last two" if settings["maxpool"] and settings["frameskip"] > 1 else ""
    parts = [
        f"{settings['img_height']}×{settings['img_width']} {colour}",
        f"{settings['stack_num']} stacked",
        f"{settings['frameskip']} frames an action{joined}",
        f"up to {settings['noop_max']} no-ops at the start",
        f"sticky actions {settings.get('repeat_action_probability', 0.0):g}",
    ]
    parts += ["fire at the start"] if settings["use_fire_reset"] else []
    return ", ".join(parts) + "; returns are the game's scores, not clipped"


@dataclass(frozen=True)
class AtariMaker:
    """Makes one game with its settings. Can be pickled."""

    game: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, render: bool = False) -> gym.Env[Any, Any]:
        """Make one; with ``render`` its ``render()`` gives the screen."""
        return AtariGame(self.game, self.settings, render)


@dataclass(frozen=True)
class AtariBatchMaker:
    """Makes a batch of one game with its settings. Can be pickled."""

    game: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, num_envs: int, render: bool = False) -> VectorEnv[Any, Any, Any]:
        """Make ``num_envs`` of them; with ``render`` the first one's screen can be had."""
        return AtariBatch(self.game, num_envs, self.settings, render)


class AtariBatch(VectorEnv[Any, Any, Any]):
    """Games side by side, each by its own seed. Rows that ended are reset by ``reset`` with a ``reset_mask``."""

    seeds_rows = True  # ``reset`` takes a seed for each row
    metadata = {"autoreset_mode": AutoresetMode.DISABLED, "render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, game: str, num_envs: int, settings: Mapping[str, Any], render: bool = False) -> None:
        options = dict(settings)
        self._seeded_episodes = options.pop("seeded_episodes", False)
        self._env = _vector(game, num_envs, options)
        # Another batch of one with the same seeds and actions, whose picture is the screen.
        self._screen = _vector(game, 1, {**options, **_SCREEN}) if render else None
        self._frame: NDArray = np.zeros((), np.uint8)
        self._generators: list[np.random.Generator] = [np.random.default_rng() for _ in range(num_envs)]
        self.num_envs, self.frame_skip = num_envs, options["frameskip"]
        # Zeros stand before the first picture of a game, unless more than that one is taken in when it is reset.
        plain = options["stack_num"] > 1 and not options["use_fire_reset"]
        self.frames = FrameStack(options["stack_num"], 0 if options["grayscale"] else -1) if plain else None
        self.render_mode = "rgb_array" if render else None
        self._colours = not options["grayscale"]
        space = self._env.single_observation_space
        shape = self._pictures(np.empty((1, *space.shape), np.uint8)).shape[1:]
        self.single_observation_space = gym.spaces.Box(0, 255, shape, np.uint8)
        self.single_action_space = self._env.single_action_space
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray, dict[str, Any]]:
        """Start the rows of ``options["reset_mask"]``, or all: by ``seed`` (one for each of them), or as they go on."""
        mask = np.ones(self.num_envs, np.bool_) if options is None else options["reset_mask"]
        rows = np.flatnonzero(mask)
        if isinstance(seed, int):
            seed = [seed + k for k in range(len(rows))]
        if seed is not None:
            seeds = np.array(seed, np.int64)
            for row, one in zip(rows, seeds, strict=True):
                self._generators[row], _ = seeding.np_random(int(one))
        elif self._seeded_episodes:
            seeds = np.array([episode_seed(self._generators[row]) for row in rows], np.int64)
        else:
            seeds = np.full(len(rows), -1, np.int64)  # the game's own randomness goes on
        observation, info = self._env.ale.reset(rows, seeds)
        if self._screen is not None and mask[0]:
            self._frame = self._screen.ale.reset(np.zeros(1, np.int64), seeds[:1])[0][0, 0]
        return self._pictures(observation), info

    def step(self, actions: NDArray) -> tuple[NDArray, NDArray, NDArray, NDArray, dict[str, Any]]:
        """Step every row."""
        observation, reward, terminated, truncated, info = self._env.step(actions)
        if self._screen is not None:
            self._frame = self._screen.step(actions[:1])[0][0, 0]
        return self._pictures(observation), reward, terminated, truncated, info

    def render(self) -> tuple[Any, ...]:
        """The first row's screen."""
        return (np.array(self._frame),)

    def close(self, **kwargs: Any) -> None:
        """Let go of the emulators and their threads; may be called twice."""
        self._env = self._screen = None

    def _pictures(self, observation: NDArray) -> NDArray:
        """``[B, stack, H, W]`` as it is; of colours ``[B, H, W, stack * 3]``."""
        if not self._colours:
            return observation
        rows, stack, height, width, colours = observation.shape
        return np.moveaxis(observation, 1, 3).reshape(rows, height, width, stack * colours)


class AtariGame(gym.Env[Any, Any]):
    """One row of an ``AtariBatch``."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, game: str, settings: Mapping[str, Any], render: bool = False) -> None:
        self._batch = AtariBatch(game, 1, settings, render)
        self._seeded_episodes = settings.get("seeded_episodes", False)
        self.observation_space = self._batch.single_observation_space
        self.action_space = self._batch.single_action_space
        self.frame_skip, self.render_mode = self._batch.frame_skip, self._batch.render_mode
        self.frames = self._batch.frames
        self._since_seed = 0  # steps

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray, dict[str, Any]]:
        """A new game: by ``seed``, or as its own randomness goes on."""
        super().reset(seed=seed)
        if seed is not None:
            self._since_seed = 0
        elif self._seeded_episodes:
            seed = episode_seed(self.np_random)
        else:
            # The emulator's randomness has gone on with every step. So does the generator here: a replay of this game
            # alone, which cannot repeat that, ends with another state of it, and is found to be inexact.
            self.np_random.bit_generator.advance(1 + self._since_seed)  # type: ignore[attr-defined]
        observation, info = self._batch.reset(seed=None if seed is None else [seed])
        return np.array(observation[0]), {"lives": int(info["lives"][0])}

    def step(self, action: Any) -> tuple[NDArray, float, bool, bool, dict[str, Any]]:
        """One action."""
        actions = np.asarray(action, self.action_space.dtype)[None]
        observation, reward, terminated, truncated, info = self._batch.step(actions)
        self._since_seed += 1
        lives = {"lives": int(info["lives"][0])}
        return np.array(observation[0]), float(reward[0]), bool(terminated[0]), bool(truncated[0]), lives

    def render(self) -> Any:
        """The screen, uint8 ``[210, 160, 3]``."""
        if self.render_mode is None:
            raise ConfigError("this game was not made for rendering: make it with render=True")
        return self._batch.render()[0]

    def close(self) -> None:
        """Let go of the emulator; may be called twice."""
        self._batch.close()


def episode_seed(generator: np.random.Generator) -> int:
    """The seed of a row's next episode, where each has one: 31 bits."""
    return int(generator.integers(2**31 - 1))


def _vector(game: str, num_envs: int, options: Mapping[str, Any]) -> Any:
    from ale_py.vector_env import AtariVectorEnv

    # Its own reset at an end never comes about: rows are reset before they are stepped again.
    fixed: dict[str, Any] = {
        "autoreset_mode": AutoresetMode.NEXT_STEP,
        "reward_clipping": False,
        "episodic_life": False,
    }
    return AtariVectorEnv(game, num_envs, **options, **fixed)


def _check_version(id: str) -> None:
    from ale_py.vector_env import AtariVectorEnv

    version = importlib.metadata.version("ale-py")
    old = tuple(int(part) for part in version.split(".")[:2]) < OLDEST
    if old or "use_fire_reset" not in inspect.signature(AtariVectorEnv).parameters:
        wanted = ".".join(map(str, OLDEST))
        raise ConfigError(
            f"environment {id!r}: the preset 'atari' needs ale-py {wanted} or later, and {version} is installed. "
            "Run: pip install -U 'weft[atari]', or play the game as gymnasium.make gives it: --env.preset none"
        )
