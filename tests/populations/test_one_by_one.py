"""Members one after another: host environments, and fields that set shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import weft
from weft.core.errors import ConfigError
from weft.populations.loop import PopulationLoop

SMALL: dict[str, Any] = {"unroll": 16, "minibatches": 2, "epochs": 1, "hidden": (16,)}
HOW: dict[str, Any] = {"quiet": True, "tensorboard": False, "envs": 4}


def test_a_host_environment_with_pbt_interrupted_and_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {
        "vary": {"learning_rate": "1e-4..1e-2:log"},
        "members": 2,
        "steps": 1_024,
        "every": 512,
        "root": tmp_path,
        "run": "host",
        **HOW,
    }
    decide = PopulationLoop._decide

    def interrupted(loop: PopulationLoop, telemetry: Any) -> None:
        decide(loop, telemetry)
        loop.interrupt.came(2)

    with monkeypatch.context() as patched:
        patched.setattr(PopulationLoop, "_decide", interrupted)
        half = weft.pbt(weft.PPO(**SMALL), "CartPole-v1", **asked)
    assert half.summary["exit"] == "interrupted"
    assert not half.summary["together"]
    (copied,) = [entry for entry in half.lineage.rounds[1].members if entry.copied is not None]
    source = half.load(copied.copied)
    # One more dispatch was made before the interrupt was seen, of the first member alone.
    assert half.members[1].env_steps == 512
    assert source.algorithm.config()["learning_rate"] != copied.values["learning_rate"]

    end = weft.pbt(weft.PPO(**SMALL), "CartPole-v1", **asked)
    assert end.summary["exit"] == "finished"
    assert [member.env_steps for member in end.members] == [1_024, 1_024]
    assert end.lineage.rounds[:2] == half.lineage.rounds
    assert weft.evaluate(end.load(), episodes=1).episodes == 1


def test_apart_any_field_may_be_varied(tmp_path: Path) -> None:
    vary = {"unroll": [8, 16], "activation": ["relu", "elu"]}
    asked: dict[str, Any] = {"vary": vary, "members": 2, "apart": True, "steps": 256, "root": tmp_path, "seed": 2}
    found = weft.sweep(weft.PPO(**SMALL), "weft:CartPole-v1", **asked, **HOW)
    for k, member in enumerate(found.members):
        run = found.load(k)
        assert {name: getattr(run.algorithm, name) for name in vary} == member.values
        assert run.summary["learn_steps"] == 256 // (4 * member.values["unroll"])
    assert len({member.values["unroll"] for member in found.members}) == 2


def test_members_that_copy_each_other_must_have_one_shape(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="hidden: it sets a shape"):
        weft.pbt(
            weft.PPO(**SMALL), "CartPole-v1", vary={"hidden": [(8,), (16,)]}, steps=512, every=256, root=tmp_path, **HOW
        )
