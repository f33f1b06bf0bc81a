"""``weft doctor --on``: every host is asked, and all that is unfit is told, not only the first thing."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Sequence

import pytest

from weft.cli import main as command_line
from weft.cli.doctor_of_hosts import table
from weft.runtimes.cluster import examining
from weft.runtimes.cluster.checkup import Finding, Told, examine, judge, of_ports, reach
from weft.runtimes.cluster.cluster import Cluster
from weft.runtimes.cluster.examining import examined
from weft.runtimes.cluster.fitness import fitness
from weft.runtimes.cluster.hosts import Offer
from weft.runtimes.cluster.processes import ProcessHosts
from weft.runtimes.workers.layout.blueprint import Host

FIT = {"port": 5, "port_trouble": "", "files": 4096, "shared": 1 << 30, "disk": 1 << 30, "logs": "/tmp", "now": 0.0}


def unfit(found: Sequence[Finding]) -> set[tuple[str, str]]:
    return {(one.host, one.what) for one in found if one.bad}


def test_hosts_that_are_fit(capfd: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["doctor", "--on", "processes:3"]) == 0
    out = capfd.readouterr().out
    assert out.startswith("host    Weft")
    assert out.count("reaches all") == 3
    assert out.endswith("Nothing is unfit on any of 3 hosts.\n")


def test_all_that_is_unfit_is_told_of_every_host(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(examining, "fitness", lambda: fitness() | {"jax": "0.0.1", "sources": "beef"})
    assert command_line.main(["doctor", "--on", "processes:2", "--json"]) == 1
    rows = json.loads(capfd.readouterr().out)
    bad = {(row["host"], row["what"]): row["text"] for row in rows if row["level"] == "bad"}
    assert bad.keys() == {(host, what) for host in ("host-0", "host-1") for what in ("JAX", "sources")}
    assert bad["host-1", "sources"] == f"{fitness()['sources']}, here beef"


def test_agents_with_few_files_without_an_address_and_that_do_not_come() -> None:
    """Real agents: one may open few files, one is told an address that its machine does not have, one dies."""
    offers = [Offer(Host(k, f"h{k}", 1), "192.0.2.1" if k == 1 else "127.0.0.1") for k in range(3)]
    few, dead = [shutil.which("prlimit") or "prlimit", "--nofile=512:512"], [shutil.which("false") or "false"]
    provider = ProcessHosts(offers=offers, commands=[few, [], dead])
    cluster = Cluster(provider)
    try:
        found = examined(cluster)
    finally:
        cluster.close()
    assert unfit(found) == {("h0", "open files"), ("h1", "ports"), ("h2", "agent")}
    assert next(one for one in found if one.host == "h2").text == "its agent left with exit code 1"


def test_what_is_judged() -> None:
    ours = fitness()
    assert unfit(judge("a", ours, ours, Told(FIT, -0.9, 0.1))) == set()
    assert unfit(judge("a", ours, ours, Told(FIT, -2.0, 0.1))) == {("a", "clock")}
    assert unfit(judge("a", ours, ours, Told(FIT, 2.0, 1.5))) == set()  # the answer came too late to tell
    little = FIT | {"files": 1000, "shared": 1 << 20, "disk": 1 << 20}
    assert unfit(judge("a", ours, ours, Told(little, 0, 0))) == {
        ("a", "open files"),
        ("a", "shared memory"),
        ("a", "disk"),
    }
    assert unfit(judge("a", ours | {"weft": "9"}, ours, None)) == {("a", "Weft"), ("a", "agent")}


def test_ports_that_others_do_not_reach() -> None:
    facts, port = examine("127.0.0.1")
    assert port is not None
    with port, socket.create_server(("127.0.0.1", 0)) as other:
        closed = other.getsockname()[1]
        other.close()
        wrong = reach({"there": ["127.0.0.1", facts["port"]], "shut": ["127.0.0.1", closed]})
    assert wrong.keys() == {"shut"}
    assert of_ports("a", Told(FIT, 0, 0), {}).bad is False
    told = of_ports("a", Told(FIT, 0, 0), wrong)
    assert told.bad
    assert told.text.startswith("shut: ")


def test_the_table_has_a_row_for_each_host() -> None:
    text = table([Finding("a", "clock", "x" * 40, True), Finding("b", "clock", "fine"), Finding("b", "ports", "all")])
    assert text.splitlines() == [
        "host  clock                       ports",
        f"a     ! {'x' * 23}…",
        "b     fine                        all",
    ]
