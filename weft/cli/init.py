"""``weft init DIR``: a small project of the user's own that trains at once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from weft.cli.flags import Flags, parse
from weft.cli.project import FILES
from weft.core.errors import ConfigError, RunError
from weft.core.setting import REQUIRED, setting

ABOUT = "Make a small project: an environment, a network and a test of your own, which train at once."


@dataclass(frozen=True)
class InitFlags:
    """Where."""

    folder: str = setting(REQUIRED, "the project's folder, which must not be there yet, or be empty", argument="DIR")


def main(command: str, arguments: list[str]) -> int:
    """Parse, write, say what to do next."""
    (given,) = parse("weft init", ABOUT, arguments, Flags(InitFlags))
    folder = Path(InitFlags(**given).folder)
    package = _init(folder)
    print(f"made {folder}: {', '.join(name.format(package=package) for name in FILES)}")
    print(f"next:\n    cd {folder}\n    weft train ppo {package}.environment:Corridor --steps 20_000")
    return 0


def _init(folder: Path) -> str:
    """Write the project; returns the name of its package, made of the folder's."""
    package = re.sub(r"\W+", "_", folder.resolve().name.lower()).strip("_")
    if not package.isidentifier():
        package = f"project_{package}".rstrip("_")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is there and not empty: choose another folder")
    try:
        for name, text in FILES.items():
            path = folder / name.format(package=package)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("PACKAGE", package))
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror}") from error
    return package
