"""A dashboard over folders made by hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from asking import TOKEN, Client

from weft.dashboard.access import Access
from weft.dashboard.library import Library
from weft.dashboard.server import Dashboard


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def client(root: Path) -> Iterator[Client]:
    server = Dashboard(Library(root), Access("127.0.0.1", TOKEN), "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield Client(server)
    server.close()
    thread.join()
