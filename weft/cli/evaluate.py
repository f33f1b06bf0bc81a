"""``weft eval``."""

from __future__ import annotations

import math
import os
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from weft.cli.flags import Flags, parse
from weft.cli.reserved import stdout_reserved
from weft.core.setting import REQUIRED, setting
from weft.runtimes.prepare.settings import Settings

if TYPE_CHECKING:
    from weft.runtimes.policies.evaluate import Evaluation

ABOUT = "Play whole episodes with a trained run's policy; nothing is learned, and the run stays as it is."


@dataclass(frozen=True)
class EvalFlags:
    """How to play, and what to show."""

    run: str = setting(REQUIRED, "the run's name, or its folder", argument="RUN")
    episodes: int = setting(20, "how many to play")
    checkpoint: str = setting(
        "latest", "which to play: latest, best, a learn step, step-ENV_STEPS, or a tag (`weft checkpoints RUN`)"
    )
    against: str | None = setting(
        None, "an opponent: random, a run, RUN@CHECKPOINT, or a rule of yours, package.module:rule"
    )
    policy: str = setting("", "against an opponent: which of the run's policies plays; unless set: the first")
    sample: bool = setting(False, "draw actions from the policy instead of taking the likeliest")
    seed: int | None = setting(None, "of the episodes; unless set: follows from the run's, and never one trained on")
    video: bool = setting(
        False, "record one more episode into the run's videos/ (mp4 where there is an encoder, else gif)"
    )
    trust: bool = setting(
        False, "import the code that the run's folder names, although nothing says that you made the run"
    )
    json: bool = setting(False, "the result as one line of JSON on stdout, and nothing else there")


def main(command: str, arguments: list[str]) -> int:
    """Parse, play, print."""
    groups = Flags(EvalFlags), Flags(Settings, "the run's folder", names=("root",))
    given, kept = parse("weft eval", ABOUT, arguments, *groups)
    flags, root = EvalFlags(**given), Settings(**kept).root
    hush_pygame()
    if flags.against is not None:
        return _match(flags, flags.against, root)
    with stdout_reserved() if flags.json else nullcontext():
        folder, results, video, trained = _evaluate(flags, root)
    for label, result in results.items():
        if not flags.sample and far_below(result, trained.get(label)):
            _hint(flags.run, trained[label])
            break
    if flags.json:
        print(msgspec.json.encode(_as_json(results, video)).decode())
        return 0
    for label, result in results.items():
        which = str(folder) if len(results) == 1 else f"{folder}, {_words(label)}"
        print(f"{which}: {in_words(result)}")
    if video:
        print(f"video: {video}")
    return 0


def _evaluate(
    flags: EvalFlags, root: Path
) -> tuple[Path, dict[int | str, Evaluation], Path | None, dict[int | str, Any]]:
    """The run's folder, the results of each of its seeds or of its policies by name, where the video is.

    And the mean return in training of each of those, where it is known.
    """
    from weft.runtimes.prepare.jax_setup import set_up

    set_up(cache=True)
    from weft.api import open_run_folder
    from weft.runtimes.policies.evaluate import evaluate_policy, record_episode
    from weft.runtimes.policies.video import video_suffix, write_video
    from weft.runtimes.prepare.stored import Opening

    suffix = video_suffix() if flags.video else ""  # before the episodes are played, not after
    opening = Opening(trust=flags.trust)
    run, prepared = open_run_folder(flags.run, root, warn=warn, opening=opening, checkpoint=flags.checkpoint)
    seed = prepared.seed if flags.seed is None else flags.seed
    results: dict[int | str, Evaluation] = {}
    for name, team in run.teams.items():  # all play in each, so that all of these are of the same episodes
        together = run.together(greedy=not flags.sample)
        results[name] = evaluate_policy(together, prepared.source, episodes=flags.episodes, seed=seed, team=team)
    for k in range(0 if run.teams else max(prepared.seeds, 1)):
        policy = run.policy_for(k, greedy=not flags.sample)
        results[prepared.seed + k] = evaluate_policy(policy, prepared.source, episodes=flags.episodes, seed=seed)
    video = None
    if flags.video:
        play = run.together if run.teams else run.policy_for
        frames = record_episode(play(greedy=not flags.sample), prepared.source, seed=seed)
        steps = run.summary.get("env_steps", 0)
        video = write_video(frames, run.folder / "videos" / f"{steps}{suffix}")
    # Of the params that the run ended with; an earlier checkpoint's are not known here.
    rows = run.summary.get("seeds") or [{**run.summary, "seed": prepared.seed}]
    trained: dict[int | str, Any] = {row["seed"]: row.get("return_mean") for row in rows}
    trained |= {name: row["return_mean"] for name, row in run.summary.get("policies", {}).items()}
    if flags.checkpoint != "latest":
        trained = {}
    return run.folder, results, video, trained


