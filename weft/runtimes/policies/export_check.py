"""Whether an exported policy does what the run's policy does: on observations drawn at random, and on played ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np

from weft.core.buffers import of_team, timestep_buffers
from weft.core.errors import RunError
from weft.core.specs import Box, Discrete, MultiBinary, MultiDiscrete, SpaceTree
from weft.core.trees import tree_map
from weft.core.types import Timestep, Tree
from weft.envs.protocol import EnvSource
from weft.runtimes.policies.evaluate import EVALUATION_SEED, host_factory
from weft.runtimes.policies.policy import Policy
from weft.runtimes.policies.teams import TeamPolicies, as_players

ROWS, STEPS = 8, 64
"""Environments, and steps of each: of random observations, and of played ones."""
TOLERANCE = 1e-4
"""How far a continuous action may be off, of the action's range; and how far weights are moved to find ties."""


def check_export(
    folder: Path,
    formats: Sequence[str],
    policy: Policy,
    source: EnvSource | None,
    players: TeamPolicies | None,
    team: str,
) -> dict[str, Any]:
    """Compare every format with ``policy``; what was compared, for the manifest. Raises RunError where one differs.

    ``players`` and ``team`` are given where the environment has several teams. A discrete action may be another one
    only where the policy itself wavers: it takes that one too when its weights are changed by one part in 10,000.
    """
    loaders = {name: load_exported(folder)(folder, format=name) for name in formats}
    for loader in loaders.values():
        _draws(loader, policy)
    if "greedy" not in next(iter(loaders.values())).description["modes"]:  # nothing more to compare
        return {"random": 0, "played": 0, "ties": 0}
    told: dict[str, Any] = {}
    ties = 0
    with jax.default_device(jax.devices("cpu")[0]):  # where matrices are multiplied in full precision
        for kind, steps in (("random", _random(policy)), ("played", _played(policy, source, players, team))):
            policy.reset()
            wavering = _Wavering(policy)
            for loader in loaders.values():
                loader.reset()
            count = 0
            for timestep, first in steps:
                wanted = policy.algorithm.spec.environment.to_native(policy.act(timestep))
                wavering.see(timestep)
                for name, loader in loaders.items():
                    got = loader(timestep.observation, timestep.action_mask, first=first)
                    ties += _compare(name, kind, np.asarray(wanted), got, wavering)
                count += len(first)
            told[kind] = count
    policy.reset()
    return {**told, "ties": ties}


def load_exported(folder: Path) -> Any:
    """The class ``Policy`` of an export's own ``policy.py``; leaves nothing compiled beside it."""
    path = folder / "policy.py"
    module = ModuleType("weft_exported_policy")
    module.__file__ = str(path)
    exec(compile(path.read_text(), path, "exec"), module.__dict__)
    return module.Policy


class _Wavering:
    """The same policy with weights that are slightly moved, asked only where an export differs."""

    def __init__(self, policy: Policy) -> None:
        self._policy, self._seen = policy, list[Timestep]()

    def see(self, timestep: Timestep) -> None:
        self._seen.append(tree_map(np.array, timestep._replace(final_observation=None)))

    def allows(self, rows: Any, got: Any) -> bool:
        """Whether it takes the actions ``got`` in ``rows`` at the newest step, for some small change."""
        waiting = set(np.flatnonzero(rows).tolist())
        for seed in range(16):
            random = np.random.default_rng(seed)
            other = Policy(self._policy.algorithm, _moved(self._policy.params, random))
            for timestep in self._seen:  # from the start: what it remembers is moved as well
                action = other.act(timestep)
            native = other.algorithm.spec.environment.to_native(action)
            waiting -= {row for row in waiting if np.array_equal(native[row], got[row])}
            if not waiting:
                return True
        return False


def _moved(params: Tree, random: np.random.Generator) -> Tree:
    def moved(x: Any) -> Any:
        array = np.asarray(x)
        if array.dtype.kind != "f":
            return x
        return (array * (1 + TOLERANCE * random.standard_normal(array.shape))).astype(array.dtype)

    return jax.tree.map(moved, params)


