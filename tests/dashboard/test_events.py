"""Server-sent events: what changes is told, once, and what does not is not."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager

from asking import TOKEN
from folders import append, live, make_run, record

from weft.dashboard import events


@contextmanager
def listening(client, query) -> Iterator[Iterator[tuple[str, object]]]:
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=10)
    connection.request("GET", f"/api/events?{query}", headers={"Authorization": f"Bearer {TOKEN}"})
    answer = connection.getresponse()
    assert answer.headers["Content-Type"] == "text/event-stream"

    def told():
        name = ""
        while line := answer.readline():
            if line.startswith(b"event: "):
                name = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                yield name, json.loads(line[6:])

    try:
        yield told()
    finally:
        answer.close()
        connection.close()


def test_a_page_hears_of_what_changes(client, root, monkeypatch):
    monkeypatch.setattr(events, "LOOK_SECONDS", 0.02)
    folder = make_run(root, "run", live=live())
    run = client.id_of("run")
    with listening(client, f"run={run}&with={run}") as told:
        first = [next(told) for _ in range(3)]
        assert [name for name, _ in first] == ["runs", "picture", "records"]
        assert first[1][1]["advice"].startswith("act-bound")
        append(folder, [record(999)])
        name, sizes = next(told)
        assert (name, sizes[run][1]) == ("records", (folder / "metrics.jsonl").stat().st_size)
        now = live(env_steps=600)
        now["workers"][0]["state"] = "gone"
        (folder / "live.json").write_text(json.dumps(now))
        heard = dict([next(told), next(told)])
        assert {"name": "env-0", "state": "gone", "life": 0} in heard["picture"]["workers"]


def test_the_server_lets_listeners_go_when_it_ends(client, root, monkeypatch):
    monkeypatch.setattr(events, "LOOK_SECONDS", 0.02)
    make_run(root, "run")
    with listening(client, "") as told:
        assert next(told)[0] == "runs"
        client.server.ended.set()
        assert list(told) == []


def test_only_so_many_may_listen(client, monkeypatch):
    for _ in range(events.MOST_LISTENERS):
        assert client.server.listeners.acquire(blocking=False)
    assert client.get("/api/events").status == 503