def _match(flags: EvalFlags, against: str, root: Path) -> int:
    """Play against an opponent, and print what came of it."""
    from weft.api import evaluate_against

    with stdout_reserved() if flags.json else nullcontext():
        folder, match = evaluate_against(
            flags.run,
            against,
            root=root,
            checkpoint=flags.checkpoint,
            policy=flags.policy,
            episodes=flags.episodes,
            greedy=not flags.sample,
            seed=flags.seed,
            trust=flags.trust,
            warn=warn,
        )
    returns = match.returns
    if flags.json:
        row = {"policy": match.policy, "against": against, "games": match.games, "won": match.won}
        print(msgspec.json.encode(row | (returns._asdict() if returns else {})).decode())
        return 0
    who = f"{folder}, {match.policy}" if match.policy else str(folder)
    if returns is not None:
        print(f"{who}, against {against}: {in_words(returns)}")
    else:
        assert match.won is not None
        print(f"{who}, against {against}: won {match.won:.3f} of {match.games} games, half of them on either side")
    return 0


def in_words(result: Evaluation) -> str:
    """A result for people."""
    mean, length = f"return {result.return_mean:.2f}", f"mean length {result.length_mean:.1f}"
    if result.episodes == 1:
        return f"{mean} in one episode (length {result.length_mean:.0f})"
    if result.return_min == result.return_max:
        return f"{mean} in each of {result.episodes} episodes ({length})"
    return (
        f"{mean} ± {result.return_std:.2f} over {result.episodes} episodes "
        f"(from {result.return_min:.2f} to {result.return_max:.2f}; {length})"
    )


def far_below(result: Evaluation, trained: float | None) -> bool:
    """Whether the likeliest actions do much worse than those that training drew, beyond what chance explains."""
    if trained is None or not math.isfinite(trained):
        return False
    deficit, error = trained - result.return_mean, result.return_std / math.sqrt(result.episodes)
    return deficit > 0.2 * max(abs(trained), abs(result.return_mean)) and deficit > 2 * error


def _hint(run: str, trained: float) -> None:
    print(
        f"hint: in training, where actions are drawn, the mean return was {trained:.2f}. The likeliest actions do much "
        f"worse; `weft eval {run} --sample` draws them.",
        file=sys.stderr,
    )


def hush_pygame() -> None:
    """It greets on stdout, and looks for a display that drawing into arrays does not need."""
    for name, value in {"PYGAME_HIDE_SUPPORT_PROMPT": "1", "SDL_VIDEODRIVER": "dummy"}.items():
        os.environ.setdefault(name, value)


def _as_json(results: dict[int | str, Evaluation], video: Path | None) -> dict[str, Any]:
    kind = "policy" if any(isinstance(label, str) for label in results) else "seed"
    each = [{kind: label, **result._asdict()} for label, result in results.items()]
    row = {**each[0], "video": None if video is None else str(video)}
    return row if len(each) == 1 else {**row, {"policy": "policies", "seed": "seeds"}[kind]: each}


def _words(label: int | str) -> str:
    return label if isinstance(label, str) else f"seed {label}"


def warn(text: str) -> None:
    """Say it on stderr."""
    print(f"warning: {text}", file=sys.stderr)
