"""Hosts that are not as they should be: what is said of them, and that nothing half begun is left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.core.errors import ConfigError
from weft.runtimes.cluster import cluster as cluster_module
from weft.runtimes.cluster import launcher as launcher_module
from weft.runtimes.cluster.cluster import Cluster
from weft.runtimes.cluster.fitness import WORDS, check_fit, fitness
from weft.runtimes.cluster.hosts import Offer, Share
from weft.runtimes.cluster.line import Invitation
from weft.runtimes.cluster.processes import ProcessHosts
from weft.runtimes.cluster.switchboard import Switchboard
from weft.runtimes.loop.train import train
from weft.runtimes.prepare.settings import RunConfig, Settings
from weft.runtimes.workers.layout.blueprint import Host

ON_FULL_DISKS = """
set -e
scratch=$1; shift
mount -t tmpfs none $scratch
{mounts}
cd /tmp
if mkdir full 2>&-; then exit 9; fi
exec "$@"
"""
"""What goes before an agent's command: to it every place for files is another disk, without room for one file more."""


@pytest.mark.parametrize("what", sorted(WORDS))
def test_another_version_of_anything_is_refused_and_both_are_named(what: str) -> None:
    ours = fitness()
    assert check_fit("far", ours, ours) is None
    with pytest.raises(ConfigError, match=rf"host far has {WORDS[what]} '9\.9', and here it is '{ours[what]}'"):
        check_fit("far", ours | {what: "9.9"}, ours)
    with pytest.raises(ConfigError, match=rf"host far has {WORDS[what]} 'of no version'"):
        check_fit("far", {name: text for name, text in ours.items() if name != what}, ours)


def test_of_a_run_that_was_refused_no_process_and_no_checkpoint_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "fitness", lambda: fitness() | {"python": "2.7"})
    provider = ProcessHosts(2)
    started = agents_of(provider)
    with pytest.raises(ConfigError, match=r"has Python '3\.\d+', and here it is '2\.7'"):
        trained(tmp_path, provider)
    assert len(started) == 2
    assert all(process.returncode is not None for process in started), "its agents are ended"
    assert list(tmp_path.rglob("*.weft")) == []
    monkeypatch.undo()
    assert trained(tmp_path, ProcessHosts(2)).summary["exit"] == "finished", "put right, the same command goes on"


def test_an_agent_with_the_keys_of_another_run_is_not_heard_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forging(ProcessHosts):
        def start(self, invitations: list[Invitation], shares: Mapping[int, Share], seconds: float = 0.0) -> None:
            other = Switchboard("127.0.0.1", lambda host, message: None)
            keys = other.invitation(1, "127.0.0.1").keys
            other.close()
            super().start([i._replace(keys=keys) if i.host == 1 else i for i in invitations], shares, seconds)

    monkeypatch.setattr(cluster_module, "REPORT_SECONDS", 4.0)
    monkeypatch.setattr(launcher_module, "CLOSE_SECONDS", 0.5)  # nor is it heard when the run is closed
    provider = Forging(2)
    started = agents_of(provider)
    with pytest.raises(ConfigError, match=r"these hosts did not report: host-1 \(no word of it\)"):
        trained(tmp_path, provider)
    assert all(process.returncode is not None for process in started)


def test_on_a_host_whose_disk_is_full_workers_run_without_logs_and_it_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if os.getuid() or shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"]).returncode:
        pytest.skip("a disk cannot be mounted here")
    full = ["unshare", "-m", "sh", "-c", on_full_disks(tmp_path), "sh", str(tmp_path)]
    offers = [Offer(Host(k, f"host-{k}", 1, slots=8), "127.0.0.1") for k in range(2)]
    run = trained(tmp_path, ProcessHosts(offers=offers, commands=[(), full]), quiet=False)
    assert run.summary["exit"] == "finished"
    assert run.summary["restarts"] == 0
    said = capfd.readouterr()
    text = " ".join((said.out + said.err).split())
    assert "host host-1: cannot open" in text
    assert "No space left on device. Worker act-0 runs without a log." in text
    assert {path.name for path in (tmp_path / "r" / "logs").iterdir()} == {"learn-0.log"}


def on_full_disks(root: Path) -> str:
    """The script: each disk is made below ``root``, on a disk without limits, and then put where it belongs.

    What an agent runs stays where it is, also in a clone below /tmp: its folders are put into the full disk.
    """
    needed = {Path(place).resolve() for place in (sys.prefix, sys.base_prefix, Path(weft.__file__).parents[1])}
    places = {Path("/tmp").resolve(), Path("/var/tmp").resolve(), root.resolve()}
    places = {place for place in places if not places & set(place.parents)}  # a disk has all that is below it
    mounts = []
    # The place that has ``root`` in it comes last: the others are still to be had there.
    for number, place in enumerate(sorted(places, key=lambda place: root.resolve().is_relative_to(place))):
        disk, inside = root / str(number), sorted(folder for folder in needed if folder.is_relative_to(place))
        below = {folder for one in inside for folder in (one, *one.parents) if place in folder.parents}
        mounts.append(f"mkdir {disk}; mount -t tmpfs -o size=4k,nr_inodes={1 + len(below)} none {disk}")
        mounts += [f"mkdir {disk / folder.relative_to(place)}" for folder in sorted(below)]
        mounts += [f"mount --bind {folder} {disk / folder.relative_to(place)}" for folder in inside]
        mounts.append(f"mount --rbind {disk} {place}")
    return ON_FULL_DISKS.format(mounts="\n".join(mounts))


def agents_of(provider: ProcessHosts) -> list[subprocess.Popen[bytes]]:
    """The processes that it starts, also when it has forgotten them."""
    started: list[subprocess.Popen[bytes]] = []
    start = provider.start

    def starting(*given: Any) -> None:
        start(*given)
        started.extend(provider.agents.values())

    provider.start = starting  # type: ignore[method-assign]
    return started


def trained(root: Path, provider: ProcessHosts, quiet: bool = True) -> weft.Run:
    """A run whose learn is on host-0 and all else on host-1."""
    config = RunConfig(
        "ppo",
        "CartPole-v1",
        plan="env*2@node:host-1 | act@node:host-1 | learn@node:host-0",
        steps=768,
        envs=8,
        seed=3,
        fields={"unroll": 16, "hidden": (8,)},
    )
    settings = Settings(root=root, run="r", on="processes:2", quiet=quiet, tensorboard=False)
    cluster = Cluster(provider)
    try:
        return train(config, settings, cluster=cluster)
    finally:
        cluster.close()
