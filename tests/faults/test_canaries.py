"""Nothing that Weft reads is unpickled: neither a file of a run, nor what comes through a socket or a link."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from canaries import Canary

from weft.runtimes.workers.control.link import Link, LinkClosed


@pytest.mark.slow
def test_a_canary_in_any_file_of_a_run_lives(training, tmp_path: Path) -> None:
    """``show``, ``checkpoints`` and ``eval`` say what is wrong, or find an older checkpoint that is right."""
    run = training("ppo", "weft:CartPole-v1", "--steps", "4096", "--envs", "4", "--checkpoint-seconds", "0")
    assert run.end() == 0
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "canaries.py"), str(tmp_path), "r"],
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    names = " ".join(told["codes"])
    assert all(name in names for name in ("config.json", "plan.json", "summary.json", "metrics.jsonl", ".weft"))
    assert not told["dead"]
    assert [name for name in told["looked_up"] if "mkdir" in name] == []
    assert {code for codes in told["codes"].values() for code in codes} <= {0, 1, 2}


def test_a_canary_in_a_link_lives(tmp_path: Path) -> None:
    """The launcher's link to a worker. Sockets of streams are in tests/streams/test_tcp_hostile.py."""
    canary = pickle.dumps(Canary(tmp_path / "dead"))
    for sent in (canary, len(canary).to_bytes(4, "little") + bytes(8) + canary):
        link, theirs = Link.pair()
        with theirs:
            theirs.sendall(sent)
            theirs.shutdown(1)
            with pytest.raises(LinkClosed):
                link.hear()
        link.close()
    assert list(tmp_path.iterdir()) == []
