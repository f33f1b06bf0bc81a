"""Write docs/api.md from signatures and docstrings: ``python docs/generate_api.py``; ``--check`` only compares."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import weft
from weft.runtimes.policies.evaluate import Evaluation
from weft.runtimes.policies.policy import Policy

PAGE = Path(__file__).parent / "api.md"

HEAD = """# API

What `import weft` has, from its docstrings (written by `python docs/generate_api.py`). Settings are on
[Runs](runs.md#settings), the fields of an algorithm on its [page](index.md).

```bash
python -c "import weft; help(weft.train)"
```
"""

SECTIONS: dict[str, list[str]] = {
    "Training and what comes of it": [
        "train",
        "load",
        "evaluate",
        "make",
        "record",
        "tag",
        "show",
        "reached",
        "no_progress",
    ],
    "Many at once": ["sweep", "pbt", "Population"],
    "Writing an algorithm": [
        "Algorithm",
        "Network",
        "NetworkOutput",
        "mean_over_replicas",
        "off_policy",
        "several_policies",
    ],
    "Environments and data": [
        "JaxEnv",
        "Transition",
        "EnvSpec",
        "Box",
        "Discrete",
        "MultiDiscrete",
        "MultiBinary",
        "Dataset",
    ],
}
METHODS = {
    "Algorithm": "init act act_at greedy initial_carry bootstrap learn learn_and_tell grad apply graph bind check",
    "Dataset": "load save from_episodes",
    "JaxEnv": "reset step render",
    "EnvSpec": "of_agents of_teams to_native",
}


def main() -> int:
    """Write, or compare."""
    text = page()
    if "--check" in sys.argv:
        return int(PAGE.read_text() != text)
    PAGE.write_text(text)
    return 0


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    told = set()
    for title, names in SECTIONS.items():
        parts.append(f"## {title}\n")
        for name in names:
            told.add(name)
            parts.append(entry(f"weft.{name}", getattr(weft, name)))
            for method in METHODS.get(name, "").split():
                if hasattr(getattr(weft, name), method):
                    parts.append(entry(f"{name}.{method}", getattr(getattr(weft, name), method), 4))
        if title.startswith("Training"):
            told.add("Run")
            parts.append(entry("weft.Run", weft.Run))
            for method in ("policy", "policy_for", "export", "record", "frozen", "together"):
                parts.append(entry(f"Run.{method}", getattr(weft.Run, method), 4))
            parts.append(entry("Policy", Policy))
            parts += [entry(f"Policy.{m}", getattr(Policy, m), 4) for m in ("__call__", "reset")]
            parts.append(entry("Evaluation", Evaluation))
    parts.append("## All names\n\n| name | what |\n|---|---|")
    rows = [f"| `weft.{name}` | {first_line(getattr(weft, name))} |" for name in sorted(weft.__all__, key=str.lower)]
    return "\n".join(parts) + "\n" + "\n".join(rows) + "\n"


def entry(name: str, thing: Any, level: int = 3) -> str:
    """A heading, the signature, the docstring."""
    own = inspect.cleandoc(thing.__doc__ or "")
    own, _, settings = own.partition("\n\nSettings:\n")
    own = own.replace("``", "`")
    if settings:
        own += "\n\nAnd every [setting](runs.md#settings) by keyword, and the algorithm's fields."
    head = f"{'#' * level} {name}\n"
    shown = signature(name.rpartition(".")[2], thing)
    return f"{head}\n```text\n{shown}\n```\n\n{own}\n"


def signature(name: str, thing: Any) -> str:
    """A call in a few lines; settings are left to their own page."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    known = found.parameters.values()
    if name == "train":
        known = [p for p in known if p.name in ("algorithm", "environment", "on_record", "stop_when", "fields")]
    words = [parameter(p) for p in known if p.name not in ("self", "_policies")]
    line = f"{name}({', '.join(words)})"
    if len(line) <= 100:
        return line
    return f"{name}(\n    " + ",\n    ".join(words) + ",\n)"


def parameter(one: inspect.Parameter) -> str:
    """One of a call's: its name, its type without modules, its default."""
    star = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    text = f"{star}{one.name}"
    if one.annotation is not one.empty:
        kind = one.annotation if isinstance(one.annotation, str) else inspect.formatannotation(one.annotation)
        text += ": " + re.sub(r"\b(weft|collections|pathlib|typing|jax|numpy)(\.\w+)*\.(\w+)", r"\3", kind)
    if one.default is one.empty:
        return text
    plain = one.default is None or isinstance(one.default, bool | int | float | str | tuple)
    shown = repr(one.default) if plain else repr(str(one.default)) if isinstance(one.default, Path) else "..."
    return f"{text} = {shown}"


def first_line(thing: Any) -> str:
    """The first line of a docstring, fit for a table."""
    line = inspect.cleandoc(thing.__doc__ or "").split("\n\n")[0].replace("\n", " ").replace("``", "`")
    return line.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
