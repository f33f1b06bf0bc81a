"""A way to ask a dashboard over HTTP."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any

from weft.dashboard.server import Dashboard

TOKEN = "a-token-for-the-tests"


@dataclass
class Asked:
    """An answer, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Asks a dashboard; with the token unless told otherwise."""

    def __init__(self, server: Dashboard) -> None:
        self.server = server
        self.port = server.server_address[1]

    def get(self, path: str, *, token: str | None = TOKEN, method: str = "GET", **headers: str) -> Asked:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent.setdefault("Authorization", f"Bearer {token}")
        try:
            connection.request(method, path, headers=sent)
            answer = connection.getresponse()
            return Asked(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def id_of(self, name: str) -> str:
        return next(run["id"] for run in self.get("/api/runs").json()["runs"] if run["name"] == name)
