"""The HTTP server of the dashboard: Python's own, a thread for each request.

The standard library will do: a handful of browsers of one person ask for small JSON, and what takes time, reading
records, is NumPy's. A framework would be two more packages on every machine for no page that is quicker.

Read only: it answers GET and HEAD, knows its own files by a table, and runs by ids that it made itself. No path comes
from a request.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec

from weft.core.errors import ConfigError
from weft.dashboard.access import Access
from weft.dashboard.answers import ANSWERS
from weft.dashboard.events import MOST_LISTENERS, listen
from weft.dashboard.files import opened
from weft.dashboard.library import Library
from weft.dashboard.prometheus import exposition

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
PARTS = ("page.html", "page.css", "page.js", "draw.js", "charts.js", "views.js", "pictures.js", "icon.svg")
VENDORED = ("uPlot.iife.min.js", "uPlot.min.css")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SEALED = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""For what comes out of a run folder: nothing in it runs, even where it is opened by itself."""

PIECE = 256 * 1024
TIMEOUT = 30.0
"""Seconds that a connection may take to say what it wants, or to take what it is given."""

REFUSED = (
    "This page needs the token that `weft watch` printed: open the whole URL, http://…/?token=…\n"
    "If the terminal is gone, start `weft watch` again.\n"
)


def page_files() -> dict[str, tuple[bytes, str]]:
    """Our own files by the path that they are served under, with their types."""
    here = resources.files("weft.dashboard")
    found = {f"/static/{name}": here / "static" / name for name in PARTS}
    found |= {f"/static/{name}": here / "vendored" / name for name in VENDORED}
    return {path: (file.read_bytes(), TYPES[os.path.splitext(path)[1]]) for path, file in found.items()}


class Dashboard(ThreadingHTTPServer):
    """Serves the runs of a library on ``host:port``; port 0 takes a free one. ``close`` ends it and its threads."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, library: Library, access: Access, host: str = "127.0.0.1", port: int = 0) -> None:
        self.library, self.access, self.files = library, access, page_files()
        self.ended = threading.Event()
        self.listeners = threading.Semaphore(MOST_LISTENERS)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Request)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {host}:{port}: {error.strerror or error}. Name another --port; 0 takes a free one."
            ) from None
        access.cookie = f"weft_{self.server_address[1]}"  # cookies know no ports: two dashboards must not share one

    @property
    def url(self) -> str:
        """Where the page is, with the token."""
        host, port = self.server_address[0], self.server_address[1]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        if shown in ("0.0.0.0", "[::]"):
            shown = socket.gethostname()
        return f"http://{shown}:{port}/?{urlencode({'token': self.access.token})}"

    def close(self) -> None:
        """End: no more requests, and those that listen to events are let go."""
        self.ended.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no news."""


