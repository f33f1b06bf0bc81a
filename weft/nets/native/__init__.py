"""Kernels for CPUs, in C++ beside this file: compiled on the machine they run on, when they are first asked for.

``library.py`` compiles and loads them; the others give them to JAX, each with the shapes that it takes and its
derivative: the first one, backwards (``library.set_aside`` for gradients of gradients). Where there is no compiler
nothing is missing: the layers are computed by XLA, which takes longer.
"""
