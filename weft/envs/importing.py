"""Loading the user's modules by name; those in the working directory are found too."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from weft.core.errors import THEIRS, ConfigError, EnvironmentRaised
from weft.core.stdlib import is_stdlib


def importable(module: str) -> bool:
    """Whether the outermost package of ``module`` can be found; loads nothing."""
    with _working_directory():
        return importlib.util.find_spec(module.partition(".")[0]) is not None


def import_for(name: str, module: str) -> ModuleType:
    """The module that environment ``name`` comes from; what the module itself raises is passed on as the user's.

    A module of Python's own library is refused unimported: it has no environments.
    """
    if is_stdlib(module) and module_place(module) == INSTALLED:
        raise ConfigError(
            f"environment {name!r}: {module!r} is a module of Python's own library, which has no environments. "
            "Expected package.module:factory, with a module of yours."
        )
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


INSTALLED = "installed"
"""The place of a module that was installed, wherever that is: another virtual environment has it elsewhere."""

_LIBRARIES = tuple(f"{sysconfig.get_path(which)}{os.sep}" for which in ("stdlib", "platstdlib", "purelib", "platlib"))


def module_place(module: str) -> str:
    """The file, or the folder, of the outermost package of ``module``; INSTALLED for a library's; else empty.

    Loads nothing.
    """
    package = module.partition(".")[0]
    try:
        with _working_directory():
            spec = importlib.util.find_spec(package)
    except ValueError:  # of a module without a spec: __main__
        return ""
    if spec is None:
        return ""
    places = [*([spec.origin] if spec.has_location and spec.origin else []), *(spec.submodule_search_locations or [])]
    if not places:
        return INSTALLED if spec.origin in ("built-in", "frozen") else ""
    place = os.path.abspath(places[0])
    return INSTALLED if place.startswith(_LIBRARIES) else place


def find_modules_here() -> None:
    """Let modules in the working directory be found from now on, as ``python -m`` does and an installed command not."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)


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
