"""What the page is told, over HTTP."""

from __future__ import annotations

import fcntl
import json
import re
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest
from folders import CONFIG, append, live, make_run, record

from weft.dashboard import prometheus

HOSTILE = "<script>alert(1)</script>\"'&\x1b[31m"


def ask(client, path, **query):
    return client.get(f"{path}?{urlencode(query, doseq=True)}")


def test_the_list_finds_runs_as_they_appear(client, root):
    assert client.get("/api/runs").json()["runs"] == []
    make_run(root, "first", summary={"exit": "finished", "return_mean": 42.0, "env_steps": 200})
    (root / "no-run").mkdir()
    client.server.library._scanned = 0.0
    (row,) = client.get("/api/runs").json()["runs"]
    assert (row["name"], row["state"], row["return_mean"]) == ("first", "finished", 42.0)
    assert row["plan"] == "env*2 | act | learn"


NOW = object()  # when the test runs, which may be long after it was collected


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ({}, "gone"),
        ({"live": NOW}, "training"),
        ({"live": live(at=time.time() - 60)}, "gone"),
        ({"live": live(training=False), "summary": {"exit": "interrupted"}}, "interrupted"),
        ({"summary": {"exit": "failed"}}, "failed"),
        ({"live": live(format=99)}, "gone"),
        ({"live": live(training=False), "summary": {"exit": ["no text"]}}, "gone"),
    ],
)
def test_the_state_of_a_run(client, root, files, state):
    if files.get("live") is NOW:
        files = {"live": live()}
    make_run(root, "run", **files)
    assert client.get("/api/runs").json()["runs"][0]["state"] == state


def test_a_run_whose_lock_is_held_is_starting(client, root):
    folder = make_run(root, "run")
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert client.get("/api/runs").json()["runs"][0]["state"] == "starting"
    assert client.get("/api/runs").json()["runs"][0]["state"] == "gone"


def test_curves_of_two_runs_share_a_grid(client, root):
    make_run(root, "a", rows=20)
    make_run(root, "b", rows=40, config={"seed": 2})
    ids = [client.id_of("a"), client.id_of("b")]
    found = ask(client, "/api/curves", run=ids, metric="return_mean", points=100).json()
    assert (found["low"], found["high"], found["rows"], found["read"]) == (10.0, 400.0, 60, 1.0)
    assert [s["label"] for s in found["series"]] == ["a", "b"]
    assert all(len(s["y"]) == len(found["x"]) == 200 for s in found["series"])
    assert [max(v for v in s["y"] if v is not None) for s in found["series"]] == [100.0, 200.0]
    near = ask(client, "/api/curves", run=ids, metric="return_mean", points=100, **{"from": 100, "to": 150}).json()
    assert [v for v in near["series"][0]["y"] if v is not None] == [50.0, 55.0, 60.0, 65.0, 70.0, 75.0]


def test_runs_that_differ_in_their_seed_alone_become_one_curve(client, root):
    for seed in (1, 2, 3):
        make_run(root, f"s{seed}", rows=10, config={"seed": seed, "id": f"{seed}"})
        append(root / f"s{seed}", [record(110, loss=float(seed))])
    make_run(root, "other", config={"algo": {"clip": 0.1}})
    ids = [client.id_of(name) for name in ("s1", "s2", "s3", "other")]
    found = ask(client, "/api/curves", run=ids, metric="loss", together=1, points=50).json()
    seeds, other = found["series"]
    assert seeds["seeds"] == [1, 2, 3]
    assert [[v for v in seeds[k] if v is not None] for k in ("y", "lowest", "highest")] == [[2.0], [1.0], [3.0]]
    assert other["lowest"] is None


def test_metrics_that_begin_alike(client, root):
    folder = make_run(root, "run", rows=0)
    append(folder, [record(10, **{"return_mean/0": 1.0, "return_mean/10": 3.0, "return_mean/2": 2.0})])
    found = ask(client, "/api/curves", run=client.id_of("run"), metric="return_mean/*").json()
    assert [s["label"] for s in found["series"]] == ["run 0", "run 2", "run 10"]


