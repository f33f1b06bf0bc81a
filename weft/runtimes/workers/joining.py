"""Replicas that are one program: JAX joins them through sockets of its own, which are kept to one address here.

JAX asks nobody who connects to them. docs/trust.md says what that means on a machine that others use too.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module

LOOPBACK = "127.0.0.1"

MISSED_SECONDS = 30
"""After so long without a word from one of them, replicas on several hosts give up. JAX waits for 100."""


def join_replicas(
    coordinator: str, replicas: int, rank: int, *, cpu: bool, interface: str = LOOPBACK, between_hosts: bool = False
) -> None:
    """Make this process one of ``replicas``; ``coordinator`` is where the first of them serves all. Blocks.

    ``interface`` is the address of this host by which the others reach it, where they are ``between_hosts``: one of
    them may vanish with its host then, without a word, and is missed after ``MISSED_SECONDS``.
    """
    import jax

    if cpu:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        _keep_gloo_to(interface)
    jax.distributed.initialize(
        coordinator,
        replicas,
        rank,
        initialization_timeout=60,
        coordinator_bind_address=coordinator,  # by itself it would be reached from other machines
        heartbeat_timeout_seconds=MISSED_SECONDS if between_hosts else 100,
    )


def _keep_gloo_to(interface: str) -> None:
    """Gloo listens where the host's name leads, which may be an address that other machines reach.

    JAX has no option for it, so its maker is given the address here. Raises RuntimeError where JAX has no such maker.
    """
    library = import_module("jax._src.lib")._jax
    make = getattr(library, "make_gloo_tcp_collectives", None)
    if make is None:
        raise RuntimeError("this JAX makes Gloo's sockets in another way: it cannot be kept to one address")
    if not isinstance(make, partial):
        library.make_gloo_tcp_collectives = partial(make, hostname=interface)
