"""``weft eval``."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class EvalFlags:
    """Play whole episodes with a trained run's policy."""

    run: tyro.conf.Positional[str]  # the run's name, or its folder
    episodes: int = 20
    sample: bool = False  # draw actions from the policy instead of taking the likeliest
    video: bool = False  # record one episode into the run's videos/ (mp4 where an encoder is installed, else gif)
    root: Path = Path("runs")
    json: bool = False  # the result as one line of JSON on stdout


def main(command: str, arguments: list[str]) -> int:
    """Parse, play, print."""
    flags = tyro.cli(EvalFlags, args=arguments, prog="weft eval")

    from weft.runtimes.jax_setup import set_up

    set_up(host_environment=True)
    from weft.api import open_run_folder
    from weft.runtimes.evaluate import evaluate_policy, record_episode
    from weft.runtimes.video import best_suffix, write_video

    run, prepared = open_run_folder(flags.run, flags.root)
    policy = run.policy_for(greedy=not flags.sample)
    result = evaluate_policy(policy, prepared.source, episodes=flags.episodes, seed=prepared.seed)
    video = None
    if flags.video:
        frames = record_episode(policy, prepared.source, seed=prepared.seed)
        steps = run.summary.get("env_steps", 0)
        video = write_video(frames, run.folder / "videos" / f"{steps}{best_suffix()}")
    if flags.json:
        print(json.dumps({**result._asdict(), "video": str(video) if video else None}))
        return 0
    print(
        f"{run.folder}: return {result.return_mean:.2f} ± {result.return_std:.2f} over {result.episodes} episodes "
        f"(from {result.return_min:.1f} to {result.return_max:.1f}; mean length {result.length_mean:.1f})"
    )
    if video:
        print(f"video: {video}", file=sys.stderr)
    return 0
