"""Run folders: resumed with the same config, refused with another, held by one process."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from weft.core.errors import ConfigError, RunError, UnknownName
from weft.services.run_folder import default_name, open_run, read_run

CONFIG: dict[str, Any] = {
    "algorithm": "ppo",
    "steps": 1000,
    "algo": {"learning_rate": 1e-3, "layers": (64, 64), "clip": math.inf},
}
PLAN = {"expression": "env+act+learn"}


def test_a_new_run_has_its_config_its_plan_and_its_folders(tmp_path: Path) -> None:
    with open_run(tmp_path / "runs", "a", CONFIG, PLAN) as run:
        assert (run.name, run.resumed, run.summary()) == ("a", False, None)
        assert run.checkpoints.is_dir()
        assert run.tensorboard.is_dir()
        assert run.videos.is_dir()
        written = json.loads((run.path / "config.json").read_text())
        assert written["algo"] == {"learning_rate": 1e-3, "layers": [64, 64], "clip": "inf"}
        assert {"id": run.id, **run.config} == written
        assert json.loads((run.path / "plan.json").read_text()) == PLAN


def test_the_same_config_resumes(tmp_path: Path) -> None:
    open_run(tmp_path, "a", CONFIG, PLAN).close()
    with open_run(tmp_path, "a", dict(reversed(CONFIG.items())), {"expression": "other"}) as run:
        assert run.resumed
        run.begin()
        assert json.loads((run.path / "plan.json").read_text()) == {"expression": "other"}


def test_a_resumed_run_that_does_not_begin_keeps_its_files(tmp_path: Path) -> None:
    open_run(tmp_path, "a", CONFIG, PLAN).close()
    folder = tmp_path / "a"
    (folder / "videos").rmdir()
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns, p.stat().st_ino) for p in folder.glob("*.json")}
    with open_run(tmp_path, "a", {**CONFIG, "steps": 5}, {"expression": "x"}, may_differ=frozenset({"steps"})) as run:
        assert run.config["steps"] == 5
        assert {p: (p.read_bytes(), p.stat().st_mtime_ns, p.stat().st_ino) for p in folder.glob("*.json")} == before
        assert not run.videos.exists()
        for _ in range(2):
            run.begin()
            assert run.plan() == {"expression": "x"}
            assert read_run(tmp_path, "a").config["steps"] == 5
        assert run.videos.is_dir()
    assert len(before) == 2


def test_another_config_is_refused_field_by_field_and_nothing_changes(tmp_path: Path) -> None:
    open_run(tmp_path, "a", CONFIG, PLAN).close()
    before = {p: p.read_bytes() for p in (tmp_path / "a").glob("*.json")}
    other = {**CONFIG, "algo": {"learning_rate": 3e-4, "layers": [64], "gamma": True, "clip": math.inf}, "seed": 1}
    with pytest.raises(RunError) as caught:
        open_run(tmp_path, "a", other, {"expression": "changed"})
    lines = str(caught.value).splitlines()
    assert lines[1:-1] == [
        "  algo.gamma: absent → true",
        "  algo.layers: [64,64] → [64]",
        "  algo.learning_rate: 0.001 → 0.0003",
        "  seed: absent → 1",
    ]
    assert "--run" in lines[-1]
    assert {p: p.read_bytes() for p in (tmp_path / "a").glob("*.json")} == before
    open_run(tmp_path, "a", CONFIG, PLAN).close()  # the refusal let go of the lock


def test_fields_that_may_differ_take_their_new_value(tmp_path: Path) -> None:
    open_run(tmp_path, "a", CONFIG, PLAN).close()
    more = {**CONFIG, "steps": 5000, "algo": {**CONFIG["algo"], "clip": 1.0}}
    with pytest.raises(RunError, match=r"algo\.clip") as caught:
        open_run(tmp_path, "a", more, PLAN, may_differ=frozenset({"steps"}))
    assert "steps" not in str(caught.value).splitlines()[1]
    with open_run(tmp_path, "a", more, PLAN, may_differ=frozenset({"steps", "algo"})) as run:
        assert run.resumed
        run.begin()
    with read_run(tmp_path, "a") as run:
        assert (run.config["steps"], run.config["algo"]["clip"]) == (5000, 1.0)


def test_fields_that_may_lack_are_taken_where_there_are_none_and_compared_where_there_are(tmp_path: Path) -> None:
    may_lack = frozenset({"code"})
    open_run(tmp_path, "a", CONFIG, PLAN).close()
    with pytest.raises(RunError, match=r"seed: absent → 1"):
        open_run(tmp_path, "a", {**CONFIG, "code": {"f": 1}, "seed": 1}, PLAN, may_lack=may_lack)
    with open_run(tmp_path, "a", {**CONFIG, "code": {"f": 1}}, PLAN, may_lack=may_lack) as run:
        run.begin()
    assert read_run(tmp_path, "a").config["code"] == {"f": 1}
    for other, says in (({"f": 2}, r"code\.f: 1 → 2"), ({"f": 1, "g": 1}, r"code\.g: absent → 1")):
        with pytest.raises(RunError, match=says):
            open_run(tmp_path, "a", {**CONFIG, "code": other}, PLAN, may_lack=may_lack)
    with pytest.raises(RunError, match=r'code: {"f":1} → absent'):
        open_run(tmp_path, "a", CONFIG, PLAN, may_lack=may_lack)


def test_true_is_not_one(tmp_path: Path) -> None:
    open_run(tmp_path, "a", {"x": 1}, PLAN).close()
    with pytest.raises(RunError, match="x: 1 → true"):
        open_run(tmp_path, "a", {"x": True}, PLAN)


def test_a_config_that_is_no_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="object"):
        open_run(tmp_path, "a", {"x": object()}, PLAN)


def test_a_second_process_is_refused_and_a_killed_one_lets_go(tmp_path: Path) -> None:
    hold = (
        "import sys, time; from pathlib import Path; from weft.services.run_folder import open_run;"
        "run = open_run(Path(sys.argv[1]), 'a', {}, {}); print('held', flush=True); time.sleep(60)"
    )
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, *sys.path])}
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(RunError, match=f"in use by another process \\({other.pid}\\)"):
            open_run(tmp_path, "a", {}, {})
        assert read_run(tmp_path, "a").config == {}  # readers may look
        other.send_signal(signal.SIGKILL)
        other.wait()
    open_run(tmp_path, "a", {}, {}).close()


def test_the_same_process_is_refused_too_and_closing_twice_is_harmless(tmp_path: Path) -> None:
    run = open_run(tmp_path, "a", {}, {})
    with pytest.raises(RunError, match="in use"):
        open_run(tmp_path, "a", {}, {})
    run.close()
    again = open_run(tmp_path, "a", {}, {})
    run.close()  # must not close the other's descriptor
    with pytest.raises(RunError, match="in use"):
        open_run(tmp_path, "a", {}, {})
    again.close()


def test_a_refusal_or_a_close_leaks_no_descriptor(tmp_path: Path) -> None:
    open_run(tmp_path, "a", {}, {}).close()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        open_run(tmp_path, "a", {}, {}).close()
        with pytest.raises(RunError):
            open_run(tmp_path, "a", {"x": 1}, {})
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_read_only_folder_is_said(read_only_folder: Path) -> None:
    with pytest.raises(RunError, match=f"cannot use {read_only_folder}/a: Permission denied"):
        open_run(read_only_folder, "a", {}, {})


def test_a_run_that_became_read_only_can_be_read_but_not_opened(read_only_folder: Path) -> None:
    folder = read_only_folder
    euid = os.geteuid()
    if os.getuid() == 0:
        os.seteuid(0)
    folder.chmod(0o777)
    open_run(folder, "a", {"x": 1}, {}).close()
    (folder / "a" / ".lock").chmod(0o444)
    (folder / "a").chmod(0o555)
    os.seteuid(euid)
    with pytest.raises(RunError, match="Permission denied"):
        open_run(folder, "a", {"x": 1}, {})
    assert read_run(folder, "a").config == {"x": 1}
    if os.getuid() == 0:
        os.seteuid(0)
    (folder / "a").chmod(0o755)


def test_a_folder_that_is_no_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("x")
    with pytest.raises(RunError, match=r"not a run.*chapter1.tex"):
        open_run(tmp_path, "thesis", {}, {})
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match="File exists"):
        open_run(tmp_path, "file", {}, {})


def test_a_run_killed_before_its_config_was_written_starts_anew_but_never_over_checkpoints(tmp_path: Path) -> None:
    open_run(tmp_path, "a", {}, {}).close()
    (tmp_path / "a" / "config.json").rename(tmp_path / "a" / ".config.json.tmp")
    with open_run(tmp_path, "a", {"x": 1}, {}) as run:
        assert not run.resumed
        (run.checkpoints / "000000000001.weft").write_bytes(b"")
    (tmp_path / "a" / "config.json").unlink()
    with pytest.raises(RunError, match=r"no config.json, but checkpoints"):
        open_run(tmp_path, "a", {"x": 1}, {})


def test_a_damaged_config_is_said(tmp_path: Path) -> None:
    open_run(tmp_path, "a", {}, {}).close()
    (tmp_path / "a" / "config.json").write_bytes(b'{"x": \xff')
    with pytest.raises(RunError, match=r"config.json cannot be read as JSON"):
        open_run(tmp_path, "a", {}, {})


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/absolute", ".hidden", "a\nb", "a\0b", "x" * 300])
def test_names_that_are_no_folder_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunError):
        open_run(tmp_path / "runs", name, {}, {})


def test_read_run_takes_a_name_or_a_path_and_says_the_nearest(tmp_path: Path) -> None:
    open_run(tmp_path, "ppo-CartPole-v1-s0", {"x": 1}, {}).close()
    assert read_run(tmp_path, "ppo-CartPole-v1-s0").config == {"x": 1}
    assert read_run(Path("elsewhere"), str(tmp_path / "ppo-CartPole-v1-s0")).config == {"x": 1}
    with pytest.raises(UnknownName, match="Did you mean 'ppo-CartPole-v1-s0'"):
        read_run(tmp_path, "ppo-CartPole-v1-s1")


def test_the_summary_is_strict_json(tmp_path: Path) -> None:
    with open_run(tmp_path, "a", {}, {}) as run:
        run.write_summary({"return_mean": math.nan, "exit": "finished", "samples": {"dropped": {"late": 2}}})
        text = (run.path / "summary.json").read_text()
        assert json.loads(text, parse_constant=lambda name: pytest.fail(name)) == run.summary()
        assert run.summary() == {"return_mean": None, "exit": "finished", "samples": {"dropped": {"late": 2}}}
        assert not list(run.path.glob(".*.tmp"))


def test_trimming_drops_what_is_past_the_checkpoint_and_cut_lines(tmp_path: Path) -> None:
    with open_run(tmp_path, "a", {}, {}) as run:
        assert run.trim_metrics(0) == 0  # nothing there yet
        lines = [b'{"env_steps":%d,"x":1}\n' % steps for steps in (10, 20, 30, 40)]
        run.metrics.write_bytes(b"".join(lines) + b'{"env_steps":5')
        assert run.trim_metrics(30) == 2
        assert run.metrics.read_bytes() == b"".join(lines[:3])
        stamp = run.metrics.stat().st_mtime_ns
        assert run.trim_metrics(30) == 0
        assert run.metrics.stat().st_mtime_ns == stamp  # untouched
        run.metrics.write_bytes(b'{"env_steps":10,"learn_steps":2}\n{"env_steps":10,"learn_steps":3}\n')
        assert run.trim_metrics(10, 2) == 1  # environments may wait while learn goes on
        run.metrics.write_bytes(lines[0] + b"\0\0\0\n" + lines[1][:-1])
        assert run.trim_metrics(30) == 2  # zeros from a power loss, and a line without its end
        assert run.metrics.read_bytes() == lines[0]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("ppo", "CartPole-v1", 0), "ppo-CartPole-v1-s0"),
        (("ppo", "weft:CartPole-v1", 1), "ppo-weft-CartPole-v1-s1"),
        (("ppo", "ALE/Pong-v5", 12), "ppo-ALE-Pong-v5-s12"),
        (("mine", "my_package.envs:make", 0), "mine-my_package.envs-make-s0"),
        (("ppo", "../../etc", 0), "ppo-etc-s0"),
    ],
)
def test_default_names(arguments: tuple[str, str, int], name: str) -> None:
    assert default_name(*arguments) == name


def test_long_default_names_stay_apart_and_usable(tmp_path: Path) -> None:
    names = {default_name("ppo", "package." * 40 + end, 0) for end in ("a", "b")}
    assert len(names) == 2
    for name in names:
        open_run(tmp_path, name, {}, {}).close()


def test_a_run_folder_needs_no_jax() -> None:
    code = "import sys, weft.services.run_folder; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
