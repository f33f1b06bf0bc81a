"""Channels: live streams, in memory, in shared memory or over a socket; NumPy only, so that workers never load JAX.

``channel`` is the contract, ``registry`` opens by scheme, ``bell`` is what ends wait on.
"""
