"""File descriptors: how many this process may open, and what to say where they are too few."""

from __future__ import annotations

import resource
import sys

from weft.core.errors import ConfigError


def most_descriptors() -> int:
    """How many a process may open here, once it has raised its own limit as far as that goes."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def need_descriptors(count: int, what: str) -> None:
    """See to it that this process, and those it starts, may open ``count`` and some more.

    Raises its own limit as far as that goes. Raises ConfigError where the system's is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = most_descriptors()
    if count > most:
        raise ConfigError(
            f"{what} needs {count:,} file descriptors in one process, and no more than {hard:,} are allowed here "
            "(ulimit -Hn). Use fewer workers on this host, or raise the limit: LimitNOFILE in systemd, nofile in "
            "/etc/security/limits.conf, --ulimit nofile in Docker."
        )
    wanted = min(count + _SPARE, most)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


_SPARE = 256  # for files, libraries and the sockets of JAX
