"""Flags from dataclasses: every type that a field may have, and what is said where a word does not fit it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from weft.cli.comments import field_comments
from weft.cli.fields import split_env_options
from weft.cli.flags import Flags, parse, positional_words
from weft.cli.values import can_be_said, metavar, read, write
from weft.core.errors import ConfigError, UnknownName
from weft.core.setting import REQUIRED, setting


@dataclass
class Options:
    """Each kind of flag."""

    name: str = setting(REQUIRED, "which one", argument="NAME")
    where: Path = Path("here")
    steps: int | None = None  # how many
    rate: float = 0.5
    mode: Literal["fast", "slow"] = "fast"
    quiet: bool = False  # say nothing
    colour: bool = True
    maybe: str = setting("", "", argument="MAYBE")


@dataclass
class Fields:
    """Those with a prefix."""

    sizes: tuple[int, ...] = (1, 2)
    flag: bool = True
    kind: Literal["", "gru"] = ""
    network: Any = None


def given(*arguments: str) -> dict[str, Any]:
    groups = Flags(Options), Flags(Fields, prefix="algo.", kind="field:")
    options, fields = parse("weft try", "About.", arguments, *groups)
    return options | {f"algo.{name}": value for name, value in fields.items()}


def test_only_what_is_said_is_given() -> None:
    assert given("a") == {"name": "a"}


def test_every_kind_of_flag() -> None:
    words = ["a", "b", "--where", "x/y", "--steps", "3", "--rate=1e-3", "--mode", "slow", "--quiet", "--no-colour"]
    assert given(*words) == {
        "name": "a",
        "maybe": "b",
        "where": Path("x/y"),
        "steps": 3,
        "rate": 1e-3,
        "mode": "slow",
        "quiet": True,
        "colour": False,
    }


def test_fields_take_values_and_either_spelling() -> None:
    words = ["--algo.sizes", "8", "8", "--algo.flag", "false", "--algo.kind", "gru", "a", "--rate", "-1e-3"]
    assert given(*words) == {"algo.sizes": (8, 8), "algo.flag": False, "algo.kind": "gru", "name": "a", "rate": -1e-3}
    assert given("a", "--no_colour") == {"name": "a", "colour": False}


def test_none_is_a_name_where_leaving_out_says_none() -> None:
    with pytest.raises(ConfigError, match="expected a whole number, got 'none'"):
        given("a", "--steps", "none")


def test_positional_words_are_found_before_the_fields_are_known() -> None:
    words = [
        "--steps",
        "3",
        "--quiet",
        "--algo.sizes",
        "64",
        "64",
        "--algo.flag=true",
        "--rate",
        "-1",
        "ppo",
        "CartPole-v1",
    ]
    assert positional_words(words, Flags(Options)) == ["ppo", "CartPole-v1"]


@pytest.mark.parametrize(
    ("kind", "words", "value"),
    [
        (int, "500_000", 500_000),
        (int, "5e5", 500_000),
        (int, "-3", -3),
        (float, "inf", float("inf")),
        (float | None, "none", None),
        (float | None, "3", 3.0),
        (int | str, "3", 3),
        (int | str, "x", "x"),
        (bool, "True", True),
        (bool, "off", False),
        (Literal["", "gru"], "none", ""),
        (Literal[1, 2], "2", 2),
        (tuple[int, ...], "64,64", (64, 64)),
        (tuple[int, ...], "64 32", (64, 32)),
        (tuple[float, ...], "()", ()),
    ],
)
def test_reading(kind: Any, words: str, value: Any) -> None:
    came = read(kind, words.split())
    assert came == value
    assert type(came) is type(value)


@pytest.mark.parametrize(
    ("kind", "word", "expected"),
    [
        (int, "3.5", "expected a whole number, got '3.5'"),
        (int, "many", "expected a whole number, got 'many'"),
        (float, "nan", "expected a number, got 'nan'"),
        (float | None, "fast", "expected a number, got 'fast'"),
        (bool, "maybe", "expected true or false, got 'maybe'"),
        (Literal["tanh", "relu"], "than", r"expected one of tanh, relu, got 'than' \(did you mean 'tanh'\?\)"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_was_expected(kind: Any, word: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        read(kind, [word])


def test_what_a_command_line_can_say() -> None:
    assert can_be_said(tuple[int, ...] | None) is False
    assert can_be_said(dict[str, int]) is False
    assert can_be_said(Any) is False
    assert can_be_said(int | None)
    assert metavar(float | None) == "FLOAT|none"
    assert [write(v) for v in (None, "", True, (1, 2), (), 0.00025)] == ["none", "none", "true", "1 2", "()", "0.00025"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "weft try needs NAME"),
        ("a b c", "not understood: c"),
        ("a --steps", "--steps: expected one argument"),
        ("a --steps x", "--steps: expected a whole number, got 'x'"),
        ("a --quiet=3", "--quiet: ignored explicit argument '3'"),
    ],
)
def test_a_bad_command_line_is_one_error(words: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        given(*words.split())
    assert str(raised.value).endswith(". `weft try --help` tells more.")


def test_unknown_flags_and_fields() -> None:
    with pytest.raises(UnknownName, match=r"unknown flag '--step'. Did you mean '--steps'"):
        given("a", "--step", "3")
    with pytest.raises(UnknownName, match=r"unknown field: 'size'. Did you mean 'sizes'"):
        given("a", "--algo.size", "3")
    with pytest.raises(ConfigError, match="field: 'network' cannot be said on a command line"):
        given("a", "--algo.network", "x")


def test_comments_are_found_beside_their_fields() -> None:
    assert field_comments(Options) == {"steps": "how many", "quiet": "say nothing"}
    assert field_comments(dataclasses.make_dataclass("Made", ["x"])) == {}


def test_env_options() -> None:
    rest, options = split_env_options(
        ["a", "--env.gravity", "3.7", "--env.max-steps=20", "--env.flag", "true", "--env.low", "-1", "--seed", "1"]
    )
    assert rest == ["a", "--seed", "1"]
    assert options == {"gravity": 3.7, "max_steps": 20, "flag": True, "low": -1}
    assert split_env_options(["--env.text", "x", "--env.no", "None"])[1] == {"text": "x", "no": None}
    for words in (["--env.x"], ["--env.x", "--seed", "1"], ["--env.", "1"]):
        with pytest.raises(ConfigError, match="needs a name and a value"):
            split_env_options(words)
