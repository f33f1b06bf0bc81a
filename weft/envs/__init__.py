"""Environments: one protocol for JAX ones, one for host ones, and an adapter for each place they come from.

``registry.open_environment`` turns a name (or a function, or an object) into an ``EnvSource``; ``listing`` says what is
usable here. Nothing that a host environment needs loads JAX.
"""