def _compare(name: str, kind: str, wanted: Any, got: Any, wavering: _Wavering) -> int:
    """How many actions are ties; raises RunError where they differ otherwise."""
    if wanted.shape != got.shape or wanted.dtype != got.dtype:
        raise RunError(
            f"the {name} export gives {got.dtype} {list(got.shape)}, the policy {wanted.dtype} {list(wanted.shape)}"
        )
    if wanted.dtype.kind == "f":
        scale = max(1.0, float(np.abs(wanted).max()))
        worst = float(np.abs(wanted.astype(np.float64) - got).max())
        if not worst <= TOLERANCE * scale:
            raise RunError(f"the {name} export is off by {worst:.3g} on a {kind} observation: nothing was exported")
        return 0
    differ = (wanted != got).reshape(len(wanted), -1).any(-1)
    if differ.any() and not wavering.allows(differ, got):
        raise RunError(
            f"the {name} export takes other actions than the policy in {int(differ.sum())} of {len(wanted)} {kind} "
            "observations: nothing was exported"
        )
    return int(differ.sum())


def _draws(loader: Any, policy: Policy) -> None:
    """Actions that are drawn are others each time: they are only looked at."""
    for timestep, first in _random(policy):
        action = loader(timestep.observation, timestep.action_mask, first=first, greedy=False)
        if not np.isfinite(np.asarray(action, np.float64)).all():
            raise RunError(f"the {loader.format} export draws actions that are not finite: nothing was exported")
        return


def _random(policy: Policy) -> Iterator[tuple[Timestep, Any]]:
    """Steps with observations from anywhere in the space, and episodes that begin anywhere."""
    spec, random = policy.algorithm.spec.environment, np.random.default_rng(0)
    for step in range(STEPS // ROWS):
        first = random.random(ROWS) < (0.2 if step else 0.0)
        nothing = np.zeros((ROWS, *spec.reward_shape), np.float32)
        mask = random.random((ROWS, spec.mask_size)) < 0.7 if spec.action_mask else None
        seen = draw(spec.observation, random, ROWS)
        yield Timestep(seen, nothing, first, np.zeros(ROWS, np.bool_), action_mask=mask), first


def draw(space: SpaceTree, random: np.random.Generator, rows: int) -> Tree:
    """``[rows, ...]`` observations of a space: within its bounds, or normal where it has none."""
    match space:
        case Box(shape=shape, dtype=dtype, low=low, high=high):
            kind, whole = np.dtype(dtype).kind, (rows, *shape)
            inside = np.broadcast_to(np.isfinite(low) & np.isfinite(high) & (np.abs(high) < 1e6), shape)
            below, above = (np.where(inside, np.broadcast_to(x, shape), end) for x, end in ((low, -1), (high, 1)))
            even = below + random.random(whole) * (above - below + (kind in "iu"))
            drawn = np.where(inside, even, 2 * random.standard_normal(whole))
            drawn = np.clip(drawn, low, high)
            return (np.floor(drawn).clip(below, above) if kind in "iu" else drawn).astype(dtype)
        case Discrete(n=n, dtype=dtype):
            return random.integers(0, n, rows).astype(dtype)
        case MultiDiscrete(nvec=nvec, dtype=dtype):
            return (random.random((rows, len(nvec))) * np.array(nvec)).astype(dtype)
        case MultiBinary(n=n, dtype=dtype):
            return random.integers(0, 2, (rows, n)).astype(dtype)
        case tuple():
            return tuple(draw(part, random, rows) for part in space)
        case _:
            return {key: draw(part, random, rows) for key, part in space.items()}


def _played(
    policy: Policy, source: EnvSource | None, players: TeamPolicies | None, team: str
) -> Iterator[tuple[Timestep, Any]]:
    """Steps of episodes that the policy plays, with the others where there are several."""
    if source is None:
        return
    env = host_factory(source)(ROWS, EVALUATION_SEED)
    other: Policy | TeamPolicies | None = players
    if other is None:
        other, team = as_players(Policy(policy.algorithm, policy.params), source.spec)
    try:
        timestep = timestep_buffers(source.spec, (ROWS,))
        env.reset(timestep)
        for _ in range(STEPS):
            own = of_team(timestep, team)
            yield own, np.array(own.first)
            env.step(other.act(timestep), timestep)
    finally:
        env.close()
