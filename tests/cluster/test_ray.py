"""Hosts from Ray: three nodes of one machine learn together; without Ray, or without a token, it is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from weft.core.errors import ConfigError
from weft.runtimes.cluster.ray_hosts import RayHosts

NODES = """
import json, os, subprocess, sys
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 3, "include_dashboard": False})
for number in range(2):
    cluster.add_node(num_cpus=3, resources={f"sim{number}": 1})
cluster.wait_for_nodes()
commands = json.loads(sys.argv[1].replace("ADDRESS", cluster.address))
codes = [subprocess.call([sys.executable, "-m", "weft", "train", *command]) for command in commands]
cluster.shutdown()
print(json.dumps(codes))
"""


def test_without_ray_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'weft\[ray\]'"):
        RayHosts(None)


def test_an_address_where_nothing_listens_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"on='127.0.0.1:1': nothing answers there"):
        RayHosts("127.0.0.1:1")


@pytest.mark.slow
def test_three_nodes_learn_together_and_leave_nothing(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    plan = "env*4 | act*2 | learn@node:sim1"
    asked = ["ppo", "CartPole-v1", "--plan", plan, "--on", "ADDRESS", "--steps", "20000", "--envs", "8"]
    asked += ["--root", str(tmp_path), "--run", "r", "--no-tensorboard"]
    never = ["ppo", "CartPole-v1", "--plan", "env*40 | act*2 | learn", "--on", "ADDRESS", "--envs", "80"]
    never += ["--root", str(tmp_path), "--run", "never"]
    codes = on_nodes([asked, [*asked, "--trust-network"], [*never, "--trust-network"]])
    assert codes[0] == 2, "without a token it is refused"
    assert codes[1] == 0
    assert codes[2] == 2, "more workers than the cluster has cores"
    assert not (tmp_path / "never").exists()
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    samples: dict[str, Any] = summary["samples"]
    assert summary["exit"] == "finished"
    assert samples["produced"] == samples["trained"] + sum(samples["dropped"].values()) + samples["in_flight"]


GROWING = """
import json, pathlib, subprocess, sys, time
from ray.cluster_utils import Cluster

root = pathlib.Path(sys.argv[1])
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
command = ["train", "ppo", "CartPole-v1", "--plan", "env*2 | act | learn", "--on", cluster.address, "--trust-network"]
command += ["--steps", "100000000", "--envs", "8", "--root", str(root), "--run", "r", "--no-tensorboard", "--json"]
run = subprocess.Popen([sys.executable, "-m", "weft", *command, "--grow", "env=1:8"], stdout=subprocess.PIPE)
began, seen = time.monotonic(), []

def wait(plan):
    while True:
        assert run.poll() is None and time.monotonic() - began < 240, (run.poll(), seen)
        try:
            now = json.loads((root / "r" / "plan.json").read_text())["expression"]
            if now == plan and (root / "r" / "metrics.jsonl").exists():
                seen.append([plan, round(time.monotonic() - began, 1)])
                return
        except (OSError, ValueError):
            pass
        time.sleep(0.05)

wait("env*2 | act | learn")
time.sleep(8)
joined = cluster.add_node(num_cpus=4)
wait("env*4 | act | learn")
asked = [subprocess.call([sys.executable, "-m", "weft", "scale", "r", count, "--root", str(root)]) for count in
         ("env=2", "env=4", "env=8")]
cluster.remove_node(joined, allow_graceful=False)
wait("env*2 | act | learn")
time.sleep(5)
run.send_signal(2)
out = run.communicate(timeout=60)[0]
cluster.shutdown()
print(json.dumps([seen, asked, run.returncode, json.loads(out)["samples"]]))
"""


@pytest.mark.slow
def test_a_run_grows_where_a_node_joins_and_shrinks_where_it_is_lost(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    ran = subprocess.run(
        [sys.executable, "-c", GROWING, str(tmp_path)], env=variables(), capture_output=True, text=True, timeout=400
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    seen, asked, code, samples = json.loads(ran.stdout.strip().splitlines()[-1])
    assert [plan for plan, _ in seen] == ["env*2 | act | learn", "env*4 | act | learn", "env*2 | act | learn"]
    assert asked == [0, 0, 2], "down, up again into what was reserved later, and beyond the cluster"
    assert code == 130
    assert samples["produced"] == samples["trained"] + sum(samples["dropped"].values()) + samples["in_flight"]


def variables() -> dict[str, str]:
    """Those of a user without a token."""
    found = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    found.pop("RAY_AUTH_MODE", None)
    return found


def on_nodes(commands: list[list[str]]) -> list[int]:
    """The exit codes of these, one after another, with a cluster of three nodes of this machine."""
    ran = subprocess.run(
        [sys.executable, "-c", NODES, json.dumps(commands)],
        env=variables(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    found: list[int] = json.loads(ran.stdout.strip().splitlines()[-1])
    return found
