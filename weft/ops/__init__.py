"""Pure maths for reinforcement learning: returns, losses, distributions, running statistics. ``[T, B]``, time first.

All are functions of arrays, which can be jitted, vmapped and differentiated. Use ``masked`` and ``statistics`` as
modules (``masked.mean``, ``statistics.update``), and the rest by name.
"""

from weft.ops import masked, statistics
from weft.ops.continuous import Gaussian, SquashedGaussian
from weft.ops.discrete import Bernoulli, Categorical, MultiCategorical
from weft.ops.distributions import Distribution, distribution_for
from weft.ops.gae import gae
from weft.ops.losses import (
    approx_kl,
    clipped_surrogate,
    policy_gradient,
    value_loss,
)
from weft.ops.recursion import revalued
from weft.ops.returns import discounted_return, n_step_return
from weft.ops.rewards import reshaped
from weft.ops.schedules import linear
from weft.ops.statistics import RunningStatistics
from weft.ops.vtrace import vtrace

__all__ = [
    "Bernoulli",
    "Categorical",
    "Distribution",
    "Gaussian",
    "MultiCategorical",
    "RunningStatistics",
    "SquashedGaussian",
    "approx_kl",
    "clipped_surrogate",
    "discounted_return",
    "distribution_for",
    "gae",
    "linear",
    "masked",
    "n_step_return",
    "policy_gradient",
    "reshaped",
    "revalued",
    "statistics",
    "value_loss",
    "vtrace",
]
