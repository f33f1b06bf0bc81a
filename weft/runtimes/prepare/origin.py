"""Where a run's code came from, as plain data: what a folder needs besides its config to be opened again.

``origin.json`` has the environment and the algorithm's class as recipes (``core.recipe``) where their names do not
suffice, the objects that the algorithm was given, the script that defined them, the place of each module, and the
environment's spec, from which the policy alone can be made. What has no recipe, a lambda say, is left out, and is
given again when the run is opened.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from weft.core.errors import ConfigError
from weft.core.recipe import SCRIPT, recipe_names, script_path, to_recipe
from weft.envs.importing import module_place
from weft.envs.registry import modules_of
from weft.runtimes.prepare.config import Prepared

SESSION = "__main__"
"""The module of what a notebook or a prompt defines: it is found only where it is defined again."""


def origin_of(prepared: Prepared) -> dict[str, Any]:
    """What ``origin.json`` records of a run, but for the mark."""
    algorithm, plain = prepared.written, prepared.written.config()
    given = [f.name for f in dataclasses.fields(algorithm) if f.init and f.name not in plain]
    found: dict[str, Any] = {
        "by_name": isinstance(prepared.environment, str),
        "environment": None if isinstance(prepared.environment, str) else _recipe(prepared.environment),
        "algorithm": _recipe(type(algorithm)) if ":" in prepared.name else None,
        "objects": {name: made for name in given if (made := _recipe(getattr(algorithm, name))) is not None},
        "spec": _recipe(prepared.source.spec),
    }
    modules = named_modules(found["environment"], found["algorithm"], *found["objects"].values())
    if isinstance(prepared.environment, str):
        modules += modules_of(prepared.environment)
    script = script_path() if SCRIPT in modules else None
    found["script"] = None if script is None else os.path.abspath(script)
    found["modules"] = {name: module_place(name) for name in modules if name not in (SCRIPT, SESSION)}
    return found


def named_modules(*recipes: Any) -> list[str]:
    """The modules that following these recipes would import, without Weft's own; SCRIPT and SESSION among them."""
    names = [name.partition(":")[0] for name in recipe_names(list(recipes))]
    return list(dict.fromkeys(name for name in names if not _ours(name)))


def _ours(module: str) -> bool:
    return module.partition(".")[0] == "weft" and not module.endswith("__main__")


def _recipe(thing: Any) -> Any:
    try:
        return to_recipe(thing, session=True)
    except ConfigError:
        return None
