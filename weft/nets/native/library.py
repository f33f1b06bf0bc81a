"""The kernels' library: compiled once for this processor, kept in the user's cache, loaded into this process.

Compiling takes some three seconds, and what comes of it knows this processor's vectors, so it is kept under a name that
has the sources, the compiler, jaxlib and the processor in it. Of several processes that want it at once, one compiles.
What is loaded is code: nobody else can have written it (``own_files.py``). A file that is damaged is made again.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

import jax
import jaxlib.version

from weft.core.cache import cache_folder
from weft.nets.native.own_files import NotOwn, load, own_folder

SOURCES = ("convolution.cc", "towers.cc")
HEADERS = ("halves.h", "team.h", "towers.h", "vectors.h")
TARGETS = ("weft_convolve", "weft_convolve_back", "weft_towers", "weft_towers_slopes", "weft_towers_weights")
"""What XLA calls: each is a function of the library, and has its name."""
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fPIC", "-w")
COMPILERS = ("c++", "g++", "clang++")
SECONDS = 300.0
"""How long a compiler may take, and how long another process that compiles is waited for."""
UNUSED_DAYS, UNFINISHED_DAYS = 30.0, 1.0
"""After so long without use a library is removed, and what a killed compilation left: when the next is compiled."""
OFF = "WEFT_NATIVE"
"""``WEFT_NATIVE=0`` does without the kernels."""


_SET_ASIDE = ContextVar("set aside", default=False)


def available() -> bool:
    """Whether XLA can call the kernels in this process: on a CPU, where they are compiled or can be.

    The first call compiles them, where this user never did, and blocks meanwhile.
    """
    return not _SET_ASIDE.get() and jax.default_backend() == "cpu" and not trouble()


@contextmanager
def set_aside() -> Iterator[None]:
    """What is traced within has no kernels in it: programs that are to run elsewhere.

    But a function of ``jax.jit`` that was traced before, with arguments of the same shapes, is not traced again: its
    kernels stay in it. Look for them in what was traced (``runtimes/policies/export_trace.py``).
    """
    token = _SET_ASIDE.set(True)
    try:
        yield
    finally:
        _SET_ASIDE.reset(token)


def require() -> None:
    """Raise RuntimeError, with the reason, where the kernels are not ``available``."""
    if not available():
        raise RuntimeError(f"there are no kernels: {trouble() or 'they are for CPUs'}")


def switched_off() -> bool:
    """Whether the user wants none."""
    return os.environ.get(OFF) == "0"


@functools.cache
def trouble() -> str:
    """Why there are no kernels; empty where there are. Compiles and loads them, the first time."""
    if switched_off():
        return f"{OFF}=0"
    try:
        library = _loaded()
        for name in TARGETS:
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    except (OSError, AttributeError, RuntimeError, NotOwn, _CannotCompile) as error:
        return str(error)  # AttributeError: a JAX without its foreign functions; RuntimeError: a user without a home
    return ""


def folder() -> Path:
    """Where this user's are kept."""
    return cache_folder("kernels")


class _CannotCompile(Exception):
    """Why."""


def _loaded() -> ctypes.CDLL:
    """The library, which is compiled where there is none yet, and once more where what is there cannot be loaded."""
    compiler = _compiler()
    place = folder()
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    with own_folder(place):
        path = place / f"{_identity(compiler)}.so"
        refused = path.with_suffix(".refused")  # what had just been compiled: its file is whole, and stays as it is
        found = _which(path)
        if found is not None:
            try:
                library = load(path)
            except OSError:
                if refused.exists():
                    raise
            else:
                with suppress(OSError):  # a cache may be read-only
                    refused.unlink(missing_ok=True)  # the reason was a passing one
                return library
        _compile_alone(compiler, path, found)
        try:
            return load(path)
        except OSError:
            refused.touch()
            raise


def _which(path: Path) -> tuple[int, int] | None:
    """What tells a file from the one that comes in its place; None where there is none."""
    try:
        seen = path.stat()
    except FileNotFoundError:
        return None
    return seen.st_ino, seen.st_mtime_ns


