"""Replay: rings of unrolls, what is drawn from them, and with which probabilities. Pure; no graph, no process."""

from weft.replay.prioritised import PrioritisedReplay
from weft.replay.uniform import UniformReplay

__all__ = ["PrioritisedReplay", "UniformReplay"]
