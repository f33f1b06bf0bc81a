"""The format of a checkpoint file: arrays and a JSON document, under one checksum. Nothing in it is ever executed.

    magic      8 bytes     WEFTCKPT
    version    4 bytes     unsigned
    length     8 bytes     of the header, unsigned
    header     JSON        step, label, the document, and for each array path, dtype, shape, offset, nbytes
    arrays     raw bytes   each at a multiple of 64 bytes from the end of the padded header
    checksum   32 bytes    SHA-256 of everything before it

Numbers are little-endian. Any flipped bit, and any byte more or fewer, changes the checksum or what it is compared
with.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
from collections.abc import Iterator
from io import BufferedReader
from typing import Any

import jax
import msgspec
import numpy as np

from weft.core.errors import CheckpointError, CorruptCheckpoint
from weft.core.types import Tree
from weft.services.leaves import Leaf, leaves

MAGIC = b"WEFTCKPT"
VERSION = 1

_PREFIX = struct.Struct("<8sIQ")
_ALIGNMENT = 64
_CHECKSUM_BYTES = 32
_CHUNK = 4 * 2**20  # bytes hashed at a time


class StoredArray(msgspec.Struct, frozen=True):
    """One array in the file; ``offset`` counts from where the arrays begin."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    key_impl: str | None = None  # for PRNG keys: their generator

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


class Label(msgspec.Struct, frozen=True):
    """Whose checkpoint it is, and how far the run was: what chooses among checkpoints without loading them."""

    run: str = ""  # the run's id; empty in files from before there were ids
    env_steps: int = 0
    return_mean: float | None = None  # of training's last episodes; None before the first ended
    episodes: int = 0  # that ended since the run began
    score: float | None = None  # of these params, by what looked at them: the mean return of an evaluation


class Header(msgspec.Struct, frozen=True):
    """What a file says of itself."""

    step: int
    arrays: tuple[StoredArray, ...]
    document: dict[str, Any]
    label: Label = Label()


class Front(msgspec.Struct, frozen=True):
    """The part of a header that tells checkpoints apart; read alone it costs next to nothing."""

    step: int
    label: Label = Label()


def encode(step: int, tree: Tree, document: dict[str, Any], label: Label) -> Iterator[bytes | memoryview]:
    """The bytes of a checkpoint, piece by piece, one array in host memory at a time.

    The header is made at once, so ``document`` may change afterwards; the tree's arrays may not until the last piece.

    ``document`` must survive JSON: strings, finite numbers, booleans, None, lists (tuples come back as lists) and
    dicts with string keys. Raises CheckpointError, before the first piece, for what cannot be stored.
    """
    problem = _not_json(document, "document")
    if problem:
        raise CheckpointError(f"a checkpoint's document must be JSON: {problem}")
    found = leaves(tree)
    arrays, offset = [], 0
    for leaf in found:
        arrays.append(StoredArray(leaf.path, leaf.dtype, leaf.shape, offset, leaf.nbytes, leaf.key_impl))
        offset = _aligned(offset + leaf.nbytes)
    header = msgspec.json.encode(Header(step, tuple(arrays), document, label))
    for leaf in found:
        if isinstance(leaf.value, jax.Array) and not leaf.is_key:
            leaf.value.copy_to_host_async()  # all copies under way before the first is waited for
    return _pieces(header, found)


def decode_header(header: bytes, version: int, name: str) -> Header:
    """The header of a file whose bytes were checked; CheckpointError for another version of the format."""
    if version != VERSION:
        raise CheckpointError(
            f"checkpoint {name} has format version {version}, and this Weft reads version {VERSION}. "
            "Use the Weft that wrote it, or start another run with --run."
        )
    try:
        return msgspec.json.decode(header, type=Header)
    except msgspec.MsgspecError as error:
        raise CheckpointError(f"checkpoint {name} has a header that cannot be read: {error}") from None


def read_front(file: BufferedReader) -> Front | None:
    """What an unchecked file says of its step and run; None where that cannot be read."""
    size = os.fstat(file.fileno()).st_size
    prefix = file.read(_PREFIX.size)
    if len(prefix) < _PREFIX.size:
        return None
    magic, version, header_length = _PREFIX.unpack(prefix)
    if magic != MAGIC or version != VERSION or header_length > size:
        return None
    try:
        return msgspec.json.decode(file.read(header_length), type=Front)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def check_bytes(file: BufferedReader, name: str) -> tuple[bytes, int]:
    """Check every byte of a file against its checksum; gives the header's bytes and the format's version.

    Raises CorruptCheckpoint that says in what way the file is corrupt. A file of another version is not corrupt.
    """
    size = os.fstat(file.fileno()).st_size
    if size < _PREFIX.size + _CHECKSUM_BYTES:
        raise CorruptCheckpoint(f"checkpoint {name} is cut short: it has {size} bytes, not even a header's worth")
    file.seek(0)
    prefix = file.read(_PREFIX.size)
    magic, version, header_length = _PREFIX.unpack(prefix)
    if magic != MAGIC:
        raise CorruptCheckpoint(
            f"{name} is not a checkpoint, or a corrupt one: it starts with {magic!r} and not {MAGIC!r}"
        )
    digest, left = hashlib.sha256(prefix), size - _PREFIX.size - _CHECKSUM_BYTES
    buffer = memoryview(bytearray(min(_CHUNK, max(left, 1))))
    while left:
        count = file.readinto(buffer[: min(left, _CHUNK)])
        if not count:
            raise CorruptCheckpoint(f"checkpoint {name} was cut short while it was read")
        digest.update(buffer[:count])
        left -= count
    if digest.digest() != file.read(_CHECKSUM_BYTES):
        raise CorruptCheckpoint(
            f"checkpoint {name} is corrupt: its {size} bytes do not have the checksum it was written with"
        )
    if header_length > size - _PREFIX.size - _CHECKSUM_BYTES:
        raise CorruptCheckpoint(f"checkpoint {name} claims a header of {header_length} bytes, and has {size} in all")
    file.seek(_PREFIX.size)
    return file.read(header_length), version


