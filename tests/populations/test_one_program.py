"""Members in one program: each is the run that it would be by itself; what cannot be varied there is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import weft
from weft.core.errors import ConfigError, RunError
from weft.populations.loop import PopulationLoop
from weft.services.run_folder import read_run

SMALL: dict[str, Any] = {"unroll": 16, "minibatches": 2, "epochs": 2, "hidden": (16,)}
ENV = "weft:CartPole-v1"
HOW: dict[str, Any] = {"quiet": True, "tensorboard": False, "envs": 8}
VARY = {"learning_rate": "1e-4..1e-2:log", "clip": [0.1, 0.3]}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> weft.Population:
    root = tmp_path_factory.mktemp("runs")
    return weft.sweep(weft.PPO(**SMALL), ENV, vary=VARY, members=3, steps=640, seed=5, root=root, run="s", **HOW)


def test_a_member_is_the_run_that_it_would_be_by_itself(swept: weft.Population, tmp_path: Path) -> None:
    """To 1e-4: in the program a value is an argument of 32 bits, and 1 - clip is rounded twice."""
    member = swept.members[2]
    algorithm = weft.PPO(**SMALL, **member.values)
    alone = weft.train(algorithm, ENV, steps=640, seed=7, root=tmp_path, run="alone", **HOW)
    trained = swept.load(2)
    assert trained.summary["seed"] == 7
    assert trained.summary["episodes"] == alone.summary["episodes"]
    assert trained.summary["return_mean"] == pytest.approx(alone.summary["return_mean"], rel=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), trained.params, alone.params)
    other = swept.load(1).params  # which is no run with these values
    with pytest.raises(AssertionError):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), other, alone.params)


def test_a_members_folder_goes_on_as_a_run(swept: weft.Population) -> None:
    member = swept.members[1]
    algorithm = weft.PPO(**SMALL, **member.values)
    on = weft.train(algorithm, ENV, steps=1_280, seed=6, root=swept.folder, run=member.folder.name, **HOW)
    assert on.summary["env_steps"] == 1_280


def test_the_best_member_is_what_the_populations_name_opens(swept: weft.Population) -> None:
    assert swept.best.return_mean == max(swept.returns)
    best = weft.load("s", root=swept.folder.parent)
    assert best.summary["params_sha256"] == swept.load().summary["params_sha256"]
    assert best.algorithm.config()["learning_rate"] == swept.best.values["learning_rate"]
    assert weft.evaluate(best, episodes=2).episodes == 2


def test_a_finished_population_is_not_trained_again(swept: weft.Population, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PopulationLoop, "run", None)
    how = {**HOW, "root": swept.folder.parent, "run": "s"}
    again = weft.sweep(weft.PPO(**SMALL), ENV, vary=VARY, members=3, steps=640, seed=5, **how)
    assert again.returns == swept.returns
    assert again.lineage == swept.lineage
    with pytest.raises(RunError, match=r"population\.members: 3 → 4"):
        weft.sweep(weft.PPO(**SMALL), ENV, vary=VARY, members=4, steps=640, seed=5, **how)
    with pytest.raises(RunError, match="another config"):
        weft.train(weft.PPO(**SMALL), ENV, steps=640, seed=5, **how)


def test_an_interrupted_population_goes_on_to_the_same_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {"vary": VARY, "members": 4, "steps": 1_280, "every": 256, "root": tmp_path, **HOW}
    whole = weft.pbt(weft.PPO(**SMALL), ENV, run="whole", **asked)
    assert whole.summary["copies"] > 0
    assert [round_.env_steps for round_ in whole.lineage.rounds] == [0, 256, 512, 768, 1_024, 1_280]

    ticks = PopulationLoop._tick

    def interrupted(loop: PopulationLoop, telemetry: Any) -> None:
        ticks(loop, telemetry)
        if loop._done == 3:
            loop.interrupt.came(2)

    with monkeypatch.context() as patched:
        patched.setattr(PopulationLoop, "_tick", interrupted)
        half = weft.pbt(weft.PPO(**SMALL), ENV, run="half", **asked)
    assert half.summary["exit"] == "interrupted"
    assert half.load().summary["exit"] == "interrupted"  # what is there can be played
    end = weft.pbt(weft.PPO(**SMALL), ENV, run="half", **asked)
    assert end.summary["exit"] == "finished"
    assert end.lineage == whole.lineage
    digests = [[p.load(k).summary["params_sha256"] for k in range(4)] for p in (end, whole)]
    assert digests[0] == digests[1]


def test_halving_trains_fewer_and_fewer(tmp_path: Path) -> None:
    vary = {"learning_rate": "1e-4..1e-2:log"}
    found = weft.sweep(
        weft.PPO(**SMALL), ENV, vary=vary, members=4, how="halving", steps=1_024, root=tmp_path, run="h", **HOW
    )
    assert sorted(member.env_steps for member in found.members) == [256, 256, 512, 1_024]
    assert [m.exit for m in found.members].count("stopped") == 3
    assert found.best.exit == "finished"
    assert {read_run(found.folder, m.folder.name).summary()["exit"] for m in found.members} == {"stopped", "finished"}  # type: ignore[index]


def test_a_member_that_diverges_spoils_no_other(tmp_path: Path) -> None:
    """A huge rate makes params that are not finite: that member fails, and the other is trained to its end."""
    vary = {"learning_rate": [1e-3, 1e38]}
    asked: dict[str, Any] = {"vary": vary, "members": 4, "steps": 1_024, "root": tmp_path, "seed": 1, **HOW}
    found = weft.sweep(weft.PPO(**SMALL), ENV, run="bad", how="grid", **asked)
    exits = {member.values["learning_rate"]: member.exit for member in found.members}
    assert exits == {1e-3: "finished", 1e38: "failed"}
    assert found.best.values == {"learning_rate": 1e-3}


REFUSED = [
    ({"vary": {"unroll": "8..32"}}, r"unroll: it changes how large a batch.*learning_rate.*--apart"),
    ({"vary": {"reward_scale": [0.5, 2.0]}}, r"reward_scale: it sets a shape, or code branches on it"),
    ({"vary": {"deviation": "0.5..2"}}, r"deviation: with these settings nothing reads it"),
    ({"vary": {"learning_rate": "-1..1"}}, r"learning_rate must be above 0"),
    ({"vary": {"clip": "0.1..0.3"}, "clip": 0.2}, r"clip is both set, to 0.2, and varied"),
    ({"vary": {"clip": "0.1..0.3"}, "members": 1}, r"members must be at least 2"),
    ({"vary": {"clip": "0.1..0.3"}, "seeds": 2}, r"seeds=2: members already have seeds"),
    ({"vary": {"clip": "0.1..0.3"}, "plan": "env | act | learn"}, r"Use the plan 'inline'"),
    ({"vary": {"clip": "0.1..0.3"}, "how": "best"}, r"unknown way to choose values 'best'"),
]


AT_LENGTH = {"unroll", "reward_scale"}  # fields for which the program is traced with each of them


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        pytest.param(asked, words, id=words[:24], marks=[pytest.mark.slow] if AT_LENGTH & set(asked["vary"]) else [])
        for asked, words in REFUSED
    ],
)
def test_what_cannot_be_is_refused_before_there_is_a_folder(asked: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        weft.sweep("ppo", ENV, steps=1_024, root=tmp_path, **{**HOW, **asked})
    assert not list(tmp_path.iterdir())


def test_teams_have_no_one_return_to_rank_members_by(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"several policies here \(adversary, agent\).*ranks its members by one"):
        weft.sweep("ppo", "weft:Tag-v0", vary={"clip": [0.1, 0.3]}, members=2, steps=3_200, root=tmp_path, **HOW)
    assert not list(tmp_path.iterdir())


def test_pbt_that_would_never_copy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing would ever be copied"):
        weft.pbt("ppo", ENV, vary=VARY, steps=1_024, every=2_000, root=tmp_path, **HOW)


def test_members_of_a_group_of_agents_are_one_program_too(tmp_path: Path) -> None:
    """IPPO: the algorithm that is written for one agent, for each of three."""
    env, how = "weft:Spread-v0", {**HOW, "steps": 400, "root": tmp_path}
    small = {"unroll": 25, "minibatches": 2, "epochs": 1, "hidden": (8,)}
    found = weft.sweep(weft.PPO(**small), env, vary={"clip": [0.1, 0.3]}, members=2, how="grid", run="s", **how)
    assert json.loads((found.folder / "config.json").read_text())["population"]["together"] is True
    member = found.members[1]
    alone = weft.train(weft.PPO(**small, **member.values), env, run="alone", **how | {"seed": 1})
    trained = found.load(1)
    assert trained.summary["episodes"] == alone.summary["episodes"]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), trained.params, alone.params)


@pytest.mark.slow  # it traces the program for each field
def test_what_a_group_cannot_vary_is_told_with_what_it_can(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unroll: it changes how large.*Fields of PPO that can be varied.*clip"):
        weft.sweep("ppo", "weft:Spread-v0", vary={"unroll": [25, 50]}, steps=400, root=tmp_path, **HOW)