class _Request(BaseHTTPRequestHandler):
    server: Dashboard
    server_version = "weft"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = TIMEOUT

    def do_GET(self) -> None:
        try:
            self._answer()
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the URL holds the token."""

    def _answer(self) -> None:
        if not self.server.access.is_ours(self.headers.get("Host", "")):
            self._text(
                "The Host header does not name this machine: see --allow-host.\n", HTTPStatus.MISDIRECTED_REQUEST
            )
            return
        parts = urlsplit(self.path)
        query = parse_qs(parts.query, max_num_fields=200)
        given = query.pop("token", [""])[0]
        by_url = bool(given) and self.server.access.knows(given)
        if by_url and parts.path == "/":
            self._enter(query)
            return
        if not by_url and not self.server.access.allows(
            self.headers.get("Cookie", ""), self.headers.get("Authorization", "")
        ):
            self._text(REFUSED, HTTPStatus.UNAUTHORIZED)
            return
        self._route(parts.path, query)

    def _enter(self, query: dict[str, list[str]]) -> None:
        """Keep the token in a cookie, and out of the address that the browser shows and remembers."""
        self.send_response(HTTPStatus.SEE_OTHER)
        cookie = f"{self.server.access.cookie}={self.server.access.token}; HttpOnly; SameSite=Lax; Path=/"
        self.send_header("Set-Cookie", cookie)
        self.send_header("Location", "/" + (f"?{urlencode(query, doseq=True)}" if query else ""))
        self.send_header("Content-Length", "0")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()

    def _route(self, path: str, query: dict[str, list[str]]) -> None:
        if path == "/":
            self._file("/static/page.html")
        elif path in self.server.files:
            self._file(path)
        elif path in ANSWERS:
            self._json(path, query)
        elif path == "/api/events":
            self._events(query)
        elif path == "/api/video":
            self._video(query)
        elif path == "/metrics":
            self._body(exposition(self.server.library).encode(), "text/plain; version=0.0.4; charset=utf-8")
        else:
            self._text("There is no such page.\n", HTTPStatus.NOT_FOUND)

    def _json(self, path: str, query: dict[str, list[str]]) -> None:
        try:
            answer, status = ANSWERS[path](self.server.library, query), HTTPStatus.OK
        except LookupError as error:
            answer, status = {"error": str(error.args[0])}, HTTPStatus.NOT_FOUND
        except ConfigError as error:
            answer, status = {"error": str(error)}, HTTPStatus.BAD_REQUEST
        self._body(msgspec.json.encode(answer), "application/json", status)

    def _file(self, path: str) -> None:
        content, kind = self.server.files[path]
        self._body(content, f"{kind}; charset=utf-8")

    def _text(self, words: str, status: HTTPStatus) -> None:
        self._body(words.encode(), "text/plain; charset=utf-8", status)

    def _body(self, content: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._head(status, kind, POLICY)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _head(self, status: HTTPStatus, kind: str, policy: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Security-Policy", policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cache-Control", "no-store")

    def _video(self, query: dict[str, list[str]]) -> None:
        run = self.server.library.run((query.get("run") or [""])[0])
        found = run.video((query.get("name") or [""])[0]) if run is not None else None
        if found is None:
            self._text("There is no such video.\n", HTTPStatus.NOT_FOUND)
            return
        try:
            with opened(found[0]) as file:
                self._stream(file.fileno(), found[1])
        except OSError as error:
            if isinstance(error, BrokenPipeError | ConnectionResetError | TimeoutError):
                raise
            self._text("The video cannot be read.\n", HTTPStatus.NOT_FOUND)

    def _stream(self, descriptor: int, kind: str) -> None:
        """A file, or the part of it that a player asks for."""
        size = os.fstat(descriptor).st_size
        begin, end = 0, size
        asked = re.fullmatch(r"bytes=(\d{1,15})-(\d{0,15})", self.headers.get("Range", ""))
        if asked and int(asked[1]) < size:
            begin, end = int(asked[1]), min(size, int(asked[2]) + 1 if asked[2] else size)
            self._head(HTTPStatus.PARTIAL_CONTENT, kind, SEALED)
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{size}")
        else:
            self._head(HTTPStatus.OK, kind, SEALED)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(max(0, end - begin)))
        self.end_headers()
        while begin < end and self.command != "HEAD":
            piece = os.pread(descriptor, min(PIECE, end - begin), begin)
            if not piece:  # it was cut meanwhile
                self.close_connection = True
                return
            self.wfile.write(piece)
            begin += len(piece)

    def _events(self, query: dict[str, list[str]]) -> None:
        if not self.server.listeners.acquire(blocking=False):
            self._text("Too many pages are open: close some.\n", HTTPStatus.SERVICE_UNAVAILABLE)
            return
        try:
            self._head(HTTPStatus.OK, "text/event-stream", POLICY)
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            if self.command == "HEAD":
                return
            for event in listen(self.server.library, query, self.server.ended):
                self.wfile.write(event)
                with suppress(OSError):
                    self.wfile.flush()
        finally:
            self.server.listeners.release()
