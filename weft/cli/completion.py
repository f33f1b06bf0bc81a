"""``weft completion SHELL``: a script that completes commands, flags and names; it loads neither JAX nor Weft.

Everything in it is written down when it is made: commands, each command's flags as its help shows them, algorithms,
plans, built-in environments. Runs are looked up as the user types, in ``runs/``.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
from dataclasses import dataclass

from weft.cli.flags import Flags, parse
from weft.core.errors import UnknownName
from weft.core.setting import REQUIRED, setting

ABOUT = "Print a script for a shell, which then completes commands, flags, algorithms, environments, plans and runs."

HOW = {
    "bash": 'eval "$(weft completion bash)"    # in ~/.bashrc',
    "zsh": 'eval "$(weft completion zsh)"     # in ~/.zshrc, after compinit',
    "fish": "weft completion fish | source     # in ~/.config/fish/config.fish",
}

_FISH_RUNS = "(ls -1 runs 2>/dev/null)"


@dataclass(frozen=True)
class CompletionFlags:
    """For which shell."""

    shell: str = setting(REQUIRED, "bash, zsh or fish", argument="SHELL")


def main(command: str, arguments: list[str]) -> int:
    """Parse and print."""
    after = "To use it:  " + ";  ".join(HOW.values())
    (given,) = parse("weft completion", ABOUT, arguments, Flags(CompletionFlags), after=after)
    shell = CompletionFlags(**given).shell
    if shell not in HOW:
        raise UnknownName("shell", shell, HOW)
    print(script(shell))
    return 0


def words() -> dict[str, list[str]]:
    """What may follow each command, by the command; ``""`` has the commands themselves."""
    from weft.algorithms.registry import ALGORITHMS
    from weft.cli.main import COMMANDS
    from weft.envs.builtin import BUILTIN

    found = {"": sorted(COMMANDS)}
    for name, (module, takes, _) in COMMANDS.items():
        found[name] = _flags(module, name)
        if takes.startswith("ALGO"):
            found[name] += [*ALGORITHMS, *(f"weft:{env}" for env in BUILTIN)]
    found["completion"] += list(HOW)
    return found


def _flags(module: str, command: str) -> list[str]:
    """The flags of a command, from its own help."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        importlib.import_module(module).main(command, ["--help"])
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][\w.-]*[a-z]", shown.getvalue())) - {"--env", "--policy"})


def script(shell: str) -> str:
    """The whole script for one shell."""
    from weft.plans import catalogue

    known, plans = words(), " ".join(row[0] for row in catalogue())
    runs = '$(ls -1 "${root}" 2>/dev/null)'
    if shell == "fish":
        lines = ["complete -c weft -f"]
        lines += [f"complete -c weft -n __fish_use_subcommand -a '{' '.join(known.pop(''))}'"]
        for name, each in known.items():
            seen = f"-n '__fish_seen_subcommand_from {name}'"
            lines += [f"complete -c weft {seen} -l {flag[2:]}" for flag in each if flag.startswith("--")]
            lines += [f"complete -c weft {seen} -a '{' '.join(w for w in each if not w.startswith('--'))}'"]
        lines += [f"complete -c weft -l plan -x -a '{plans}'", f"complete -c weft -l run -x -a '{_FISH_RUNS}'"]
        lines += [f"complete -c weft -l {flag} -x -a '(__fish_complete_directories)'" for flag in ("root", "to")]
        lines += [f"complete -c weft -n '__fish_seen_subcommand_from {' '.join(_of_runs())}' -a '{_FISH_RUNS}'"]
        return "\n".join(lines)
    cases = "\n".join(f'        {name}) words="{" ".join(each)}";;' for name, each in known.items() if name)
    body = f"""_weft() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words="" root="runs"
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then words="{" ".join(known[""])}"; else
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    case "${{COMP_WORDS[1]}}" in {"|".join(_of_runs())}) words="$words {runs}";; esac
    fi
    case "$before" in
        --plan) words="{plans}";;
        --run) words="{runs}";;
        --root|--to) COMPREPLY=($(compgen -d -- "$current")); return;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    if declare -F __ltrim_colon_completions >/dev/null; then __ltrim_colon_completions "$current"; fi
}}
complete -o default -F _weft weft"""
    return body if shell == "bash" else f"autoload -U +X bashcompinit && bashcompinit\n{body}"


def _of_runs() -> list[str]:
    from weft.cli.main import COMMANDS

    return [name for name, (_, takes, _) in COMMANDS.items() if takes.startswith("RUN")] + ["show"]
