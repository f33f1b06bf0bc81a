"""A setting is written once: the flag, the keyword, the check, the help, the record and the docs follow from it."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Weft

import weft as package
from weft.cli.flags import Flags, parse
from weft.core.errors import ConfigError, UnknownName
from weft.core.keywords import split, takes
from weft.core.setting import REQUIRED, check_settings, declared, setting
from weft.runtimes.prepare.config import prepare, without_effect
from weft.runtimes.prepare.settings import RunConfig, Settings

ROOT = Path(package.__file__).parent.parent
ALL = {**declared(RunConfig), **declared(Settings)}


@dataclass(frozen=True)
class Toy:
    """A record with one new setting, declared in one place."""

    depth: int | None = setting(3, "how deep to dig", at_least=1, unit="spade", only="workers")

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class Kinds:
    """Each kind of setting."""

    name: str | Path = setting(REQUIRED, "which one", argument="NAME")
    rate: float = setting(0.5, "how fast", above=0, at_most=2)
    mode: str = setting("fast", "how", choices=("fast", "slow"), noun="pace")
    options: Mapping[str, Any] = setting({}, "more of it")
    where: Path = setting(Path("here"), "the folder")
    loud: bool = setting(True, "make a noise")
    unchecked: Any = setting(None, "anything")
    other: int = 7  # no setting

    def __post_init__(self) -> None:
        check_settings(self)


@takes(Toy)
def dig(where: str, **rest: Any) -> tuple[Toy, dict[str, Any]]:
    """Dig."""
    (asked,), rest = split(rest, Toy)
    return Toy(**asked), rest


def test_a_new_setting_is_a_flag_with_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse("weft dig", "About.", ["--depth", "5"], Flags(Toy)) == [{"depth": 5}]
    assert parse("weft dig", "About.", [], Flags(Toy)) == [{}]
    with pytest.raises(SystemExit):
        parse("weft dig", "About.", ["--help"], Flags(Toy))
    assert "--depth INT how deep to dig [3]" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(UnknownName, match=r"unknown flag '--dpeth'\. Did you mean '--depth'"):
        parse("weft dig", "About.", ["--dpeth", "5"], Flags(Toy))


def test_a_new_setting_is_checked() -> None:
    assert Toy(depth=None).depth is None
    with pytest.raises(ConfigError, match=r"^depth must be at least 1 spade, got 0$"):
        Toy(depth=0)
    with pytest.raises(ConfigError, match=r"^depth must be a whole number or None, got 'far' \(a str\)$"):
        Toy(depth="far")  # type: ignore[arg-type]


def test_a_new_setting_is_a_keyword_that_help_shows() -> None:
    assert str(inspect.signature(dig)).startswith("(where: 'str', *, depth: 'int | None' = 3, **rest: 'Any')")
    assert "depth: how deep to dig (at least 1 spade)" in (inspect.getdoc(dig) or "")
    assert dig("here", depth=5, colour="red") == (Toy(depth=5), {"colour": "red"})


def test_a_new_setting_has_its_row_in_the_docs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    row = importlib.import_module("generate_settings").table(Toy).splitlines()[-1]
    what = "how deep to dig; only where a plan runs in workers"
    assert row == f"| `--depth INT` | `depth=3` | at least 1 spade | {what} |"


def test_a_new_setting_says_where_it_has_no_effect() -> None:
    prepared = prepare(RunConfig("ppo", "weft:CartPole-v1", envs=8))
    assert without_effect(prepared, Toy()) == []  # type: ignore[arg-type]
    why = "depth=5 has no effect: the plan 'env+act+learn' runs in one process"
    assert without_effect(prepared, Toy(depth=5)) == [why]  # type: ignore[arg-type]
    assert without_effect(prepared, RunConfig("ppo", "weft:CartPole-v1"), Settings()) == []


def test_every_setting_that_decides_the_result_is_recorded() -> None:
    asked = RunConfig("ppo", "weft:CartPole-v1", envs=8, seed=np.int64(4), max_lag=3, plan="env | act | learn")  # type: ignore[arg-type]
    prepared = prepare(asked)
    recorded = prepared.config()
    assert recorded.keys() == {*declared(RunConfig), "algo", "code"}
    assert (recorded["algorithm"], recorded["environment"]) == ("ppo", "weft:CartPole-v1")
    assert (recorded["seed"], recorded["max_lag"], recorded["plan"]) == (4, 3, "env | act | learn")
    json.dumps({name: value for name, value in recorded.items() if name in declared(RunConfig)})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rate": 0}, "rate must be above 0 and at most 2, got 0"),
        ({"rate": 3.5}, "rate must be above 0 and at most 2, got 3.5"),
        ({"rate": float("nan")}, "rate must be above 0 and at most 2, got nan"),
        ({"rate": True}, "rate must be a number, got True (a bool)"),
        ({"mode": "slwo"}, "unknown pace 'slwo'. Did you mean 'slow'?"),
        ({"mode": 3}, "mode must be text, got 3 (a int)"),
        ({"options": [1]}, "options must be a dict, got [1] (a list)"),
        ({"where": 3}, "where must be text or a path, got 3 (a int)"),
        ({"loud": 1}, "loud must be True or False, got 1 (a int)"),
    ],
)
def test_each_kind_is_checked(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        Kinds("a", **given)


def test_values_become_plain_pythons() -> None:
    made = Kinds("a", rate=np.float32(0.25), where="x/y", unchecked={1}, other="not a setting")  # type: ignore[arg-type]
    assert type(made.rate) is float
    assert made.where == Path("x/y")
    assert type(Toy(depth=np.int32(4)).depth) is int  # type: ignore[arg-type]
    assert Kinds("a").options == {}
    assert Kinds("a").options is not Kinds("b").options
    assert dataclasses.replace(made, rate=1).rate == 1.0


def test_flags_of_each_kind(capsys: pytest.CaptureFixture[str]) -> None:
    given = parse("weft try", "About.", ["a", "--mode", "slow", "--no-loud"], Flags(Kinds))
    assert given == [{"name": "a", "mode": "slow", "loud": False}]
    with pytest.raises(ConfigError, match="--mode: expected one of fast, slow, got 'slwo'"):
        parse("weft try", "About.", ["a", "--mode", "slwo"], Flags(Kinds))
    with pytest.raises(SystemExit):
        parse("weft try", "About.", ["--help"], Flags(Kinds, names=("mode", "loud", "options")))
    shown = " ".join(capsys.readouterr().out.split())
    assert "--mode {fast,slow} how [fast] --no-loud do not make a noise" in shown
    assert "--rate" not in shown
    assert "--options" not in shown


@pytest.mark.parametrize("name", ALL)
def test_every_default_of_a_run_is_of_its_kind_and_in_range(name: str) -> None:
    one = ALL[name]
    assert one.kind is not Any
    assert one.says.help
    if one.default is not REQUIRED:
        assert one.checked(one.default) == one.default


def test_help_of_weft_train_shows_every_setting_with_its_default() -> None:
    parameters = inspect.signature(package.train).parameters
    first, second, *others = ALL
    assert list(parameters) == [first, second, "on_record", "stop_when", *others, "fields"]
    for name, one in ALL.items():
        default = inspect.Parameter.empty if one.default is REQUIRED else one.default
        assert parameters[name].default == default
        assert one.says.argument or f"{name}: {one.says.help}"[:60] in (inspect.getdoc(package.train) or "")


def test_help_of_weft_train_on_the_command_line_shows_every_setting(weft: Weft) -> None:
    shown = " ".join(weft("train", "--help").out.split())
    for cls in (RunConfig, Settings):
        flags = Flags(cls)
        for name in flags.fields():
            assert declared(cls)[name].says.argument or flags.flag(name) in shown
            assert declared(cls)[name].says.help in shown


def test_the_tables_of_the_docs_are_as_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    generate = importlib.import_module("generate_settings")
    text = generate.PAGE.read_text()
    assert text == generate.page(text), "run: python docs/generate_settings.py"


def test_defaults_stand_in_one_place() -> None:
    """Of settings whose names mean nothing else here: their default is written where they are declared, only."""
    for name in ("ring", "hang_seconds", "checkpoint_seconds", "keep_checkpoints"):
        written = re.compile(rf"\b{name}(: \w+)? ?= ?[\d.]+")
        found = [str(path) for path in (ROOT / "weft").rglob("*.py") if written.search(_code(path))]
        assert found == [], name


def _code(path: Path) -> str:
    """A file without its docstrings."""
    return re.sub(r'"""(.|\n)*?"""', "", path.read_text())


def test_python_takes_whole_numbers_as_the_command_line_does():
    config = RunConfig("ppo", "CartPole-v1", steps=1e4, envs=np.float64(8.0))
    assert (config.steps, config.envs) == (10_000, 8)
    assert type(config.steps) is type(config.envs) is int
    for wrong in (1e4 + 0.5, float("nan"), float("inf"), True, "1e4"):
        with pytest.raises(ConfigError, match="steps must be a whole number"):
            RunConfig("ppo", "CartPole-v1", steps=wrong)
