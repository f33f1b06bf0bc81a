"""Replay: rings of unrolls, recorded steps, what is drawn from them and how often. Pure; no graph, no process."""

from weft.replay.fixed import FixedReplay, Steps
from weft.replay.prioritised import PrioritisedReplay
from weft.replay.sequences import SequenceReplay
from weft.replay.uniform import UniformReplay

__all__ = ["FixedReplay", "PrioritisedReplay", "SequenceReplay", "Steps", "UniformReplay"]
