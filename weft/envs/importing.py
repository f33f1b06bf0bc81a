"""Loading the user's modules by name; those in the working directory are found too."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from weft.core.errors import THEIRS, ConfigError, EnvironmentRaised


def importable(module: str) -> bool:
    """Whether the outermost package of ``module`` can be found; loads nothing."""
    with _working_directory():
        return importlib.util.find_spec(module.partition(".")[0]) is not None


def import_for(name: str, module: str) -> ModuleType:
    """The module that environment ``name`` comes from; what the module itself raises is passed on as the user's."""
    try:
        with _working_directory():
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"environment {name!r}: there is no module {error.name!r}, neither installed nor in {os.getcwd()!r}"
            ) from error
        raise EnvironmentRaised(name, 0, 0, f"importing {module}", error) from error
    except THEIRS as error:
        raise EnvironmentRaised(name, 0, 0, f"importing {module}", error) from error


@contextmanager
def _working_directory() -> Iterator[None]:
    """An installed command, unlike ``python -m``, does not look for modules where it is run."""
    here = os.getcwd()
    added = here not in sys.path and "" not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        yield
    finally:
        if added:
            sys.path.remove(here)