def read_tree(file: BufferedReader, header: Header, template: Tree, name: str, *, part: bool = False) -> Tree:
    """Build the tree that ``template`` describes from a file whose header was checked.

    The template's leaves are arrays or ``jax.ShapeDtypeStruct``; what is allocated is their size, never what a file
    claims. With ``part`` it may hold more than the template. Raises CheckpointError that names each path where the two
    disagree.
    """
    stored, wanted = {array.path: array for array in header.arrays}, leaves(template)
    if part:
        stored = {leaf.path: stored[leaf.path] for leaf in wanted if leaf.path in stored}
    _check_fit(stored, wanted, name)
    start = _aligned(_PREFIX.size + _header_length(file))
    rebuilt: dict[str, Any] = {}
    for leaf in wanted:
        array = stored[leaf.path]
        data = np.empty(leaf.nbytes, np.uint8)
        file.seek(start + array.offset)
        if array.nbytes != leaf.nbytes or file.readinto(data.data) != leaf.nbytes:
            raise CheckpointError(
                f"checkpoint {name}: at {leaf.path} it has {array.nbytes} bytes, expected {leaf.nbytes}"
            )
        rebuilt[leaf.path] = leaf.rebuild(data, array.key_impl)
    paths, structure = jax.tree_util.tree_flatten_with_path(template)
    return jax.tree_util.tree_unflatten(structure, [rebuilt[jax.tree_util.keystr(path)] for path, _ in paths])


def _pieces(header: bytes, found: list[Leaf]) -> Iterator[bytes | memoryview]:
    digest = hashlib.sha256()

    def hashed(piece: bytes | memoryview) -> bytes | memoryview:
        digest.update(piece)
        return piece

    position = _PREFIX.size + len(header)
    yield hashed(_PREFIX.pack(MAGIC, VERSION, len(header)) + header + bytes(_aligned(position) - position))
    for leaf in found:
        data = leaf.data()
        yield hashed(data)
        yield hashed(bytes(_aligned(data.nbytes) - data.nbytes))
    yield digest.digest()


def _check_fit(stored: dict[str, StoredArray], wanted: list[Leaf], name: str) -> None:
    problems = []
    for leaf in wanted:
        array = stored.get(leaf.path)
        if array is None:
            problems.append(f"{leaf.path}: the checkpoint has none, expected {leaf}")
        elif (array.dtype, array.shape) != (leaf.dtype, leaf.shape):
            problems.append(f"{leaf.path}: the checkpoint has {array}, expected {leaf}")
    known = {leaf.path for leaf in wanted}
    problems += [
        f"{path}: the checkpoint has {array}, expected none" for path, array in stored.items() if path not in known
    ]
    if problems:
        more = f"\n  and {len(problems) - 8} more" if len(problems) > 8 else ""
        raise CheckpointError(
            f"checkpoint {name} does not fit what was asked for:\n  "
            + "\n  ".join(problems[:8])
            + more
            + "\nUse the algorithm, network and environments that wrote it, or another --run."
        )


def _header_length(file: BufferedReader) -> int:
    file.seek(0)
    return int(_PREFIX.unpack(file.read(_PREFIX.size))[2])


def _aligned(position: int) -> int:
    return -(-position // _ALIGNMENT) * _ALIGNMENT


def _not_json(value: Any, place: str) -> str:
    """What in ``value`` would not survive JSON, in words; empty where all of it does."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{place} is {value}, which JSON cannot hold. Store None or a string instead."
    if value is None or type(value) in (str, bool, int, float):
        return ""
    if isinstance(value, list | tuple):
        return next(filter(None, (_not_json(v, f"{place}[{i}]") for i, v in enumerate(value))), "")
    if isinstance(value, dict):
        odd = next((k for k in value if not isinstance(k, str)), None)
        if odd is not None:
            return f"{place} has the key {odd!r}, a {type(odd).__name__}. Keys are strings."
        return next(filter(None, (_not_json(v, f"{place}.{k}") for k, v in value.items())), "")
    return f"{place} is a {type(value).__name__}. Make it a plain number or a list, or put it into the tree of arrays."
