"""``weft``: finds the command, runs it, and turns errors into one clear message and an exit code.

Exit codes: 0 finished, 1 failed, 2 asked for something that cannot be, 130 and 143 interrupted by SIGINT and SIGTERM.
"""

from __future__ import annotations

import errno
import importlib
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable

from weft.cli.streams import prepare_streams
from weft.core.errors import ConfigError, EnvironmentRaised, PlanError, UnknownName, WeftError
from weft.core.theirs import is_theirs, their_traceback

COMMANDS = {
    "train": ("weft.cli.train", "ALGO ENV", "train an algorithm in an environment, or go on with a run"),
    "sweep": ("weft.cli.sweep", "ALGO ENV", "train many members with different values: random, grid or halving"),
    "pbt": ("weft.cli.sweep", "ALGO ENV", "train many members, of which the worst copy the best as they learn"),
    "eval": ("weft.cli.evaluate", "RUN", "play episodes with a trained run; --video records one"),
    "watch": ("weft.cli.watch", "[RUN …]", "watch runs in a browser: the dataflow live, curves, logs"),
    "report": ("weft.cli.report", "RUN …", "one page about runs to hand on: config, plan, curves, evaluation, ledger"),
    "record": ("weft.cli.record", "RUN DIR", "play with a trained run, and write a data set to learn from"),
    "export": ("weft.cli.export", "RUN", "write a policy as a folder that runs without Weft: with NumPy, or with JAX"),
    "show": ("weft.cli.show", "ALGO ENV", "draw what a plan makes of an algorithm; of a RUN, with what was measured"),
    "checkpoints": ("weft.cli.checkpoints", "RUN", "list a run's checkpoints, and check every byte of them"),
    "status": ("weft.cli.running", "[RUN]", "say which runs are under way, and how far they are"),
    "logs": ("weft.cli.running", "RUN [WORKER]", "print the end of a worker's log"),
    "stop": ("weft.cli.running", "RUN", "have a run save and end, and wait for it"),
    "scale": ("weft.cli.scale", "RUN [COUNT…]", "change the replicas of a run under way"),
    "league": ("weft.cli.league", "RUN", "play the versions of a run of self-play against each other"),
    "chaos": ("weft.cli.chaos", "ALGO ENV", "train under injected faults, and say what became of it"),
    "plans": ("weft.cli.lists", "", "list the named plans"),
    "algorithms": ("weft.cli.lists", "", "list the algorithms"),
    "init": ("weft.cli.init", "DIR", "make a small project of your own, which trains at once"),
    "doctor": ("weft.cli.doctor", "", "say what this machine, or a cluster, has and lacks"),
    "completion": ("weft.cli.completion", "SHELL", "print a script that completes commands in bash, zsh or fish"),
    "envs": ("weft.cli.lists", "[MATCH]", "list the environments that are usable here"),
}

USAGE = """weft: reinforcement learning written once, run anywhere

{commands}

For example:
    weft train ppo CartPole-v1
    weft train ppo weft:CartPole-v1 --steps 500_000 --seed 1 --run first --algo.learning-rate 1e-3
    weft train ppo CartPole-v1 --plan "env*2 | act | learn"
    weft eval first --video

`weft COMMAND --help` tells more."""


def main(argv: list[str] | None = None) -> int:
    """Run a command line; gives the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    return reported(lambda: _run(arguments))


def reported(command: Callable[[], int]) -> int:
    """Run a command; what it raises becomes a message on stderr and an exit code."""
    prepare_streams()
    try:
        code = command()
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # nobody reads any more (`weft envs | head`); nor must the interpreter try, as it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except SystemExit as leave:  # after --help; or the user's algorithm has had enough
        if not isinstance(leave.code, int | None):
            return _fail(str(leave.code), 1)
        return leave.code or 0
    except KeyboardInterrupt as left:
        number: int = getattr(left, "signal", signal.SIGINT)  # an Abandoned has it, and says why
        why = f": {left}" if str(left) else ""
        print(f"weft: interrupted, left at once; what was saved before is kept{why}", file=sys.stderr)
        return 128 + number
    except (ConfigError, PlanError) as error:
        return _fail(str(error), 2)
    except WeftError as error:
        if isinstance(error, EnvironmentRaised) and error.__cause__ is not None:
            print(their_traceback(error.__cause__), file=sys.stderr, end="")
        return _fail(str(error), 1)
    except Exception as error:
        return _unforeseen(error)


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["help"] and arguments[1:2] and arguments[1] in COMMANDS:
        arguments = [arguments[1], "--help"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        rows = (f"    weft {name:<13}{takes:<13}{about}" for name, (_, takes, about) in COMMANDS.items())
        print(USAGE.format(commands="\n".join(rows)))
        return 0
    if arguments[0] in ("-V", "--version"):
        from weft import __version__

        print(f"weft {__version__}")
        return 0
    if arguments[0] not in COMMANDS:
        raise UnknownName("command", arguments[0], COMMANDS, "`weft --help` lists them.")
    command = importlib.import_module(COMMANDS[arguments[0]][0])
    code: int = command.main(arguments[0], arguments[1:])
    return code


def _fail(message: str, code: int) -> int:
    print(f"weft: error: {message}", file=sys.stderr)
    return code


def _unforeseen(error: Exception) -> int:
    """What is no WeftError: the user's algorithm or network raised, memory ran out, or we have a bug."""
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return _fail(f"out of memory: {error}. Try fewer --envs, a shorter --algo.unroll, or a smaller network.", 1)
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        words = f"{error.strerror}: this process may have {most} open at a time, and its plan needs more"
        return _fail(f"{words}. Allow more (ulimit -n 4096), or choose a plan with fewer workers.", 1)
    variables = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("JAX_")]
    if (
        variables
        and isinstance(error, ValueError | RuntimeError)
        and ("JAX flag" in str(error) or "JAX_" in str(error))
    ):
        return _fail(f"JAX refuses what the environment says: {error}. Correct or unset: {', '.join(variables)}.", 2)
    if is_theirs(error):
        print(their_traceback(error), file=sys.stderr, end="")
        return _fail(f"your code raised {type(error).__name__}, as shown above", 1)
    traceback.print_exception(error)
    return _fail("this should not have happened: it is a bug in Weft. Please report it with the lines above.", 1)


if __name__ == "__main__":
    sys.exit(main())
