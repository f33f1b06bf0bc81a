"""Encoders, recurrent cores and heads; a network is any pair ``(init, apply)``."""

from weft.nets.actor_critic import actor_critic
from weft.nets.encoders import ACTIVATIONS
from weft.nets.network import (
    Network,
    NetworkOutput,
    apply_batch,
    apply_sequence,
    apply_unroll,
    as_network,
    check_network,
    reset_carry,
)
from weft.nets.q_network import q_network

__all__ = [
    "ACTIVATIONS",
    "Network",
    "NetworkOutput",
    "actor_critic",
    "apply_batch",
    "apply_sequence",
    "apply_unroll",
    "as_network",
    "check_network",
    "q_network",
    "reset_carry",
]
