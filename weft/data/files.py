"""A data set's folder: ``data.npz``, its arrays, and ``about.json``, what they are. Nothing in it is ever executed.

``about.json`` is written last: a folder without it was not finished.
"""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from weft.core.errors import ConfigError, RunError
from weft.core.recipe import from_recipe, to_recipe
from weft.core.specs import EnvSpec, allocate, describe
from weft.core.trees import tree_paths, unflatten
from weft.data.dataset import Dataset, named_arrays

ARRAYS, ABOUT, FORMAT = "data.npz", "about.json", 1


def write(data: Dataset, folder: Path) -> Path:
    """Write a data set into a folder that is new or empty. Raises ConfigError where it is neither."""
    data.check("this data set")  # also that no array is of Python objects, which would be pickled
    check_free(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ARRAYS).open("wb") as file:
            np.savez(file, **dict(named_arrays(data)))  # type: ignore[arg-type]
        temporary = folder / f".{ABOUT}.tmp"
        temporary.write_text(json.dumps(about(data), indent=2, allow_nan=False) + "\n")
        os.replace(temporary, folder / ABOUT)
    except OSError as error:
        raise RunError(f"cannot write the data set {folder}: {error.strerror or error}") from error
    return folder


def check_free(folder: Path) -> None:
    """Raise ConfigError where a data set must not be written into a folder."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; a data set is a folder. Choose another name.")
    if folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is there and not empty: choose another folder, or remove it first")


def about(data: Dataset) -> dict[str, Any]:
    """What ``about.json`` holds."""
    import weft

    return {
        "format": FORMAT,
        "environment": data.spec.name,
        "observations": describe(data.spec.observation),
        "actions": describe(data.spec.action),
        "steps": data.steps,
        "episodes": len(data.lengths),
        "episodes_ended": int(data.ended.sum()),
        "return_mean": data.return_mean,
        "recorded": dict(data.recorded),
        "versions": {"weft": weft.__version__, "numpy": np.__version__},
        "spec": to_recipe(data.spec),
    }


def read(folder: Path) -> Dataset:
    """The data set of a folder, checked. Raises ConfigError."""
    told = _about(folder)
    spec: Any = from_recipe(told.get("spec"), allowed=lambda name: name.startswith("weft.core.specs:"))
    if not isinstance(spec, EnvSpec):
        raise ConfigError(f"{folder / ABOUT}: no spec of an environment in it; it is damaged, or no data set's")
    arrays = _arrays(folder)
    like = allocate(spec.observation, (0,))
    names = [f"observation.{path}".rstrip(".") for path, _ in tree_paths(like)]
    wanted = [*names, "action", "reward", "terminated", "truncated", "lengths"]
    wanted += ["action_mask"] if spec.action_mask else []
    if missing := [name for name in wanted if name not in arrays]:
        raise ConfigError(f"{folder / ARRAYS} has no {', '.join(missing)} (it has: {', '.join(sorted(arrays))})")
    data = Dataset(
        spec,
        observation=unflatten(like, [arrays[name] for name in names]),
        **{name: arrays[name] for name in wanted[len(names) :]},
        recorded=told.get("recorded") or {},
    )
    data.check(str(folder))
    return data


def _about(folder: Path) -> dict[str, Any]:
    record = f"`weft record RUN {folder}` makes one."
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {str(folder)!r}; expected a data set. {record}")
    if not (folder / ABOUT).is_file():
        raise ConfigError(
            f"{str(folder)!r} is no data set: it has no {ABOUT}, which is written when a recording is over. {record}"
        )
    try:
        told = json.loads((folder / ABOUT).read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder / ABOUT} cannot be read: {error}") from None
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        came = told.get("format") if isinstance(told, dict) else type(told).__name__
        raise ConfigError(f"{folder / ABOUT}: format {came!r}; this version of Weft reads format {FORMAT}")
    return told


def _arrays(folder: Path) -> dict[str, Any]:
    try:
        with (folder / ARRAYS).open("rb") as file, np.load(file, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{folder / ARRAYS} cannot be read: {error}. Record it anew, or restore it.") from None
