"""Channels carry a stream between two ends: in memory, in shared memory or over a socket. They never load JAX.

``channel`` is the contract, ``registry`` opens a channel by its scheme, and an end waits on a ``bell``.
"""
