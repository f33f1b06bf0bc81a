"""The dashboard for Grafana, asked of a real Prometheus while a run trains: no panel of it stays empty.

Slow, and needs Debian's prometheus; without it it says so.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import wait

NEEDS = "slow: needs prometheus: apt-get install prometheus"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("prometheus") is None, reason=NEEDS)]

DASHBOARD = json.loads((Path(__file__).parents[2] / "docs" / "grafana.json").read_text())
TARGETS = [(panel["title"], target) for panel in DASHBOARD["panels"] for target in panel["targets"]]
TOKEN = "a-token-for-prometheus"


@contextmanager
def process(command: list[str], **more: Any) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(command, text=True, **more)
    try:
        yield started
    finally:
        started.send_signal(signal.SIGINT)
        try:
            started.wait(60)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()
        if started.stdout is not None:
            started.stdout.close()


def ask(port: int, path: str, **query: str) -> Any:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}?{urllib.parse.urlencode(query)}") as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def test_every_panel_has_data_while_a_run_trains(tmp_path: Path) -> None:
    weft = [sys.executable, "-m", "weft"]
    train = [*weft, "train", "ppo", "CartPole-v1", "--plan", "env*2 | act | learn", "--steps", "100_000_000"]
    train += ["--eval-every", "20_000", "--run", "watched", "--root", str(tmp_path), "--quiet", "--no-tensorboard"]
    watch = [*weft, "watch", "--root", str(tmp_path), "--port", "0", "--token", TOKEN]
    with process(train), process(watch, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        target = urllib.parse.urlsplit(server.stdout.readline()).netloc
        config = {
            "scrape_configs": [
                {
                    "job_name": "weft",
                    "scrape_interval": "1s",
                    "authorization": {"credentials": TOKEN},
                    "static_configs": [{"targets": [target]}],
                }
            ]
        }
        (tmp_path / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/series"]
        with process([*command, f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]):
            match = {"match[]": "weft_run_info"}
            wait(lambda: ask(port, "/api/v1/label/run/values", **match) == ["watched"], 90, "run in Prometheus")
            for title, target in TARGETS:
                query = target["expr"].replace("$run", "watched")
                found = wait(lambda q=query: (ask(port, "/api/v1/query", query=q) or {}).get("result"), 60, title)
                for series in found:
                    assert series["metric"]["run"] == "watched"
                    assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= set(series["metric"]), title
                    float(series["value"][1])
