"""The documents say what is so: their links lead somewhere, their commands can be read, their tables are complete."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
import shlex
import sys
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import pytest

import weft
from weft.algorithms import tuned
from weft.algorithms.registry import ALGORITHMS, load_algorithm
from weft.cli import main as command_line
from weft.envs.builtin import BUILTIN
from weft.plans import catalogue, parse

ROOT = Path(weft.__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^([ ]*)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
SHELLS = ("bash", "sh", "text", "console", "")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> str:
    """A page without its blocks of code."""
    return FENCE.sub("", path.read_text())


def anchors(path: Path) -> set[str]:
    """What ``page.md#here`` may lead to, by GitHub's rule: lower case, no punctuation, dashes for spaces."""
    heads = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


class Command(NamedTuple):
    """A ``weft …`` in a block of code; what a shell would do around it is left out."""

    page: str
    arguments: list[str]
    refusal: str  # the error that the page shows it to end in, or nothing

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.arguments)}"


def commands() -> list[Command]:
    found = []
    for page in PAGES:
        for _, language, body in FENCE.findall(page.read_text()):
            lines = body.replace("\\\n", " ").splitlines() if language in SHELLS else []
            for number, line in enumerate(lines):
                if re.match(r"\s*(\$ )?([A-Z_]+=\S+ )*weft [a-z-]", line):
                    shown = "\n".join(takewhile(lambda after: not after.startswith("$ "), lines[number + 1 :]))
                    found.append(Command(name_of(page), words(line), shown.partition("weft: error: ")[2]))
    return found


