"""The environment variables of a worker's process."""

from __future__ import annotations

import os
import sys

from weft.core.cache import cache_folder
from weft.graph.role import role
from weft.runtimes.workers.layout.blueprint import Blueprint


def worker_variables(blueprint: Blueprint, worker: int) -> dict[str, str]:
    """Those of this process, with the worker's device, a bounded number of threads, and where programs are kept."""
    spec = blueprint.workers[worker]
    here = dict(os.environ)
    sides = [blueprint.sides[s] for s in spec.sides]
    learns = any(role(s.role).computes_gradients or role(s.role).publishes for s in sides)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = max(1, cores // max(1, len(blueprint.gradient_workers))) if learns else 1
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        here.setdefault(name, str(threads))
    # XLA's own: on an accelerator they only compile, and with one of them that takes ten times as long.
    here.setdefault("NPROC", str(threads if spec.device == "cpu" else cores))
    if spec.device == "cpu":
        here["JAX_PLATFORMS"] = "cpu"
        here["CUDA_VISIBLE_DEVICES"] = ""
    else:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        number = int(spec.device.partition(":")[2])
        here["CUDA_VISIBLE_DEVICES"] = visible.split(",")[number] if visible else str(number)
        here.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several groups may share the device
    jax = sys.modules.get("jax")  # a host agent has not loaded it
    cache = jax.config.jax_compilation_cache_dir if jax is not None else None
    here["JAX_COMPILATION_CACHE_DIR"] = str(cache or here.get("JAX_COMPILATION_CACHE_DIR") or cache_folder("programs"))
    # However little: the next life of a worker has all of it to compile again, one after another.
    here.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    return here