def _compile_alone(compiler: list[str], path: Path, found: tuple[int, int] | None) -> None:
    """Compile in place of what was ``found``, unless another process has done so meanwhile."""
    with _locked(path.parent / "lock"):
        if _which(path) == found:
            _compile(compiler, path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Have the lock of all that compile, or go on without it: where files cannot be locked, or its owner hangs.

    Two that compile do no harm: what they make is the same, and is there whole or not at all.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.05)
            except OSError:
                break  # this file system has none
        yield
    finally:
        os.close(descriptor)  # which releases it


def _compiler() -> list[str]:
    try:
        asked = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        raise _CannotCompile(f"CXX={os.environ['CXX']} is no command ({error}): quote it as for a shell") from error
    found = next((path for name in (asked[:1] or COMPILERS) if (path := shutil.which(name))), None)
    if found is None:
        raise _CannotCompile(f"no C++ compiler ({' or '.join(asked[:1] or COMPILERS)}); apt install g++, say, or CXX=…")
    return [found, *asked[1:]]


def _identity(compiler: list[str]) -> str:
    """A name for what this compiler makes of these sources on this processor."""
    program = os.path.realpath(compiler[0])
    looked = os.stat(program)
    known = [program, looked.st_size, looked.st_mtime_ns, _version(compiler)]  # it may be a wrapper of any compiler
    parts = [*compiler, *known, *FLAGS, jaxlib.version.__version__, _processor()]
    told = hashlib.sha256(repr(parts).encode())
    for name in (*SOURCES, *HEADERS):
        told.update((Path(__file__).parent / name).read_bytes())
    return told.hexdigest()[:24]


def _version(compiler: list[str]) -> str:
    """What it says of itself; empty where it does not."""
    try:
        done = _ran([*compiler, "--version"], 10.0)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout


def _processor() -> str:
    """What tells this processor from those that cannot run what is compiled for it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    known = {line.partition(":")[0].strip(): line for line in reversed(lines)}
    return "\n".join(known.get(key, "") for key in ("model name", "flags", "Features", "CPU part"))


def _compile(compiler: list[str], path: Path) -> None:
    """Each source by a process of its own, side by side; blocks."""
    with tempfile.TemporaryDirectory(dir=path.parent) as made, ThreadPoolExecutor(len(SOURCES)) as several:

        def one(name: str) -> str:
            part = f"{made}/{name}.o"
            source = str(Path(__file__).parent / name)
            _run([*compiler, *FLAGS, f"-I{jax.ffi.include_dir()}", "-c", source, "-o", part])
            return part

        whole = f"{made}/whole"
        _run([*compiler, "-shared", *several.map(one, SOURCES), "-o", whole])
        os.chmod(whole, 0o600)
        _sync(whole)  # before the name points at it: a power loss may not leave half of it
        os.replace(whole, path)
    _sync(path.parent)
    _remove_unused(path)


def _sync(path: str | Path) -> None:
    """Put a file, or a folder's names, on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot, and need not
            raise
    finally:
        os.close(descriptor)


def _remove_unused(path: Path) -> None:
    """Remove what other compilers, versions and processors needed, and what was left half made; but ``path`` stays."""
    for other in path.parent.iterdir():
        with suppress(OSError):  # another process removes it too
            seen = other.lstat()
            days = (time.time() - max(seen.st_atime, seen.st_mtime)) / 86_400
            if other.suffix in (".so", ".refused") and other != path and days > UNUSED_DAYS:
                other.unlink()
            elif other.name.startswith(tempfile.gettempprefix()) and days > UNFINISHED_DAYS:
                shutil.rmtree(other)


def _run(command: list[str]) -> None:
    try:
        done = _ran(command, SECONDS)
    except subprocess.TimeoutExpired as error:
        raise _CannotCompile(f"{command[0]} took longer than {SECONDS:.0f} s") from error
    if done.returncode:
        raise _CannotCompile(f"{shlex.join(command)} failed: {done.stderr.strip()[-500:]}")


def _ran(command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """In English; bytes that are no text are left out of what it says."""
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env=os.environ | {"LC_ALL": "C"},
        timeout=seconds,
        check=False,
    )
