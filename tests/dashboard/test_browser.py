"""The page in a real browser: a run with workers is watched, one of them killed, and two runs are laid over each other.

Slow, and needs Debian's chromium; without it they say so. What the page is told is tested without a browser beside.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from browser import Browser, missing, wait
from folders import make_run

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=f"slow: {missing()}")]


@contextmanager
def training(root: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "weft", "train", "ppo", "CartPole-v1", "--plan", "env*2 | act | learn"]
    command += ["--steps", "100_000_000", "--run", name, "--root", str(root), "--quiet", "--no-tensorboard"]
    run = subprocess.Popen(command)
    try:
        yield run
    finally:
        run.send_signal(signal.SIGINT)
        try:
            run.wait(60)
        except subprocess.TimeoutExpired:
            run.kill()
            run.wait()


def worker(root: Path, run: str, name: str) -> dict[str, object]:
    try:
        saved = json.loads((root / run / "live.json").read_text())
    except OSError:
        return {}
    return next((w for w in saved["workers"] if w["name"] == name), {})


def steps(browser: Browser) -> float:
    return float(browser.run("return window.page.runs.find((r) => r.id === window.page.run)?.env_steps ?? 0"))


def moving(browser: Browser) -> int:
    return int(browser.run("return document.getAnimations().length"))


def test_a_run_is_watched_a_worker_dies_and_comes_back(client, root):
    with training(root, "watched"), Browser() as browser:
        browser.open(client.server.url)
        wait(lambda: browser.text("#state") == "training", 120, "run that trains")
        wait(lambda: "env ×2" in browser.text(".flowchart"), 10, "dataflow")
        before = wait(lambda: steps(browser), 60, "steps")
        wait(lambda: steps(browser) > before, 30, "more steps")
        wait(lambda: "KiB/s" in browser.text(".flowchart"), 30, "bytes a second on a stream")
        assert moving(browser) == 0  # nobody is there
        browser.run("document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'Shift', bubbles: true }))")
        wait(lambda: moving(browser) > 0, 5, "movement")
        victim = wait(lambda: worker(root, "watched", "env-1").get("pid"), 20, "pid of a worker")
        os.kill(int(str(victim)), signal.SIGKILL)
        wait(lambda: "worker env-1 was killed by SIGKILL" in browser.text("#notes"), 20, "word of its death")
        wait(lambda: "life 2" in browser.text(".flowchart"), 60, "sight of its next life")
        wait(lambda: worker(root, "watched", "env-1").get("state") == "ready", 60, "worker that is back")
        green = "return document.getElementById('tiles').textContent.includes('Restarts1')"
        wait(lambda: browser.run(green), 20, "count of restarts")
        after = steps(browser)
        wait(lambda: steps(browser) > after, 30, "steps after that")
        assert browser.errors() == []


def test_two_runs_are_laid_over_each_other(client, root):
    make_run(root, "first", rows=30)
    make_run(root, "second", rows=60, config={"seed": 2})
    ids = [client.id_of(name) for name in ("first", "second")]
    with Browser() as browser:
        browser.open(client.server.url)
        browser.click(f"[data-run='{ids[0]}'] button")
        browser.click(f"[data-run='{ids[1]}'] input")
        browser.click("#tab-curves")
        shown = "return document.querySelector(\"[data-metric='return_mean'] canvas\") !== null"
        wait(lambda: browser.run(shown), 10, "chart")
        assert "first" in browser.text(".keys")
        assert "second" in browser.text(".keys")
        series = "return window.page.view.charts.get('return_mean').columns.map((s) => s.label)"
        wait(lambda: sorted(browser.run(series) or []) == ["first", "second"], 10, "both curves")
        browser.run("window.page.zoomTo(100, 200)")
        zoomed = "const d = window.page.view.charts.get('return_mean').data; return d.low === 100 && d.high === 200"
        wait(lambda: browser.run(zoomed), 10, "zoom")
        browser.click("#tab-compare")
        wait(lambda: "seed" in browser.text("#view tbody"), 10, "what differs")
        assert browser.errors() == []


def test_hostile_text_stays_text(client, root):
    hostile = "<img src=x onerror='window.hurt=1'><script>window.hurt=1</script>"
    folder = make_run(
        root, "run", config={"algorithm": hostile, "plan": hostile}, summary={"exit": "failed", "error": hostile}
    )
    (folder / "logs" / "env-0.log").write_text(hostile)
    (folder / "lineage.json").write_text(
        json.dumps({"fields": [hostile], "rounds": [{"env_steps": 0, "members": []}] * 3})
    )
    with Browser() as browser:
        browser.open(client.server.url)
        for tab in ("dataflow", "curves", "compare", "logs", "pictures", "details"):
            browser.click(f"#tab-{tab}")
            wait(lambda: browser.text("#view"), 10, tab)
        browser.click("#tab-logs")
        wait(lambda: "<script>" in browser.text("pre.log"), 10, "log as text")
        assert "<img" in browser.text("#about")
        assert browser.run("return window.hurt ?? null") is None


@pytest.mark.parametrize("width", [1280, 390])
def test_no_view_is_wider_than_its_window(client, root, width):
    make_run(root, "run", rows=30)
    with Browser(width, 800) as browser:
        browser.open(client.server.url)
        for tab in ("dataflow", "curves", "compare", "logs", "pictures", "details"):
            browser.click(f"#tab-{tab}")
            wait(lambda: browser.text("#view"), 10, tab)
            assert browser.run("return document.documentElement.scrollWidth") <= width, tab


def test_the_page_says_when_the_server_is_gone(client, root):
    make_run(root, "run")
    with Browser() as browser:
        browser.open(client.server.url)
        wait(lambda: browser.text("#link span") == "live", 10, "connection")
        threading.Thread(target=client.server.close).start()
        wait(lambda: browser.text("#link span") == "no connection", 20, "word that it is gone")
