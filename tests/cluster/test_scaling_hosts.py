"""Runs on several hosts that are scaled, and that grow by themselves where hosts join or are lost."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.core.errors import ConfigError
from weft.runtimes.cluster.cluster import Cluster
from weft.runtimes.cluster.hosts import Offer, Share
from weft.runtimes.cluster.processes import ProcessHosts
from weft.runtimes.loop import growing
from weft.runtimes.loop.train import train
from weft.runtimes.prepare.config import RunConfig, Settings
from weft.runtimes.workers.layout.blueprint import Host
from weft.services.scale_request import ScaleRequest, post
from weft.telemetry.stopping import Hooks

pytestmark = pytest.mark.slow

FIELDS: dict[str, Any] = {"unroll": 16, "hidden": (8,)}


class Joining(ProcessHosts):
    """Three hosts of some cores each, of which ``there`` have joined; ``taken`` says that Ray would give no more."""

    def __init__(self, there: int, cores: int = 2) -> None:
        super().__init__(3)
        made = [Offer(Host(k, f"host-{k}", cores), "127.0.0.1") for k in range(3)]
        self._offers, self.there, self.taken = made, there, False
        self.extended: list[dict[int, int]] = []

    def offers(self) -> list[Offer]:
        return self._offers[: self.there]

    def extend(self, shares: Mapping[int, Share], seconds: float) -> None:
        if self.taken:
            raise ConfigError("others use it")
        self.extended.append({host: share.cores for host, share in shares.items()})


def plan(root: Path) -> str:
    return str(json.loads((root / "r" / "plan.json").read_text())["expression"])


def run(root: Path, provider: Joining, on_record: Any, grow: str = "", steps: int = 400_000) -> weft.Run:
    """A run that ends once ``on_record`` gives True."""
    config = RunConfig("ppo", "CartPole-v1", plan="env*2 | act | learn", envs=8, steps=steps, fields=FIELDS)
    settings = Settings(root=root, run="r", quiet=True, tensorboard=False, grow=grow)
    hooks = Hooks(None, lambda record: "seen enough" if on_record(record) else "")
    cluster = Cluster(provider)
    try:
        return train(config, settings, cluster=cluster, hooks=hooks)
    finally:
        cluster.close()
        provider.close()


def host_of(provider: Joining, worker: str) -> int:
    """The agent that has a worker."""
    for agent in provider.agents.values():
        for child in Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split():
            if Path(os.readlink(f"/proc/{child}/fd/1")).stem == worker:
                return agent.pid
    raise AssertionError(f"no host has {worker}")


def balanced(samples: dict[str, Any]) -> bool:
    return bool(samples["produced"] == samples["trained"] + sum(samples["dropped"].values()) + samples["in_flight"])


def test_a_run_grows_where_a_host_joins_and_shrinks_where_it_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing, "STEADY_SECONDS", 1.0)
    provider, seen = Joining(2), list[str]()

    def look(record: dict[str, Any]) -> bool:
        now = plan(tmp_path)
        if not seen or seen[-1] != now:
            seen.append(now)
            if len(seen) == 1:
                provider.there = 3
            if len(seen) == 2:
                os.kill(provider.agents[2].pid, signal.SIGKILL)
        return len(seen) == 3

    ended = run(tmp_path, provider, look, grow="env=1:4")
    assert seen == ["env*2 | act | learn", "env*4 | act | learn", "env*2 | act | learn"]
    assert ended.summary["exit"] == "stopped"
    assert balanced(ended.summary["samples"])


def test_what_the_cluster_does_not_give_is_refused_and_the_run_goes_on(tmp_path: Path) -> None:
    provider, records = Joining(3), list[int]()

    def look(record: dict[str, Any]) -> bool:
        records.append(record["learn_steps"])
        if len(records) == 2:
            provider.taken = True
            post(tmp_path / "r", ScaleRequest(os.getpid(), {"env": 4}))
        if len(records) == 6:
            post(tmp_path / "r", ScaleRequest(os.getpid(), {"env": 8}))  # ten workers on six cores
        if len(records) == 10:
            provider.taken = False
            post(tmp_path / "r", ScaleRequest(os.getpid(), {"env": 4}))
        return plan(tmp_path) != "env*2 | act | learn"

    ended = run(tmp_path, provider, look)
    assert provider.extended, "what hosts with agents need more is reserved before anything is ended"
    assert ended.summary["restarts"] == 0
    assert balanced(ended.summary["samples"])
    notes = [note["text"] for note in json.loads((tmp_path / "r" / "live.json").read_text())["notes"]]
    refused = [text for text in notes if text.startswith("not scaled: ")]
    assert len(refused) == 2
    assert "others use it" in refused[0]
    assert "the plan is 10 workers, a core each, and the cluster has 6" in refused[1]


@pytest.mark.parametrize("worker", ["act-0", "learn-0"])
def test_where_what_is_left_has_no_room_the_run_has_fewer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worker: str
) -> None:
    """Act goes on beside environments without a home, learn cannot: either way there are fewer in the end."""
    monkeypatch.setattr(growing, "STEADY_SECONDS", 1.0)
    provider, seen = Joining(2, cores=4), list[str]()

    def look(record: dict[str, Any]) -> bool:
        now = plan(tmp_path)
        if not seen or seen[-1] != now:
            seen.append(now)
            if len(seen) == 2:
                os.kill(host_of(provider, worker), signal.SIGKILL)
        return len(seen) == 3

    ended = run(tmp_path, provider, look, grow="env=1:4")
    assert seen == ["env*2 | act | learn", "env*4 | act | learn", "env*2 | act | learn"]
    assert ended.summary["exit"] == "stopped"
    assert balanced(ended.summary["samples"])
