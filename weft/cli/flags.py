"""Flags from dataclasses: a field is a flag, and its type says what may follow.

A field declared by ``weft.core.setting`` says its own help; of an algorithm's fields the comments beside them are the
help. A setting with ``argument="ALGO"`` is a positional argument of that name; it may be left out where it has a
default. A bool is a switch: ``--quiet`` where the default is False, ``--no-tensorboard`` where it is True.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, cast

from weft.cli.comments import field_comments
from weft.cli.values import can_be_said, is_many, metavar, read, sayable, write
from weft.core.errors import ConfigError, UnknownName
from weft.core.kinds import hints_of
from weft.core.setting import Setting, default_of

HELP = ("-h", "--help")
_NOTHING = Setting("")  # of a field that is not declared as a setting
_NUMBER = re.compile(r"-\.?\d")


@dataclass(frozen=True)
class Flags:
    """Flags for the fields of ``cls``, or for those called ``names``, under a title in the help.

    ``prefix`` comes before each name (``algo.``), and makes every flag take a value, a bool's too. ``defaults``
    replaces some of the class's own in the help; ``kind`` is what an unknown one is called in the error.
    """

    cls: type
    title: str = "options"
    prefix: str = ""
    about: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "flag"
    names: Sequence[str] = ()

    def fields(self) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
        """Those that a command line can say: the field and its type, by name."""
        kinds = {f.name: self._kind(f) for f in dataclasses.fields(self.cls) if not self.names or f.name in self.names}
        return {
            f.name: (f, kinds[f.name])
            for f in dataclasses.fields(self.cls)
            if f.name in kinds and can_be_said(kinds[f.name])
        }

    def flag(self, name: str) -> str:
        """How a field's flag is spelt: ``--max-lag``, ``--no-tensorboard``, ``--algo.clip``."""
        declared, kind = self.fields()[name]
        no = "no-" if _switch(self, declared, kind) and declared.default else ""
        return f"--{no}{self.prefix}{name.replace('_', '-')}"

    def _kind(self, declared: dataclasses.Field[Any]) -> Any:
        choices = _says(declared).choices
        if choices:
            return Literal[choices]
        kind = hints_of(self.cls)[declared.name]
        return kind if self.prefix else sayable(kind)  # None is said by leaving the flag out, and "none" may be a name


def parse(command: str, about: str, arguments: Sequence[str], *groups: Flags, after: str = "") -> list[dict[str, Any]]:
    """What a command line gives each group, by field name: only what it says, so that defaults stay where they are.

    ``--help`` prints and raises SystemExit(0), whatever stands beside it; what cannot be read raises ConfigError.
    """
    parser = _Parser(prog=command, description=about, epilog=after, add_help=False, allow_abbrev=False)
    parser.formatter_class = _Formatter
    positionals = [_in_usage(f) for g in groups for f, _ in g.fields().values() if _positional(f)]
    parser.usage = " ".join([command, *positionals, "[--FLAG VALUE …]"])
    for group in groups:
        _add(parser, group)
    parser.add_argument_group("help").add_argument(*HELP, action="help", help="show this and leave")
    if any(argument in HELP for argument in arguments):
        parser.print_help()
        raise SystemExit(0)
    given = vars(parser.parse_args(_tidy(command, arguments, groups)))
    return [{name: given[g.prefix + name] for name in g.fields() if g.prefix + name in given} for g in groups]


def positional_words(arguments: Sequence[str], *groups: Flags) -> list[str]:
    """The words that belong to no flag, as far as can be told before the algorithm, and so its fields, are known."""
    switches = {g.flag(name) for g in groups for name, (f, kind) in g.fields().items() if _switch(g, f, kind)}
    words: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        if not argument.startswith("-"):
            words.append(argument)
        elif argument.startswith("--") and "=" not in argument and argument.replace("_", "-") not in switches:
            next(waiting, None)  # its value
    return [word for word in words if not word.replace(".", "").isdigit()]  # a tuple's second number is no name


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ").replace(
            "the following arguments are required:", f"{self.prog} needs"
        )
        message = message.replace("unrecognized arguments:", "not understood:")
        raise ConfigError(f"{message}. `{self.prog} --help` tells more.")