@pytest.mark.parametrize("query", [{"x": "pid"}, {"from": "abc"}, {"to": "inf"}, {"points": "nan"}])
def test_what_cannot_be_asked_is_refused_in_words(client, root, query):
    make_run(root, "run")
    answer = ask(client, "/api/curves", run=client.id_of("run"), **query)
    assert answer.status == 400
    assert "expected" in answer.json()["error"]


def test_the_picture_has_workers_streams_and_the_bottleneck(client, root):
    make_run(root, "run", live=live(restarts=2))
    found = ask(client, "/api/picture", run=client.id_of("run")).json()
    words = [shape["words"] for shape in found["scene"]["shapes"] if shape["kind"] == "text"]
    assert {"env ×2", "act", "learn", "env-0", "learn-0", "timestep", "unroll", "488 KiB/s"} <= set(words)
    assert "lag 0.5 · 25% full" in words
    assert "bottleneck" in words
    assert found["advice"].startswith("act-bound: ")
    assert found["restarts"] == 2
    bound = [shape["id"] for shape in found["scene"]["shapes"] if shape["cls"] == "group bound"]
    assert bound == ["g1"]
    wide = {s["id"]: s.get("stroke") for s in found["scene"]["shapes"] if s["kind"] == "path"}
    assert wide["e2"] > wide["e0"], "the stream that was measured is the wider one"


def test_a_worker_that_dies_and_comes_back_is_seen(client, root):
    folder = make_run(root, "run", live=live())
    run = client.id_of("run")
    for state, life in (("gone", 0), ("starting", 1), ("ready", 1)):
        now = live()
        now["workers"][1] |= {"state": state, "life": life}
        (folder / "live.json").write_text(json.dumps(now))
        found = ask(client, "/api/picture", run=run).json()
        assert {"name": "env-1", "state": state, "life": life} in found["workers"]
        shapes = {s["id"]: s for s in found["scene"]["shapes"]}
        assert shapes["g0.w1"]["cls"] == f"worker {state}"
        assert ("g0.wl1" in shapes) == (life == 1)


def test_damaged_and_hostile_folders_are_shown_and_not_obeyed(client, root):
    """Text of a run travels as JSON and is set as text by the page; numbers that are none do no harm."""
    plan = {"groups": [{"fragments": [HOSTILE], "replicas": "many"}, 7], "graph": {"streams": [1, {"name": None}]}}
    bad = live(workers=[{"name": HOSTILE, "stages": [HOSTILE], "busy": ["x"], "life": "y"}, 3], streams=[1], notes=[{}])
    bad["record"] = {"busy/" + HOSTILE: 0.9, "return_mean": "NaN", "env_steps": 1e999}
    folder = make_run(root, "run", config={"algorithm": HOSTILE, "seed": HOSTILE}, plan=plan, summary={"exit": HOSTILE})
    (folder / "live.json").write_text(json.dumps(bad).replace("Infinity", "1e999"))
    (folder / "lineage.json").write_text("{ damaged")
    (folder / "payoffs.json").write_text("[" * 100_000)
    run = client.id_of("run")
    for path in ("/api/run", "/api/picture", "/api/curves", "/api/compare"):
        answer = ask(client, path, run=run)
        assert answer.status == 200, path
        assert answer.headers["content-type"] == "application/json"
    problems = ask(client, "/api/run", run=run).json()["problems"]
    assert any(words.startswith("lineage.json cannot be read") for words in problems)
    assert client.get("/metrics").status == 200


def test_what_differs_in_configs(client, root):
    make_run(root, "a", config={"id": "1"})
    make_run(root, "b", config={"id": "2", "seed": 2, "algo": {"clip": 0.1, "new": True}})
    found = ask(client, "/api/compare", run=[client.id_of("a"), client.id_of("b")]).json()
    assert found["fields"] == [
        {"field": "algo.clip", "values": [0.2, 0.1]},
        {"field": "algo.new", "values": [None, True]},
        {"field": "seed", "values": [1, 2]},
    ]
    assert found["same"] == len(CONFIG) - 2


