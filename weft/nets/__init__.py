"""Encoders, recurrent cores and heads; a network is any pair ``(init, apply)``."""

from weft.nets.actor_critic import ActorCritic, RecurrentActorCritic, actor_critic
from weft.nets.encoders import ACTIVATIONS, CNN, MLP, Encoder
from weft.nets.network import (
    Network,
    NetworkOutput,
    apply_sequence,
    apply_unroll,
    as_network,
    check_network,
    reset_carry,
)

__all__ = [
    "ACTIVATIONS",
    "CNN",
    "MLP",
    "ActorCritic",
    "Encoder",
    "Network",
    "NetworkOutput",
    "RecurrentActorCritic",
    "actor_critic",
    "apply_sequence",
    "apply_unroll",
    "as_network",
    "check_network",
    "reset_carry",
]
