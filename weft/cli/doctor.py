"""``weft doctor``: what this machine has, and what is missing for what; one line each, with what to do."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import NamedTuple

from weft.cli.flags import Flags, parse
from weft.core.setting import setting
from weft.runtimes.prepare.settings import Settings

ABOUT = (
    "Say what this machine has, and what is missing for what: one line each, with what to do about it. With --on: "
    "what of a cluster is unfit for runs, for every host, in one table. Exit code 1 where something must be put right."
)

NEEDED = ("jax", "jaxlib", "flax", "optax", "numpy", "gymnasium", "msgspec", "pyzmq", "rich", "scipy", "tensorboardX")
EXTRAS = {
    "atari": ("ale_py", "Atari games (ALE/...)"),
    "mujoco": ("mujoco", "MuJoCo robots"),
    "pettingzoo": ("pettingzoo", "PettingZoo environments"),
    "gymnax": ("gymnax", "gymnax environments"),
    "pgx": ("pgx", "Pgx games"),
    "jaxmarl": ("jaxmarl", "JaxMARL environments"),
    "minari": ("minari", "Minari data sets"),
    "video": ("PIL", "weft eval --video"),
    "export": ("flatbuffers", "weft export --format stablehlo"),
    "wandb": ("wandb", "--wandb"),
    "ray": ("ray", "--on ray"),
    "mirror": ("fsspec", "--mirror"),
    "optuna": ("optuna", "Optuna"),
}
FILES, SHARED, DISK = 1024, 256 << 20, 1 << 30
"""Open files, bytes of shared memory and bytes of disk below which large plans and long runs get into trouble."""


class Finding(NamedTuple):
    """One line."""

    level: str  # "ok", "note": something is not there that may not be needed; "bad": it must be put right
    what: str
    text: str
    do: str = ""


@dataclass(frozen=True)
class DoctorFlags:
    """What to look at."""

    json: bool = setting(False, "the findings as one line of JSON on stdout, and nothing else there")


def main(command: str, arguments: list[str]) -> int:
    """Look and say; 1 where something must be put right."""
    groups = Flags(DoctorFlags), Flags(Settings, "where", names=("root", "on", "trust_network"))
    given, kept = parse("weft doctor", ABOUT, arguments, *groups)
    settings = Settings(**kept)
    if settings.on != "local":
        from weft.cli.doctor_of_hosts import look_at_hosts

        return look_at_hosts(settings.on, trust_network=settings.trust_network, json=DoctorFlags(**given).json)
    findings = list(_look(settings.root))
    bad = any(one.level == "bad" for one in findings)
    if DoctorFlags(**given).json:
        import msgspec

        print(msgspec.json.encode([one._asdict() for one in findings]).decode())
        return int(bad)
    wide = max(len(one.what) for one in findings)
    for one in findings:
        mark = {"ok": "  ", "note": "- ", "bad": "! "}[one.level]
        print(f"{mark}{one.what:<{wide}}  {one.text}" + (f". {one.do}" if one.do else ""))
    print("\nSomething must be put right: see the lines with !" if bad else "\nAll that `weft train` needs is here.")
    return int(bad)


def _look(root: Path) -> Iterator[Finding]:
    yield from _software()
    yield from _devices()
    yield from _machine(root)
    for extra, (module, what) in EXTRAS.items():
        if util.find_spec(module) is None:
            yield Finding("note", what, "not installed", f"pip install 'weft[{extra}]'")
        else:
            yield Finding("ok", what, "installed")
    encoder = util.find_spec("imageio_ffmpeg") is not None or shutil.which("ffmpeg") is not None
    if not encoder:
        yield Finding("note", "MP4 videos", "no ffmpeg: videos become GIFs", "pip install imageio-ffmpeg")


def _software() -> Iterator[Finding]:
    from weft import __version__

    yield Finding("ok", "weft", f"{__version__} in {Path(__file__).parents[1]}")
    yield Finding("ok", "Python", f"{platform.python_version()} at {sys.executable}")
    found, missing = [], []
    for name in NEEDED:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    yield Finding("ok", "packages", ", ".join(found))
    if missing:
        yield Finding("bad", "packages", f"missing: {', '.join(missing)}", f"pip install {' '.join(missing)}")
    if sys.platform != "linux":
        yield Finding("bad", "system", f"{sys.platform}: plans in workers need Linux", "Plans in one process may work.")


def _devices() -> Iterator[Finding]:
    try:
        import jax

        devices = jax.local_devices()
    except Exception as error:  # whatever a driver says
        yield Finding("bad", "devices", f"JAX finds none: {error}", "JAX_PLATFORMS=cpu uses the CPU")
        return
    kinds = sorted({f"{d.device_kind} ({d.platform})" for d in devices})
    yield Finding("ok", "devices", f"{len(devices)} × {', '.join(kinds)}")
    if devices[0].platform == "cpu":
        yield _kernels()
    if devices[0].platform != "cpu":
        limits = [(d.memory_stats() or {}).get("bytes_limit", 0) for d in devices]
        yield Finding("ok", "device memory", ", ".join(_size(limit) for limit in limits) + " for JAX")
    elif Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi"):
        yield Finding("note", "GPU", "there is one, and JAX does not use it", "pip install 'weft[gpu]'")


def _kernels() -> Finding:
    from weft.nets.native import library

    if why := library.trouble():
        cost = "XLA convolves images in three times the time; SAC and TD3 learn in 1.15 times theirs, IQL is slower too"
        return Finding("note", "kernels", f"none: {why}", cost)
    return Finding("ok", "kernels", f"compiled for this CPU, for images, SAC, TD3 and IQL, in {library.folder()}")


def _machine(root: Path) -> Iterator[Finding]:
    from weft.plans.machine import Machine

    here = Machine.here()
    yield Finding("ok", "cores", f"{here.cores} that this process may use")
    yield Finding("ok", "memory", _size(here.memory) if here.memory else "not known")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES:
        yield Finding("note", "open files", f"{soft} at most: too few for plans with many workers", "ulimit -n 4096")
    else:
        yield Finding("ok", "open files", f"{soft} at most (up to {hard} by ulimit -n)")
    yield from _room("shared memory", Path("/dev/shm"), SHARED, "docker run --shm-size 2g; or --channel ipc")
    place = next(p for p in (root.absolute(), *root.absolute().parents) if p.exists())
    yield from _room(f"disk for {root}/", place, DISK, "--root is another place")
    if not os.access(place, os.W_OK):
        yield Finding("bad", f"disk for {root}/", f"{place} cannot be written to", "--root is another place")


def _room(what: str, place: Path, least: int, do: str) -> Iterator[Finding]:
    if not place.exists():
        yield Finding("note", what, f"there is no {place}: plans in workers cannot use it", do)
        return
    free = shutil.disk_usage(place).free
    if free < least:
        yield Finding("note", what, f"{_size(free)} free in {place}: little", do)
    else:
        yield Finding("ok", what, f"{_size(free)} free")


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