class _Formatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        width = min(max(shutil.get_terminal_size().columns - 2, 60), 118)
        super().__init__(prog, max_help_position=36, width=width)


class _Read(argparse.Action):
    """Reads the words of a flag as a value of ``kind``."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, kind: Any = None, **options: Any) -> None:
        super().__init__(option_strings, dest, **options)
        self.kind = kind

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        try:
            value = read(self.kind, values if isinstance(values, list) else [values])
        except ConfigError as error:
            raise argparse.ArgumentError(self, str(error)) from None
        setattr(namespace, self.dest, value)


def _add(parser: _Parser, group: Flags) -> None:
    section = parser.add_argument_group(group.title, group.about or None)
    comments = field_comments(group.cls)
    for name, (declared, kind) in group.fields().items():
        text = (_says(declared).help or comments.get(name, "")).replace("%", "%%")
        options: dict[str, Any] = {"dest": group.prefix + name, "default": argparse.SUPPRESS}
        if _positional(declared):
            nargs = None if declared.default is dataclasses.MISSING else "?"
            nargs = ("+" if nargs is None else "*") if is_many(kind) else nargs
            named = _says(declared).argument
            section.add_argument(metavar=named, nargs=nargs, help=text, action=_Read, kind=kind, **options)
            continue
        flag = group.flag(name)
        if _switch(group, declared, kind):
            text = f"do not {text}" if declared.default and text else text
            section.add_argument(flag, action="store_const", const=not declared.default, help=text, **options)
            continue
        default = group.defaults.get(name, default_of(declared))
        shown = f"[{write(default)}]".replace("%", "%%") if default is not None or group.prefix else ""
        section.add_argument(
            flag,
            action=_Read,
            kind=kind,
            nargs="+" if is_many(kind) else None,
            metavar=metavar(kind),
            help=f"{text}  {shown}".strip(),
            **options,
        )


def _says(declared: dataclasses.Field[Any]) -> Setting:
    return cast(Setting, declared.metadata.get("setting", _NOTHING))


def _positional(declared: dataclasses.Field[Any]) -> bool:
    return bool(_says(declared).argument)


def _in_usage(declared: dataclasses.Field[Any]) -> str:
    name = _says(declared).argument
    if str(declared.type).startswith("tuple"):
        name += " …"
    return name if declared.default is dataclasses.MISSING else f"[{name}]"


def _switch(group: Flags, declared: dataclasses.Field[Any], kind: Any) -> bool:
    return kind is bool and not group.prefix and not _positional(declared)


def _tidy(command: str, arguments: Sequence[str], groups: Sequence[Flags]) -> list[str]:
    """The arguments with flags spelt as we spell them; an unknown one is refused with the nearest that is known."""
    known = {g.flag(name) for g in groups for name, (declared, _) in g.fields().items() if not _positional(declared)}
    tidy: list[str] = []
    for argument in arguments:
        if tidy and tidy[-1].startswith("--") and "=" not in tidy[-1] and _NUMBER.match(argument):
            tidy[-1] += f"={argument}"  # a negative number is no flag
            continue
        if not argument.startswith("--"):
            tidy.append(argument)
            continue
        flag, equals, value = argument.partition("=")
        flag = flag.replace("_", "-")
        if flag not in known:
            raise _unknown(command, flag, known, groups)
        tidy.append(flag + equals + value)
    return tidy


def _unknown(command: str, flag: str, known: set[str], groups: Sequence[Flags]) -> ConfigError:
    for group in groups:
        name = flag.removeprefix(f"--{group.prefix}").replace("-", "_")
        if group.prefix and flag.startswith(f"--{group.prefix}"):
            if name in {f.name for f in dataclasses.fields(group.cls)}:
                return ConfigError(f"{group.kind} {name!r} cannot be said on a command line; set it from Python")
            return UnknownName(group.kind, name, group.fields(), f"`{command} --help` lists them.")
    return UnknownName("flag", flag, known, f"`{command} --help` lists them.")
