"""A replay as one would write it in an afternoon: lists of steps, one by one. Slow, and easy to be sure of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.core.types import Finals, Unroll


@dataclass
class Step:
    """What is known of one step of one environment."""

    seen: float  # the observation: a number of its own for every step
    action: int
    reward: float
    terminated: bool
    truncated: bool
    valid: bool
    led_to: float  # what was seen next; of a truncated episode its final observation


class World:
    """Environments whose steps are drawn at random; gives unrolls, and remembers every step."""

    def __init__(self, length: int, envs: int, seed: int, *, finals: int, marks: bool) -> None:
        self.length, self.envs, self.finals, self.marks = length, envs, finals, marks
        self.draw = np.random.default_rng(seed)
        self.number = 0.0
        self.now = [self._new() for _ in range(envs)]
        self.first = np.ones(envs, bool)
        self.steps: list[list[Step]] = [[] for _ in range(envs)]

    def _new(self) -> float:
        self.number += 1.0
        return self.number

    def lose(self, env: int) -> None:
        """The environment begins anew, and nobody is told what its last step led to in the next unroll."""
        self.now[env], self.first[env] = self._new(), True

    def unroll(self) -> Unroll:
        """The next unroll; an environment is cut at most ``finals`` times in it."""
        shape = (self.length, self.envs)
        seen, reward = np.zeros((*shape, 1), np.float32), np.zeros(shape, np.float32)
        action, first = np.zeros(shape, np.int32), np.zeros(shape, bool)
        terminated, truncated, valid = np.zeros(shape, bool), np.zeros(shape, bool), np.ones(shape, bool)
        final = np.zeros((self.finals, self.envs, 1), np.float32)
        when = np.full((self.finals, self.envs), -1, np.int32)
        for t in range(self.length):
            for env in range(self.envs):
                kind = self.draw.choice(4, p=[0.7, 0.12, 0.12, 0.06])
                cuts = int((when[:, env] >= 0).sum())
                terminated[t, env] = kind == 1
                truncated[t, env] = kind == 2 and cuts < self.finals
                valid[t, env] = not (kind == 3 and self.marks)
                seen[t, env], action[t, env] = self.now[env], self.draw.integers(5)
                first[t, env], reward[t, env] = self.first[env], self.draw.normal()
                led_to = following = self._new()
                if truncated[t, env]:
                    final[cuts, env], when[cuts, env] = led_to, t
                if terminated[t, env] or truncated[t, env]:
                    following = self._new()
                # A record that is not valid is a reset: what follows it begins an episode.
                self.first[env] = terminated[t, env] or truncated[t, env] or not valid[t, env]
                record = Step(
                    self.now[env], int(action[t, env]), float(reward[t, env]), bool(terminated[t, env]),
                    bool(truncated[t, env]), bool(valid[t, env]), led_to,
                )  # fmt: skip
                self.steps[env].append(record)
                self.now[env] = following
        return Unroll(
            observation=seen, first=first, action=action, extras={}, reward=reward, terminated=terminated,
            truncated=truncated, bootstrap=np.zeros(shape, np.float32), carry=(),
            last_observation=np.array(self.now, np.float32)[:, None], last_first=self.first.copy(),
            valid=valid if self.marks else None, finals=Finals(final, when) if self.finals else None,
        )  # fmt: skip


def return_of(steps: list[Step], at: int, n: int, discount: float) -> dict[str, Any]:
    """What a transition that begins at step ``at`` must be."""
    reward, gain, last = 0.0, 1.0, steps[at]
    for k in range(n):
        last = steps[at + k]
        reward += gain * last.reward
        gain *= discount
        following = steps[at + k + 1] if at + k + 1 < len(steps) else None
        if last.terminated or last.truncated or following is None or not following.valid:
            break
        if following.seen != last.led_to:  # it is of another episode: something was lost in between
            break
    return {"reward": reward, "discount": 0.0 if last.terminated else gain, "following": last.led_to}
