"""Every error that Weft raises on purpose.

    WeftError
    ├── ConfigError              a value that cannot be used, in a config, a field or a flag
    │   └── UnknownName          a name that is not known; says which are, and the nearest
    ├── PlanError                a plan that cannot be read, or cannot run; says which can
    ├── GraphError               fragments and streams that do not fit together
    ├── MissingExtra             an optional package is needed; says what to install
    ├── EnvironmentFault         an environment broke its own contract (NaN, shape, dtype, space)
    │   └── EnvironmentRaised    the user's environment code raised; carries the original exception
    ├── LearningDiverged         the loss or the params stopped being finite
    ├── CheckpointError          a checkpoint that is missing, corrupt or of another shape
    │   ├── CorruptCheckpoint    its bytes are damaged or cannot be read: the one before it may do
    │   └── ForeignCheckpoint    another run's, or renamed: the one before it may do
    ├── ChannelError             a channel that cannot be opened, or was used out of turn
    │   ├── ChannelClosed        its other end was closed: nothing more will come, or be taken
    │   └── SchemaMismatch       arrays, or another end, of other shapes or dtypes than the channel's
    ├── WorkerFailed             a worker process failed, or could not be started; says which, where and why
    └── RunError                 a run folder that cannot be used as asked
        └── Untrusted            opening it would import code that nothing says is the user's; says which

Each message says what came, what was expected, where, and what to do next. The command line prints the message alone:
a traceback appears only for code that is the user's own.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from weft.core.synonyms import meant


class WeftError(Exception):
    """The root: catch this to catch whatever Weft says on purpose."""


class ConfigError(WeftError):
    """A value that cannot be used, in a config, a field or a flag."""


class UnknownName(ConfigError):
    """A name that is not known.

    ``kind`` is the noun for the message ("environment"), ``known`` the names that would have been right, ``hint`` what
    else may help (a command to run, a package to install).
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        near = nearest(str(name), self.known)
        parts = [f"unknown {kind} {name!r}."]
        if near:
            parts.append("Did you mean " + " or ".join(repr(n) for n in near) + "?")
        elif self.known and len(self.known) <= 24:
            parts.append(f"Known: {', '.join(self.known)}.")
        if hint:
            parts.append(hint)
        super().__init__(" ".join(parts))


class PlanError(WeftError):
    """A plan that cannot be read, or that cannot run here."""


class GraphError(WeftError):
    """Fragments and streams that do not fit together."""


class MissingExtra(WeftError):
    """An optional package is needed.

    ``what`` needs it, ``package`` is what is missing, ``extra`` the extra of Weft that brings it, where one does.
    """

    def __init__(self, what: str, package: str, extra: str | None = None) -> None:
        self.package, self.extra = package, extra
        install = package if extra is None else f"'weft[{extra}]'"
        super().__init__(f"{what} needs {package!r}, which is not installed. Run: pip install {install}")


class EnvironmentFault(WeftError):
    """An environment broke its own contract: NaN, wrong shape, wrong dtype, a space that lies."""


class EnvironmentRaised(EnvironmentFault):
    """The user's environment code raised.

    ``__cause__`` is their exception with their traceback; ``index`` the environment, ``step`` how many steps it had
    made; ``doing`` what it was asked to do: "step", "reset", "making it", "importing MODULE".
    """

    def __init__(self, name: str, index: int, step: int, doing: str, error: BaseException) -> None:
        self.index, self.step = index, step
        kind = type(error).__name__
        if doing.startswith("importing"):
            where = f"{doing} raised {kind}"
        elif doing == "making it":
            where = f"number {index} raised {kind} in making it"
        else:
            where = f"number {index} raised {kind} in {doing} at its step {step}"
        super().__init__(f"environment {name!r}: {where}" + (f": {error}" if str(error) else ""))


THEIRS = (Exception, SystemExit)
"""What is caught around the user's environment code. ``sys.exit()`` there ends no run: it is one way to fail."""


class LeaveAtOnce(KeyboardInterrupt):
    """The second interrupt of a run: it ends without saving. Whatever else is a KeyboardInterrupt was raised there."""


class LearningDiverged(WeftError):
    """The loss or the params stopped being finite."""


class CheckpointError(WeftError):
    """A checkpoint that is missing, corrupt, or of another shape."""


class CorruptCheckpoint(CheckpointError):
    """A checkpoint whose bytes are damaged or cannot be read: the one before it may do."""


class ForeignCheckpoint(CheckpointError):
    """A whole checkpoint that is not what its place says: another run's, or renamed. The one before it may do."""


class ChannelError(WeftError):
    """A channel that cannot be opened, or that was used out of turn (a commit without a reserve)."""


class ChannelClosed(ChannelError):
    """The channel's other end was closed: nothing more will come (a reader hears it), or be taken (a writer)."""


class SchemaMismatch(ChannelError):
    """Arrays, or another end of a channel, of other paths, shapes or dtypes than the channel's."""


class WorkerFailed(WeftError):
    """A worker process failed, or could not be started."""


class RunError(WeftError):
    """A run folder that cannot be used as asked."""


class Untrusted(RunError):
    """A run's folder names code to import, and nothing says that this user made the run."""


def nearest(name: str, known: Iterable[str], count: int = 2) -> list[str]:
    """Up to ``count`` of ``known`` that look like ``name`` or mean the same, best first; letter case does not count."""
    known = list(known)
    by_lower: dict[str, str] = {}
    for candidate in known:
        by_lower.setdefault(candidate.lower(), candidate)
    matches = difflib.get_close_matches(name.lower(), list(by_lower), n=count, cutoff=0.6)
    return list(dict.fromkeys([*meant(name, known), *(by_lower[m] for m in matches)]))[:count]
