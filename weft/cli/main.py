"""``weft``: finds the command, runs it, and turns errors into one clear message and an exit code.

Exit codes: 0 finished, 1 failed, 2 asked for something that cannot be, 130 and 143 interrupted (and saved).
"""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path

from weft.core.errors import ConfigError, EnvironmentRaised, PlanError, UnknownName, WeftError

COMMANDS = {
    "train": ("weft.cli.train", "train an algorithm in an environment, or go on with a run"),
    "eval": ("weft.cli.evaluate", "play episodes with a trained run; --video records one"),
    "show": ("weft.cli.show", "draw what a plan makes of an algorithm"),
    "plans": ("weft.cli.lists", "list the named plans"),
    "algorithms": ("weft.cli.lists", "list the algorithms"),
    "envs": ("weft.cli.lists", "list the environments that are usable here"),
}

USAGE = """weft: reinforcement learning written once, run anywhere

    weft train ALGO ENV [--plan EXPR] [--steps N] [--seed S] [--run NAME] [--algo.FIELD VALUE] [--env.OPTION VALUE]

"""


def main(argv: list[str] | None = None) -> int:
    """Run a command line; gives the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        rows = "\n".join(f"    weft {name:<11} {summary}" for name, (_, summary) in COMMANDS.items())
        print(f"{USAGE}{rows}\n\n`weft COMMAND --help` tells more.")
        return 0
    if arguments[0] in ("-V", "--version"):
        from weft import __version__

        print(f"weft {__version__}")
        return 0
    # A script started by name does not have its folder on the path, and `package.module:factory` is the user's own.
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        if arguments[0] not in COMMANDS:
            raise UnknownName("command", arguments[0], COMMANDS, "`weft --help` lists them.")
        command = importlib.import_module(COMMANDS[arguments[0]][0])
        code: int = command.main(arguments[0], arguments[1:])
        return code
    except EnvironmentRaised as error:
        _print_theirs(error.__cause__)
        return _fail(error, 1)
    except (ConfigError, PlanError) as error:
        return _fail(error, 2)
    except WeftError as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        print("weft: interrupted a second time, left at once", file=sys.stderr)
        return 130


def _fail(error: WeftError, code: int) -> int:
    print(f"weft: error: {error}", file=sys.stderr)
    return code


def _print_theirs(error: BaseException | None) -> None:
    """The traceback of the user's own code: our frames above it say nothing that the message does not."""
    if error is None:
        return
    ours = str(Path(__file__).resolve().parent.parent)
    shown = traceback.TracebackException.from_exception(error)
    frames = [frame for frame in shown.stack if not frame.filename.startswith(ours)]
    shown.stack = traceback.StackSummary.from_list(frames)
    print("".join(shown.format()), file=sys.stderr, end="")


if __name__ == "__main__":
    sys.exit(main())
