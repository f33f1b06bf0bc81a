"""A run's folder is safe to look at: what it names is imported only where this user made it, or says --trust."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import SMALL, Weft

import weft as package
from weft.cli.main import main
from weft.core.errors import ConfigError, RunError, Untrusted

EVIL = "open('ran', 'w').close()\ndef make(**options):\n    raise AssertionError\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with built-in names."""
    root = tmp_path_factory.mktemp("trained")
    assert main(["train", "ppo", "weft:CartPole-v1", *SMALL, "--run", "a", "--root", str(root), "--quiet"]) == 0
    return root / "a"


@pytest.fixture
def ran(trained: Path, here: Path) -> Path:
    """A copy of it, under ``runs``."""
    return Path(shutil.copytree(trained, here / "runs" / "a"))


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


HOSTILE: dict[str, Callable[[Path], None]] = {
    "a function of the system": lambda folder: edit(
        folder / "config.json", environment="os:system", env_options={"command": "touch ran"}
    ),
    "a module that is there": lambda folder: edit(folder / "config.json", environment="evil:make"),
    "an id of a module": lambda folder: edit(folder / "config.json", environment="evil:Some-v0"),
    "an algorithm": lambda folder: edit(folder / "config.json", algorithm="evil:make"),
    "a recipe of an environment": lambda folder: edit(
        folder / "origin.json",
        by_name=False,
        environment={"partial": [{"name": "os:system"}, ["touch ran"], {"dict": {}}]},
    ),
    "a recipe of an object": lambda folder: edit(
        folder / "origin.json", objects={"network": {"make": "subprocess:Popen", "fields": {"args": "touch ran"}}}
    ),
    "a recipe of the algorithm": lambda folder: (
        edit(folder / "config.json", algorithm="weft:PPO"),
        edit(folder / "origin.json", algorithm={"make": "os:system", "fields": {"command": "touch ran"}}),
    )[0],
    "a script": lambda folder: edit(
        folder / "origin.json", script=str(folder.parents[1] / "evil.py"), environment={"name": "__weft_main__:make"}
    ),
    "a session": lambda folder: edit(folder / "origin.json", environment={"name": "__main__:main"}),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_folder_runs_nothing(what: str, weft: Weft, ran: Path, here: Path) -> None:
    (here / "evil.py").write_text(EVIL)
    HOSTILE[what](ran)
    shown = weft("show", "a")
    assert (shown.code, shown.err) == (0, "")
    ended = weft("eval", "a", "--episodes", "1")
    assert (ended.code, ended.out) == (1, "")
    assert "weft: error: run 'a' was not made by you on this machine, or its config.json was changed since" in ended.err
    assert "this code would be imported and run:\n  " in ended.err
    assert "add --trust" in ended.err
    with pytest.raises(Untrusted, match="trust=True"):
        package.load("a")
    with pytest.raises(Untrusted, match="trust=True"):
        package.evaluate("a")
    assert not (here / "ran").exists()
    assert "evil" not in sys.modules


@pytest.mark.parametrize("what", [w for w in HOSTILE if "module" not in w and w not in ("an algorithm", "a script")])
def test_even_trusted_it_calls_no_function_of_the_system(what: str, weft: Weft, ran: Path, here: Path) -> None:
    HOSTILE[what](ran)
    assert weft("eval", "a", "--episodes", "1", "--trust").code != 0
    with pytest.raises((ConfigError, RunError)):
        package.load("a", trust=True)
    assert not (here / "ran").exists()


def test_show_imports_nothing_even_of_what_is_trusted(train: Weft, here: Path) -> None:
    """In a process of its own, whose imports say so; and modules of the working directory stand behind no library's."""
    assert train("mine:Walk", "--run", "walk").code == 0
    code = (
        "import sys; from weft.cli.main import main; code = main(['show', 'walk']); print('mine' in sys.modules, code)"
    )
    ended = subprocess.run([sys.executable, "-P", "-c", code], cwd=here, capture_output=True, text=True, check=True)
    assert "env (host)" in ended.stdout
    assert ended.stdout.endswith("False 0\n")


def test_what_this_user_made_opens_at_once_and_a_copy_elsewhere_does_not(
    train: Weft, weft: Weft, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train("mine:Walk", "--run", "walk").code == 0
    assert weft("eval", "walk", "--episodes", "1").code == 0
    assert package.load("walk").source is not None
    (here / "runs" / "walk").rename(here / "runs" / "moved")
    assert weft("eval", "moved", "--episodes", "1").code == 0
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "somebody else"))
    ended = weft("eval", "moved", "--episodes", "1")
    assert ended.code == 1
    assert f"  the module 'mine' ('{here}/mine.py')\n" in ended.err
    assert "environment 'mine:Walk', algorithm 'ppo'" in ended.err
    assert weft("eval", "moved", "--episodes", "1", "--trust").code == 0
    assert package.evaluate("moved", episodes=1, trust=True).episodes == 1


