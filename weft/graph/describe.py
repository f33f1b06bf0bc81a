"""What passes along a stream, in a few words: arrays, bytes, rhythm."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from weft.graph.fragment import Schema
from weft.graph.stream import Stream


@dataclass(frozen=True)
class Measured:
    """What passed along a stream in a run."""

    messages_per_second: float
    bytes_per_message: int

    @property
    def bytes_per_second(self) -> float:
        """All messages together."""
        return self.messages_per_second * self.bytes_per_message

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Measured:
        """As a run's ``summary.json`` has it."""
        return cls(float(saved["messages_per_second"]), int(saved["bytes_per_message"]))


Rates: TypeAlias = Mapping[str, Measured]
"""By a stream's name, of a leg behind a map ``unroll.relabel``; streams that were not measured are not there."""

_SHORT = {"float": "f", "bfloat": "bf", "uint": "u", "int": "i", "complex": "c"}


def rate_of(rates: Rates, stream: Stream) -> Measured | None:
    """What was measured on a stream: of a leg behind a map by the map's name too."""
    return rates.get(f"{stream.name}.{stream.source}", rates.get(stream.name))


def describe_schema(schema: Schema, limit: int = 4) -> str:
    """A schema in one line: ``observation f32[64,4], reward f32[64]``; past ``limit`` arrays, how many more."""
    import jax

    leaves, _ = jax.tree_util.tree_flatten_with_path(schema)
    words = [f"{place_of(path)} {short_dtype(leaf.dtype)}{_shape(leaf.shape)}".strip() for path, leaf in leaves]
    if not words:
        return "nothing"
    if len(words) > limit:
        words = [*words[: limit - 1], f"+{len(words) - limit + 1} more arrays"]
    return ", ".join(words)


def describe_bytes(count: int) -> str:
    """A size with three figures or fewer before its unit: ``512 B``, ``1.3 KiB``, ``24 MiB``."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.1f} {unit}" if unit != "B" and size < 10 else f"{size:.0f} {unit}"


def describe_rate(per_second: float) -> str:
    """Messages a second: ``3,925/s``, ``30.5/s``."""
    return f"{per_second:,.0f}/s" if per_second >= 100 else f"{per_second:.1f}/s"


def describe_rhythm(stream: Stream) -> str:
    """How often a message passes: ``every step``."""
    return f"every {stream.rhythm.value}"


def short_dtype(dtype: object) -> str:
    """``f32`` for float32, ``bool`` for bool, ``key`` for a PRNG key."""
    name = str(dtype)
    if name.startswith("key<"):
        return "key"
    match = re.fullmatch(r"([a-z]+)(\d+)", name)
    return f"{_SHORT.get(match[1], match[1])}{match[2]}" if match else name


def _shape(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]" if shape else ""


def place_of(path: tuple[object, ...]) -> str:
    """A leaf's path as ``observation.camera``: keys, fields and positions alike."""
    words = []
    for entry in path:
        for attribute in ("key", "name", "idx"):
            if hasattr(entry, attribute):
                words.append(str(getattr(entry, attribute)))
                break
    return ".".join(words)
