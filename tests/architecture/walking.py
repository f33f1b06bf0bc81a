"""What the tests of architecture know of a source file: its imports and its strings, by its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import weft

ROOT = Path(weft.__file__).parent


def ids(path: Path) -> str:
    """A file by its place in the package."""
    return str(path.relative_to(ROOT))


@cache
def imported(path: Path, *, typing: bool = True) -> frozenset[str]:
    """The modules that a file imports anywhere; without ``typing`` not those for the type checker alone."""
    found: set[str] = set()
    for node in _nodes(_tree(path), typing=typing):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            named = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name for name in named if file_of(name) is not None}
    return frozenset(found)


def reached(path: Path) -> set[str]:
    """The modules of Weft that a file imports, and those that they import, and so on."""
    seen: set[str] = set()
    waiting = [path]
    while waiting:
        for module in imported(waiting.pop(), typing=False):
            file = file_of(module)
            if file is not None and module not in seen:
                seen.add(module)
                waiting.append(file)
    return seen


@cache
def file_of(module: str) -> Path | None:
    """The file of a module of Weft; None where it is none."""
    parts = module.split(".")
    if parts[0] != "weft":
        return None
    place = ROOT.joinpath(*parts[1:])
    return next((p for p in (place.with_suffix(".py"), place / "__init__.py") if len(parts) > 1 and p.exists()), None)


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """The string literals of a file, with their lines: no docstrings, and not the text of f-strings."""
    tree = _tree(path)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            skipped.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            skipped |= {id(value) for value in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


def words(path: Path) -> Iterator[tuple[int, str]]:
    """The names that a file's code uses, with their lines: variables, attributes and arguments."""
    for node in ast.walk(_tree(path)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield node.lineno, name


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _nodes(node: ast.AST, *, typing: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING" and not typing:
            continue
        yield child
        yield from _nodes(child, typing=typing)
