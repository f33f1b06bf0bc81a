"""Whether this user made a run: a key that only the user can read, and a mark of it in the run's folder.

The mark is an HMAC over all that decides what opening the run would import: its config, and its origin (which modules
and scripts, and where they were). A folder that somebody else made, or changed, has no valid mark. The key is 32 random
bytes in ``$XDG_STATE_HOME/weft/key`` (or ``~/.local/state/weft/key``), of mode 0600; it is made with the first mark. A
key that others could read or write is not used.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from weft.core.errors import RunError

KEY_BYTES = 32
MARK = "mark"
_PURPOSE = b"weft: this user made the run\n"


def key_path() -> Path:
    """Where the user's key is, or would be."""
    said = os.environ.get("XDG_STATE_HOME", "")
    state = Path(said) if os.path.isabs(said) else Path("~/.local/state").expanduser()
    return state / "weft" / "key"


def with_mark(config: Mapping[str, Any], origin: Mapping[str, Any]) -> dict[str, Any]:
    """The origin of a run with this user's mark; ``config`` as it reads back from its file.

    Makes the key where there is none. Raises RunError where it can neither be read nor made.
    """
    path = key_path()
    try:
        try:
            key = _read_key(path)
        except FileNotFoundError:
            _make_key(path)
            key = _read_key(path)
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"the key that marks runs as yours, {path}, cannot be used: {reason}") from error
    return {**origin, MARK: _mark(key, config, origin)}


def key_trouble() -> str:
    """Why runs cannot be marked as this user's; empty where they can. Makes the key where there is none."""
    try:
        with_mark({}, {})
    except RunError as error:
        return str(error)
    return ""


def is_made_here(config: Mapping[str, Any], origin: Mapping[str, Any]) -> bool:
    """Whether the origin has this user's mark, for this very config. Never raises, and makes no key."""
    mark = origin.get(MARK)
    if not isinstance(mark, str):
        return False
    try:
        return hmac.compare_digest(_mark(_read_key(key_path()), config, origin).encode(), mark.encode())
    except (OSError, RuntimeError, UnicodeEncodeError):
        return False


def _mark(key: bytes, config: Mapping[str, Any], origin: Mapping[str, Any]) -> str:
    covered = [config, {name: value for name, value in origin.items() if name != MARK}]
    return hmac.new(key, _PURPOSE + msgspec.json.encode(covered, order="sorted"), hashlib.sha256).hexdigest()


def _read_key(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
            raise PermissionError(None, f"it must be a file of yours that nobody else can read (chmod 600 {path})")
        key = os.read(descriptor, KEY_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(key) != KEY_BYTES:
        raise OSError(None, f"it has not {KEY_BYTES} bytes; remove it, and another is made")
    return key


def _make_key(path: Path) -> None:
    """Whole or not at all; where two processes make one at once, both have the first's."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, secrets.token_bytes(KEY_BYTES))
        os.fsync(descriptor)
        with suppress(FileExistsError):
            os.link(own, path)
    finally:
        os.close(descriptor)
        os.unlink(own)
