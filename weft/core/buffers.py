"""Arrays for the records of an environment, made once and written many times. NumPy only."""

from __future__ import annotations

import numpy as np

from weft.core.specs import EnvSpec, Shape, allocate
from weft.core.types import Timestep


def timestep_buffers(spec: EnvSpec, leading: Shape) -> Timestep:
    """Zeroed NumPy buffers for a host environment's timestep, with ``leading`` axes: ``(B,)`` or ``(T, B)``."""
    return Timestep(
        observation=allocate(spec.observation, leading),
        reward=np.zeros(leading, np.float32),
        terminated=np.zeros(leading, np.bool_),
        truncated=np.zeros(leading, np.bool_),
        final_observation=allocate(spec.observation, leading),
        action_mask=np.ones((*leading, spec.mask_size), np.bool_) if spec.action_mask else None,
        valid=np.ones(leading, np.bool_) if spec.next_step_reset else None,
    )
