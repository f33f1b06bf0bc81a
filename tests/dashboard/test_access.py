"""Who gets in: the token, the cookie, the Host header; and that nothing outside the runs can be asked for."""

from __future__ import annotations

import os

import pytest
from asking import TOKEN
from folders import make_run

from weft.dashboard.access import Access

PATHS = ("/", "/static/page.js", "/api/runs", "/api/events", "/api/video?run=x&name=y", "/metrics", "/nothing")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN[:-1], TOKEN + "x", "ä"])
def test_nothing_is_answered_without_the_token(client, path, token):
    headers = {} if token is None else {"Authorization": f"Bearer {token}".encode().decode("latin-1")}
    answer = client.get(path, token=None, **headers)
    assert answer.status == 401
    assert b"weft watch" in answer.body


def test_the_url_with_the_token_gives_a_cookie_and_the_cookie_lets_in(client):
    answer = client.get(f"/?token={TOKEN}&tab=curves", token=None)
    assert (answer.status, answer.headers["location"]) == (303, "/?tab=curves")
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    page = client.get("/", token=None, Cookie=cookie.partition(";")[0])
    assert page.status == 200
    assert page.body.startswith(b"<!doctype html>")
    assert client.get("/", token=None, Cookie="weft=wrong").status == 401
    assert client.get("/?token=wrong", token=None).status == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost", 200), ("127.0.0.1:9", 200), ("[::1]:80", 200), ("evil.example", 421), ("", 421), ("10.0.0.1", 421)],
)
def test_the_host_header_must_name_this_machine(client, host, status):
    """A site whose name resolves to 127.0.0.1 sends its own name, and the token does not help it."""
    assert client.get("/api/runs", Host=host).status == status


def test_where_the_bind_is_wider_addresses_and_own_names_are_allowed():
    access = Access("0.0.0.0", hosts=["Proxy.example"])
    assert access.is_ours("192.168.1.7:8765")
    assert access.is_ours("proxy.example")
    assert access.is_ours(os.uname().nodename)
    assert not access.is_ours("evil.example")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_is_read_only(client, method):
    assert client.get("/api/runs", method=method).status == 501


def test_a_head_has_no_body(client):
    answer = client.get("/", method="HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["content-length"]) > 1000


def test_answers_say_what_may_run_in_them(client):
    headers = client.get("/").headers
    assert "script-src 'self'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static//etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "/api/run?run=../../etc",
        "/api/run?run=/etc/passwd",
        "/api/log?run={run}&name=../config.json",
        "/api/log?run={run}&name=%2e%2e%2fsecret.log",
        "/api/log?run={run}&name=link.log",
        "/api/log?run={run}&name=/etc/hostname",
        "/api/video?run={run}&name=../secret.gif",
        "/api/video?run={run}&name=link.gif",
    ],
)
def test_no_path_leads_out_of_a_run(client, root, path):
    folder = make_run(root, "run")
    for name in ("secret.log", "secret.gif"):
        (folder / name).write_text("secret")
    (folder / "logs" / "link.log").symlink_to(folder / "secret.log")
    (folder / "videos" / "link.gif").symlink_to(folder / "secret.gif")
    answer = client.get(path.format(run=client.id_of("run")))
    assert answer.status == 404
    assert b"secret" not in answer.body