def words(line: str) -> list[str]:
    """A command's arguments, up to a comment, a pipe or a redirection."""
    lexer = shlex.shlex(line[line.index("weft ") + len("weft ") :], posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    taken: list[str] = []
    for word in lexer:
        if set(word) <= set("|&;<>"):
            break
        taken.append(word)
    return taken


class Parsed(Exception):
    """The command line was understood, and would now begin."""


@pytest.fixture
def begins_nothing(monkeypatch, tmp_path):
    """Commands are parsed in full, and stop where they would do something. ``corridor`` is what weft init makes."""
    import weft.cli.chaos
    import weft.cli.checkpoints
    import weft.cli.detached
    import weft.cli.doctor
    import weft.cli.doctor_of_hosts
    import weft.cli.evaluate
    import weft.cli.export
    import weft.cli.init
    import weft.cli.league
    import weft.cli.lists
    import weft.cli.record
    import weft.cli.report
    import weft.cli.running
    import weft.cli.scale
    import weft.cli.show
    import weft.cli.sweep
    import weft.cli.train
    import weft.cli.watch
    import weft.runtimes.loop.train  # before prepare is replaced: it would keep what it found
    import weft.runtimes.prepare.config

    weft.cli.init._init(tmp_path / "corridor")

    def stop(*args, **options):
        raise Parsed

    monkeypatch.setattr(weft.cli.train, "_train", stop)
    monkeypatch.setattr(weft.cli.evaluate, "_match", stop)
    monkeypatch.setattr(weft.cli.train, "_dashboard", stop)
    monkeypatch.setattr(weft.cli.detached, "start", stop)
    monkeypatch.setattr(weft.cli.watch, "_serve", stop)
    monkeypatch.setattr(weft.cli.report, "_write", stop)
    monkeypatch.setattr(weft.cli.chaos, "storm", stop)
    monkeypatch.setattr(weft.cli.checkpoints, "_check", stop)
    monkeypatch.setattr(weft.cli.doctor, "_look", stop)
    monkeypatch.setattr(weft.cli.doctor_of_hosts, "look_at_hosts", stop)
    monkeypatch.setattr(weft.cli.init, "_init", stop)
    monkeypatch.setattr(weft.cli.evaluate, "_evaluate", stop)
    monkeypatch.setattr(weft.cli.record, "_record", stop)
    for name in ("_status", "_logs", "_stop"):
        monkeypatch.setattr(weft.cli.running, name, stop)
    for name in ("_ask", "_show"):
        monkeypatch.setattr(weft.cli.scale, name, stop)
    monkeypatch.setattr(weft.cli.export, "_export", stop)
    monkeypatch.setattr(weft.cli.league, "_play", stop)
    monkeypatch.setattr(weft.cli.sweep, "_train", stop)
    monkeypatch.setattr(weft.cli.show, "_draw_run", stop)
    monkeypatch.setattr(weft.cli.lists, "_envs", stop)
    monkeypatch.setattr(weft.runtimes.prepare.config, "prepare", stop)
    monkeypatch.setattr(
        sys, "path", [str(ROOT), str(tmp_path / "corridor"), *sys.path]
    )  # where readers are, for examples.NAME


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for link in LINK.findall(prose(page)):
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(found), f"{link}: no such heading (there are: {sorted(anchors(found))})"


@pytest.mark.parametrize("command", commands(), ids=str)
def test_commands_can_be_read(command, begins_nothing, capsys):
    if command.arguments[0] in ("plans", "algorithms", "completion") or "--help" in command.arguments:
        assert command_line.main(command.arguments) == 0
        return
    said = "understood"
    try:
        command_line._run(command.arguments)
    except Parsed:
        said = refusal_of_plan(command.arguments)
    except weft.WeftError as error:
        said = str(error)
    if said:  # then the page must show it: in these words, or the first of them, however they are wrapped there
        assert command.refusal
        assert " ".join(said.split()).startswith(" ".join(command.refusal.split()))


def refusal_of_plan(arguments: list[str]) -> str:
    """Why the plan that a command names cannot be read; empty where it can, or where it names none."""
    plan = arguments[arguments.index("--plan") + 1] if "--plan" in arguments else "inline"
    try:
        _ = plan in {row[0] for row in catalogue()} or parse(plan)
    except weft.WeftError as error:
        return str(error)
    return ""


def test_there_are_commands_to_read():
    assert len(commands()) > 20
    assert any(command.refusal for command in commands())
    assert words('  $ weft show ppo X --plan "a | b"  # why | not') == ["show", "ppo", "X", "--plan", "a | b"]
    assert words("weft envs | head -3") == ["envs"]


def test_a_command_that_is_wrong_is_noticed(begins_nothing):
    with pytest.raises(weft.WeftError, match="unknown flag '--step'"):
        command_line._run(["train", "ppo", "CartPole-v1", "--step", "3"])


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_can_be_read_and_uses_names_that_exist(page):
    for _, language, body in FENCE.findall(page.read_text()):
        if language != "python":
            continue
        for node in ast.walk(ast.parse(body)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "weft":
                assert hasattr(weft, node.attr), f"weft.{node.attr}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_nothing_is_left_to_be_filled_in(page):
    left = [line for line in page.read_text().splitlines() if "TBD" in line]
    assert not left


def test_the_folders_of_the_architecture_exist_and_are_all_there():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text[text.index("## Folder → purpose") : text.index("## Layers")]
    listed = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert [path for path in listed if not (ROOT / path).exists()] == []
    packages = {f"weft/{path.parent.name}/" for path in (ROOT / "weft").glob("*/__init__.py")}
    assert packages <= set(listed)


def test_the_files_that_the_architecture_names_exist():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"`([\w/]+\.py)`", text))
    assert len(named) > 15
    for name in named:
        assert list(ROOT.glob(name)) or list((ROOT / "weft").rglob(name)), name


def test_the_layers_are_those_that_are_tested():
    sys.path.insert(0, str(ROOT / "tests" / "architecture"))
    try:
        from test_layers import LAYERS
    finally:
        sys.path.pop(0)
    text = (ROOT / "ARCHITECTURE.md").read_text()
    block = text[text.index("## Layers") :].split("```")[1].removeprefix("text\n")
    assert [set(line.split()) for line in block.splitlines()] == LAYERS[::-1]