def test_a_log_is_given_from_where_it_was(client, root):
    folder = make_run(root, "run")
    path = folder / "logs" / "env-0.log"
    path.write_text("first\n")
    query = {"run": client.id_of("run"), "name": "env-0.log"}
    part = ask(client, "/api/log", **query).json()
    assert (part["text"], part["next"]) == ("first\n", 6)
    with path.open("a") as file:
        file.write("second\n")
    assert ask(client, "/api/log", **query, after=6).json()["text"] == "second\n"
    path.write_text("anew")  # cut: from the start again
    assert ask(client, "/api/log", **query, after=13).json()["text"] == "anew"


def test_logs_that_say_something_come_first(client, root):
    folder = make_run(root, "run")
    for name, content in (("act-0", ""), ("env-0", "hello"), ("env-1", ""), ("learn-0", "I learn")):
        (folder / "logs" / f"{name}.log").write_text(content)
    found = ask(client, "/api/run", run=client.id_of("run")).json()
    assert found["logs"] == ["env-0.log", "learn-0.log", "act-0.log", "env-1.log"]


def test_a_video_is_given_whole_and_in_parts(client, root):
    folder = make_run(root, "run")
    (folder / "videos" / "100.gif").write_bytes(b"GIF89a-and-more")
    path = f"/api/video?run={client.id_of('run')}&name=100.gif"
    whole = client.get(path)
    assert (whole.body, whole.headers["content-type"]) == (b"GIF89a-and-more", "image/gif")
    assert "sandbox" in whole.headers["content-security-policy"]
    part = client.get(path, Range="bytes=3-5")
    assert (part.status, part.body, part.headers["content-range"]) == (206, b"89a", "bytes 3-5/15")


def test_prometheus_reads_it(client, root):
    make_run(root, 'a"quote', live=live(restarts=3))
    text = client.get("/metrics").body.decode()
    lines = text.splitlines()
    assert 'weft_env_steps_total{run="a\\"quote"} 500.0' in lines
    assert 'weft_run_state{run="a\\"quote",state="training"} 1.0' in lines
    assert 'weft_busy_share{run="a\\"quote",stage="act"} 0.9' in lines
    assert 'weft_worker_up{run="a\\"quote",worker="env-1"} 1.0' in lines
    assert 'weft_worker_restarts_total{run="a\\"quote"} 3.0' in lines
    assert 'weft_stream_bytes_per_second{run="a\\"quote",stream="unroll"} 500000.0' in lines
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names)), "each metric is declared once, with all of its samples below"


def test_the_grafana_file_asks_for_metrics_that_there_are():
    page = json.loads((Path(__file__).parents[2] / "docs" / "grafana.json").read_text())
    asked = {name for panel in page["panels"] for t in panel["targets"] for name in re.findall(r"weft_\w+", t["expr"])}
    source = Path(prometheus.__file__).read_text()
    assert asked
    assert asked <= set(re.findall(r"weft_\w+", source))


def test_the_return_in_evaluation_has_its_interval(client, root):
    folder = make_run(root, "run", rows=10)
    figures = {"eval/return_mean": 50.0, "eval/return_low": 40.0, "eval/return_high": 65.0}
    append(folder, [record(200, **figures), record(400, **{name: value + 10 for name, value in figures.items()})])
    path = f"/api/curves?run={client.id_of('run')}&points=40&metric="
    found = client.get(path + "eval/return_mean").json()
    (series,) = found["series"]
    assert len(series["lowest"]) == len(series["highest"]) == len(series["y"]) == len(found["x"])
    drawn = [k for k, value in enumerate(series["y"]) if value is not None]
    assert [series["y"][k] for k in drawn] == [50.0, 60.0]
    assert [series["lowest"][k] for k in drawn] == [40.0, 50.0]
    assert [series["highest"][k] for k in drawn] == [65.0, 75.0]
    assert "lowest" not in client.get(path + "return_mean").json()["series"][0]
