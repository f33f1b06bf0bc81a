"""The comments that explain a dataclass's fields, read from its source: said once, beside the field."""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize


def field_comments(cls: type) -> dict[str, str]:
    """For each field with a comment on its own lines, the comment; a base's where the class says nothing.

    Nothing for classes whose source cannot be had (made at run time, or in an interactive session).
    """
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        try:
            source = textwrap.dedent(inspect.getsource(base))
        except (OSError, TypeError):
            continue
        found |= _in_source(source)
    return found


def _in_source(source: str) -> dict[str, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
    declared = ast.parse(source).body[0]
    assert isinstance(declared, ast.ClassDef)
    found: dict[str, str] = {}
    for node in declared.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            text = " ".join(comments[line] for line in lines if line in comments)
            if text:
                found[node.target.id] = text
    return found
