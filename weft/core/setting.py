"""A setting is declared once, as a field: its type, default, range and help.

    @dataclass(frozen=True)
    class Settings:
        ring: int = setting(2, "slices of an env worker's environments", at_least=1, unit="slice", only="workers")

        def __post_init__(self) -> None:
            check_settings(self)

From this follow the flag ``--ring INT`` with its help (``weft.cli.flags``), the keyword ``ring=2`` of ``weft.train``
(``weft.core.keywords``), the error for ``ring=0``, the warning where it has no effect, what ``config.json`` records
and the row in docs/runs.md. The field's annotation says what kind of value it takes.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from weft.core.errors import ConfigError, UnknownName
from weft.core.kinds import hints_of, of_kind

T = TypeVar("T")

REQUIRED: Any = dataclasses.MISSING
"""In place of a default: the setting must be given."""

Only: TypeAlias = Literal["", "workers", "lag"]
"""Where a setting has an effect: everywhere, only in worker processes, or only where params may be behind."""


@dataclass(frozen=True)
class Setting:
    """What a declaration says besides the field's name, type and default."""

    help: str
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()
    unit: str = ""  # what is counted, in messages: "at least 1 slice"
    noun: str = ""  # what an unknown choice is called; the field's name unless given
    only: Only = ""
    argument: str = ""  # the name of a positional argument of the command line; a flag unless given

    @property
    def range(self) -> str:
        """The bounds in words; empty where there are none."""
        if self.at_least is not None and self.at_most is not None:
            return f"between {self.at_least} and {self.at_most}"
        bounds = {"at least": self.at_least, "above": self.above, "at most": self.at_most}
        words = " and ".join(f"{name} {bound}" for name, bound in bounds.items() if bound is not None)
        return f"{words} {self.unit}".rstrip()

    def in_range(self, value: Any) -> bool:
        """Whether a value is within the bounds. NaN is within none."""
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
        )


def setting(
    default: T,
    help: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    choices: tuple[str, ...] = (),
    unit: str = "",
    noun: str = "",
    only: Only = "",
    argument: str = "",
) -> T:
    """A field of a dataclass that declares a setting; what the arguments mean, ``Setting`` says.

    A help text reads on from the flag's name; that of a bool which is True unless told otherwise begins with a verb
    ("write TensorBoard files"), since its flag says "do not".
    """
    says = Setting(help, at_least, above, at_most, choices, unit, noun, only, argument)
    if isinstance(default, dict):
        made: Any = dataclasses.field(default_factory=default.copy, metadata={"setting": says})
    else:
        made = dataclasses.field(default=default, metadata={"setting": says})
    return made  # type: ignore[no-any-return]


class Declared(NamedTuple):
    """A setting of a dataclass, with all that its field says."""

    name: str
    kind: Any  # its type
    default: Any  # REQUIRED where it has none
    annotation: str  # its type, as written
    says: Setting

    def checked(self, value: Any) -> Any:
        """``value`` in plain Python. Raises ConfigError where it is of another kind, unknown, or out of range."""
        value = of_kind(self.name, self.kind, value)
        if value is None:
            return value
        if self.says.choices and value not in self.says.choices:
            raise UnknownName(self.says.noun or self.name, value, self.says.choices)
        if not self.says.in_range(value):
            shown = f"{value:g}" if isinstance(value, float) else value
            raise ConfigError(f"{self.name} must be {self.says.range}, got {shown}")
        return value


def declared(cls: type) -> dict[str, Declared]:
    """The settings of a dataclass by name, in the order in which they are written; its other fields are left out."""
    return _declared(cls)


@functools.cache
def _declared(cls: type) -> dict[str, Declared]:
    hints = hints_of(cls)
    return {
        field.name: Declared(
            field.name, hints[field.name], default_of(field), str(field.type), field.metadata["setting"]
        )
        for field in dataclasses.fields(cls)
        if "setting" in field.metadata
    }


def default_of(field: dataclasses.Field[Any]) -> Any:
    """A field's default, REQUIRED where it has none."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def check_settings(record: Any) -> None:
    """Check every setting of a dataclass, for its ``__post_init__``: raises ConfigError for the first that cannot be.

    Values become plain Python's: a NumPy integer an int, text a Path where one is wanted.
    """
    for one in declared(type(record)).values():
        object.__setattr__(record, one.name, one.checked(getattr(record, one.name)))  # it may be frozen
