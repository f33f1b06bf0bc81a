"""Who may look: a token, and a Host header that names this machine.

The page is on loopback, where any web site that the user's browser shows can send requests too. The token keeps them
out: it comes in the URL that is printed, then stays in a cookie that other sites' requests do not carry. The Host
header keeps out a site that has its own name resolve to this machine (DNS rebinding).
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie


class Access:
    """What a server on ``host`` asks of a request. ``token`` is made where none is given; ``hosts`` are more names."""

    def __init__(self, host: str, token: str | None = None, hosts: Iterable[str] = ()) -> None:
        self.token = token or secrets.token_urlsafe(24)
        self.cookie = "weft"
        self._loopback = is_loopback(host)
        own = [] if self._loopback else [socket.gethostname(), socket.getfqdn()]
        self._hosts = {name.lower() for name in (*hosts, *own)}

    def is_ours(self, host: str) -> bool:
        """Whether a Host header names this server: localhost, a name that was said, or an address.

        An address cannot be another site's name. On loopback only those of loopback will do.
        """
        name = host.strip().lower()
        if name.startswith("["):
            name = name[1:].partition("]")[0]
        elif name.count(":") == 1:
            name = name.partition(":")[0]
        if name == "localhost" or name in self._hosts:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self._loopback

    def knows(self, token: str) -> bool:
        """Whether a token is the right one; takes as long whatever is wrong with it."""
        return hmac.compare_digest(token.encode(errors="replace"), self.token.encode())

    def allows(self, cookies: str, authorisation: str) -> bool:
        """Whether a request may be answered, by its headers ``Cookie`` and ``Authorization: Bearer TOKEN``."""
        kind, _, given = authorisation.partition(" ")
        if kind.lower() == "bearer" and self.knows(given.strip()):
            return True
        try:
            found = SimpleCookie(cookies).get(self.cookie)
        except CookieError:
            return False
        return found is not None and self.knows(found.value)


def is_loopback(host: str) -> bool:
    """Whether an address to bind to is reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
