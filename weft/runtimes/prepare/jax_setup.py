"""How JAX is set up for a run: once, before its first computation."""

from __future__ import annotations

import os

from weft.core.cache import cache_folder


def set_up(*, cache: bool) -> None:
    """Settings that must be made before JAX's backends start; what the user has set in the environment stays.

    Around a host environment, calls on the CPU are many and small: made in the calling thread they take half the time.
    With ``cache``, compiled programs are kept on disk, so that the next start is quicker.
    """
    import jax

    if "JAX_CPU_ENABLE_ASYNC_DISPATCH" not in os.environ:
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    if cache and getattr(jax.config, "jax_compilation_cache_dir", None) is None:  # which also has the variable's
        jax.config.update("jax_compilation_cache_dir", str(cache_folder("programs")))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