def test_another_module_of_the_same_name_is_not_what_was_made(
    train: Weft, weft: Weft, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark came back with the folder, and beside it lies somebody else's mine.py."""
    assert train("mine:Walk", "--run", "walk").code == 0
    sys.modules.pop("mine")
    sent = here / "sent"
    sent.mkdir()
    (here / "runs").rename(sent / "runs")
    (sent / "mine.py").write_text(EVIL)
    monkeypatch.chdir(sent)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(here))])
    ended = weft("eval", "walk")
    assert ended.code == 1
    assert f"was made with the module 'mine' ('{here}/mine.py'), and there is another of that name now" in ended.err
    (sent / "mine.py").unlink()
    ended = weft("eval", "walk")
    assert ended.code == 1
    assert f"needs the module 'mine', which cannot be found from here. It was '{here}/mine.py'" in ended.err
    assert not (sent / "ran").exists()


def test_only_the_command_line_decides_what_train_imports(train: Weft, ran: Path, here: Path) -> None:
    (here / "evil.py").write_text(EVIL)
    edit(ran / "config.json", environment="evil:make")
    edit(ran / "origin.json", environment={"name": "evil:make"}, script=str(here / "evil.py"))
    ended = train("weft:CartPole-v1", "--run", "a")
    assert ended.code == 1
    assert 'environment: "evil:make" → "weft:CartPole-v1"' in ended.err
    edit(ran / "config.json", environment="weft:CartPole-v1")
    assert train("weft:CartPole-v1", "--run", "a", "--steps", "96").code == 0
    assert json.loads((ran / "origin.json").read_text())["environment"] is None, "what the folder said is gone"
    assert not (here / "ran").exists()


def test_a_policy_alone_needs_no_trust(weft: Weft, ran: Path, here: Path) -> None:
    edit(ran / "config.json", environment="os:system", env_options={"command": "touch ran"})
    run = package.load("a", policy_only=True)
    assert run.policy([0.0, 0.1, 0.0, -0.1]) in (0, 1)
    with pytest.raises(RunError, match="was opened with policy_only=True"):
        package.evaluate(run, episodes=1)
    edit(ran / "origin.json", spec={"make": "subprocess:Popen", "fields": {"args": "touch ran"}})
    with pytest.raises(ConfigError, match="names 'subprocess:Popen', which must not be made"):
        package.load("a", policy_only=True)
    assert not (here / "ran").exists()


def test_damaged_folders_are_said_to_be(weft: Weft, ran: Path) -> None:
    for file, changes in {
        "config.json": {"algo": 3, "environment": None, "env_options": []},
        "origin.json": {"modules": 3, "objects": [], "script": 4, "mark": 5},
        "plan.json": {"graph": {}, "groups": 3},
    }.items():
        whole = (ran / file).read_text()
        for name, value in changes.items():
            edit(ran / file, **{name: value})
            ended = weft("show" if file == "plan.json" else "eval", "a")
            assert ended.code in (1, 2), (file, name, ended)
            assert "weft: error: " in ended.err
            assert "bug in Weft" not in ended.err
            assert "Traceback" not in ended.err
            (ran / file).write_text(whole)


def test_a_drawing_has_no_characters_that_a_terminal_obeys(weft: Weft, ran: Path) -> None:
    plan = json.loads((ran / "plan.json").read_text())
    plan["graph"]["streams"][0]["arrays"][0][0] = "\x1b]0;title\x07"
    (ran / "plan.json").write_text(json.dumps(plan))
    ended = weft("show", "a")
    assert ended.code == 1
    assert "\x1b" not in ended.out + ended.err


def test_a_run_of_an_earlier_version_is_shown_where_its_names_are_built_in(train: Weft, weft: Weft, ran: Path) -> None:
    whole = weft("show", "a").out
    plan = json.loads((ran / "plan.json").read_text())
    del plan["graph"], plan["envs"]
    (ran / "plan.json").write_text(json.dumps(plan))
    (ran / "origin.json").unlink()
    assert weft("show", "a").out == whole
    assert weft("eval", "a", "--episodes", "1").code == 0
    edit(ran / "config.json", environment="mine:Walk")
    assert "drawing it would import mine" in weft("show", "a").err


def test_a_key_that_cannot_be_used_is_said_at_once(
    train: Weft, weft: Weft, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "file"))
    ended = train("mine:Walk", "--run", "walk", "--quiet")
    assert ended.code == 0
    assert "weft eval will ask for --trust" in ended.err
    assert "add --trust" in weft("eval", "walk").err
    assert "trust" not in train("weft:CartPole-v1", "--run", "b", "--quiet").err, "its names are built in"
