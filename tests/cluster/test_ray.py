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


def on_nodes(commands: list[list[str]]) -> list[int]:
    """The exit codes of these, one after another, with a cluster of three nodes of this machine."""
    variables = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    variables.pop("RAY_AUTH_MODE", None)
    ran = subprocess.run(
        [sys.executable, "-c", NODES, json.dumps(commands)], env=variables, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    found: list[int] = json.loads(ran.stdout.strip().splitlines()[-1])
    return found
