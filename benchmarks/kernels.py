"""How many kernels an iteration of a compiled loop is on a GPU: ``python -m benchmarks.kernels [ppo dqn …]``.

XLA compiles for a GPU that is not there, from a description of one. Where networks and batches are small, an iteration
takes as long as its kernels are many: each about 1.9 µs on an H200, back to back. Counted are the kernels and copies of
one iteration of Weft's loop, loops by their trips, and beside them those of the bare programs. Nothing is timed, and a
GPU that is there chooses other products for some kernels (autotuning). Needs ``python -m benchmarks.peers install
gpu-compiler``.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.peers import how_to_install, python_of
from benchmarks.worker import ROOT

SIZES = {
    "ppo": {"envs": 2048, "unroll": 32, "epochs": 4, "minibatches": 4},
    "pqn": {"envs": 2048, "unroll": 32, "epochs": 4, "minibatches": 4},
    "dqn": {"envs": 128, "unroll": 8, "batch": 128, "updates": 8, "capacity": 100_000},
}
H200 = """
gpu_device_info {
  cuda_compute_capability { major: 9 }
  core_count: 132  fpus_per_core: 128  threads_per_warp: 32  threads_per_block_limit: 1024  threads_per_core_limit: 2048
  shared_memory_per_block: 49152  shared_memory_per_block_optin: 232448  shared_memory_per_core: 233472
  registers_per_core_limit: 65536  registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647  block_dim_limit_y: 65535  block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000  l2_cache_size: 52428800  clock_rate_ghz: 1.98  device_memory_size: 150000000000
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 1 }
device_description_str: "NVIDIA H200"
"""
NO_KERNEL = {"tuple", "get-tuple-element", "bitcast", "parameter", "constant", "after-all"}


def kernels_of(text: str) -> Iterator[tuple[int, str]]:
    """How often each kernel of a compiled program runs, and its line; a loop of unknown length counts as one turn."""
    parts: dict[str, list[str]] = {}
    entry = name = ""
    for line in text.splitlines():
        if found := re.match(r"(ENTRY )?%?([\w.\-]+) \(.*-> .* \{$", line):
            name = found[2]
            parts[name] = []
            entry = name if found[1] else entry
        elif line.startswith("}"):
            name = ""
        elif name and " = " in line:
            parts[name].append(re.sub(r"/\*.*?\*/", "", line.strip()))

    def of(part: str, times: int) -> Iterator[tuple[int, str]]:
        for line in parts[part]:
            operation = re.search(r" = .*? ([a-z][\w\-]*)\(", line)
            kind = operation[1] if operation else ""
            if kind == "while":
                trips = re.search(r'known_trip_count":\{"n":"(\d+)"', line)
                body = re.search(r"body=%?([\w.\-]+)", line)
                assert body is not None
                yield from of(body[1], times * int(trips[1] if trips else 1))
            elif kind == "call":
                called = re.search(r"to_apply=%?([\w.\-]+)", line)
                assert called is not None
                yield from of(called[1], times)
            elif kind not in NO_KERNEL:
                yield times, line

    return of(entry, 1)


def count(what: str) -> tuple[int, int]:
    """Kernels of one iteration: Weft's, with some 25 of a dispatch, and the bare program's; 0 where there is none.

    In an interpreter that can compile for a GPU.
    """
    import jax

    jax.config.update("jax_platforms", "cpu")
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    described = topologies.get_topology_desc("", "cuda", target_config=H200, topology="1x1x1")
    everywhere = NamedSharding(Mesh(described.devices, ("gpu",)), PartitionSpec())
    from weft.nets import fused_towers

    jax.default_backend = lambda: "gpu"  # what networks and losses ask for the way that they take
    fused_towers.available = lambda: True

    def compiled(program: Callable[..., Any], given: int, *arguments: Any) -> int:
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=everywhere), arguments)
        made = jax.jit(program, in_shardings=everywhere, out_shardings=everywhere, donate_argnums=given)
        return sum(times for times, _ in kernels_of(made.lower(*shapes).compile().as_text()))

    return _weft(what, compiled), _bare(what, compiled)


def _weft(what: str, compiled: Callable[..., int]) -> int:
    import jax
    import jax.numpy as jnp

    import weft
    from benchmarks import bare_values, stepping
    from weft.core.specs import Spec
    from weft.envs.builtin import load
    from weft.runtimes.compiled.engine import FusedEngine
    from weft.runtimes.compiled.replicas import Layout

    sizes = dict(SIZES[what])
    envs = sizes.pop("envs")
    if what == "dqn":
        updates = sizes.pop("updates")
        ratio = updates * sizes["batch"] / (envs * sizes["unroll"])
        algorithm: Any = weft.DQN(target_period=bare_values.TARGET_PERIOD, samples_per_insert=ratio, **sizes)
    else:
        algorithm = {"ppo": weft.PPO, "pqn": weft.PQN}[what](**sizes)
    env = load(stepping.ENVIRONMENT)
    bound = algorithm.bind(Spec(env.spec, envs, 10**6, 10**6))
    engine = FusedEngine(bound.graph(), env, Layout((jax.devices()[0],)), envs, seed=0)
    turns = jax.ShapeDtypeStruct((), jnp.int32)
    return compiled(lambda state, turns: engine._run({}, state, turns), 0, engine.template(), turns)


def _bare(what: str, compiled: Callable[..., int]) -> int:
    import jax

    from benchmarks import bare_values

    if what == "ppo":
        return 0
    made: dict[str, Any] = {}

    def start() -> Any:
        begin, made["iteration"] = getattr(bare_values, what)(**SIZES[what])
        return begin

    begin = jax.eval_shape(start)
    return compiled(lambda carry: jax.lax.scan(made["iteration"], carry, None, 1)[0], 0, begin)


def main(arguments: list[str]) -> int:
    """Count, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", choices=[*SIZES, []], default=[])
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args(arguments)
    if not flags.here:
        python = python_of("gpu-compiler")
        if python is None:
            print(how_to_install("gpu-compiler"))
            return 1
        return subprocess.run([python, "-m", "benchmarks.kernels", *arguments, "--here"], cwd=ROOT).returncode
    for what in flags.what or list(SIZES):
        mine, bare = count(what)
        print(f"{what} {SIZES[what]}: {mine} kernels an iteration, bare {bare or 'not looked at'}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