def test_every_named_plan_is_in_the_table_as_it_is():
    text = (ROOT / "docs" / "plans.md").read_text().replace("\\|", "|")
    for name, expression, _, runs_now in catalogue():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
        assert expression in row
        assert row.split("|")[-2].strip().startswith("runs") == runs_now


def test_every_builtin_environment_is_in_the_table_with_its_options():
    from weft.envs import builtin

    text = (ROOT / "docs" / "environments.md").read_text().partition("## Built in")[2]
    for name in BUILTIN:
        row = next(line for line in text.splitlines() if line.startswith(f"| `weft:{name}` |"))
        options = {field.name for field in dataclasses.fields(builtin.load(name))}
        assert set(re.findall(r"`(\w+)`", row.split("|")[-2])) == options


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_field_of_an_algorithm_is_in_its_table_with_its_default(algorithm):
    from weft.cli.values import write

    text = (ROOT / "docs" / "algorithms" / f"{algorithm}.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", text, re.MULTILINE))
    fields = {field.name: field.default for field in dataclasses.fields(load_algorithm(algorithm))}
    assert rows.keys() == fields.keys()
    for name, default in fields.items():
        shown = rows[name].strip()
        assert shown == write(default) or float(shown) == default, name


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_tuned_settings_are_those_of_the_table(algorithm):
    from weft.cli.values import write

    text = (ROOT / "docs" / "algorithms" / f"{algorithm}.md").read_text()
    for pattern, row in tuned.ROWS.get(algorithm, []):
        family = pattern.strip("*").removesuffix("-v")
        line = next(line for line in text.splitlines() if line.startswith(f"| {family} |"))
        _, _, envs, steps, said, _ = (cell.strip() for cell in line.split("|"))
        assert (int(envs), int(steps.replace(",", ""))) == (row.envs, row.steps)
        told: dict[str, object] = {}
        for part in said.split(", "):
            name, _, value = part.partition(" ")
            name = name.strip("`")
            value, _, end = value.partition(" → ")
            told[name] = value or "True"
            if end:
                told[f"{name}_end"] = end
        assert told.keys() == row.fields.keys(), family
        for name, value in row.fields.items():
            assert told[name] in (str(value), write(value)) or float(str(told[name])) == value, (family, name)


@pytest.mark.slow  # tests/conformance tries some of the cells each time
@pytest.mark.parametrize("name", ["generate", "generate_asynchronous"])
def test_the_conformance_pages_are_as_generated(name, monkeypatch):
    """That cells marked as running do run is what tests/conformance sees to, a few of them each time."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    monkeypatch.syspath_prepend(ROOT / "tests" / "conformance")
    generate, of = importlib.import_module("generate"), importlib.import_module(name)
    page = of.PAGE.read_text()
    outcomes = generate.read(page)
    again = f"run: python docs/{name}.py --rest"
    assert set(outcomes) == set(generate.cells(of.LEFT_OUT)), again
    assert page == of.page(outcomes), again
    # A page says which cells are not tried yet; tests/conformance tries some of those of several learners each time.
    assert all(outcome in {"refused", generate.UNTRIED} or of.good(outcome) for outcome in outcomes.values()), again


def test_the_example_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    """As it stands, but for the number of steps; and its summary has the fields that docs/runs.md explains."""
    ((_, _, example),) = [block for block in FENCE.findall((ROOT / "README.md").read_text()) if block[1] == "python"]
    assert 15 <= len(example.splitlines()) <= 25
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(example.replace("200_000", "2_048"), "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert printed.startswith("runs/first ")
    assert "one episode: " in printed
    run = names["run"]
    assert isinstance(run, weft.Run)
    text = (ROOT / "docs" / "runs.md").read_text()
    for name in {*run.summary, *run.summary["samples"]}:
        assert f"`{name}`" in text, name
