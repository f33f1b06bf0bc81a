"""Encoders, recurrent cores and heads; a network is any pair ``(init, apply)``."""

from weft.nets.actor_critic import actor_critic
from weft.nets.central import central_actor_critic
from weft.nets.control import Critics, critics_network, policy_network
from weft.nets.encoders import ACTIVATIONS
from weft.nets.mixer import Mixer, monotonic_mixer
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
from weft.nets.q_network import q_network, recurrent_q_network

__all__ = [
    "ACTIVATIONS",
    "Critics",
    "Mixer",
    "Network",
    "NetworkOutput",
    "actor_critic",
    "apply_batch",
    "apply_sequence",
    "apply_unroll",
    "as_network",
    "central_actor_critic",
    "check_network",
    "critics_network",
    "monotonic_mixer",
    "policy_network",
    "q_network",
    "recurrent_q_network",
    "reset_carry",
]
