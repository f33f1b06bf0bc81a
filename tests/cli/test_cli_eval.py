"""``weft eval``: figures, videos, and what is said where there is nothing to play."""

from __future__ import annotations

import importlib.util
import stat
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from command_line import Weft
from PIL import Image

from weft.cli.evaluate import far_below, in_words
from weft.core.errors import ConfigError, MissingExtra, RunError
from weft.runtimes.policies.evaluate import Evaluation
from weft.runtimes.policies.video import video_suffix, write_video


@pytest.fixture(autouse=True)
def no_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without ffmpeg, whatever this one has."""
    monkeypatch.setattr("weft.runtimes.policies.video._ffmpeg", lambda: None)


def test_mean_deviation_and_episodes(train: Weft, weft: Weft) -> None:
    train("mine:Walk", "--run", "a")
    code, out, err = weft("eval", "a", "--episodes", "3")
    assert (code, err) == (0, "")
    assert out == "runs/a: return 10.00 in each of 3 episodes (mean length 10.0)\n"
    assert weft("eval", "a", "--episodes", "1").out == "runs/a: return 10.00 in one episode (length 10)\n"
    assert weft("eval", "runs/a", "--sample", "--seed", "3").out.startswith("runs/a: return 10.00")


def test_returns_that_differ_are_told_apart() -> None:
    result = Evaluation(2, 0.955, 0.005, 0.95, 0.96, 12.5, [0.95, 0.96])
    assert in_words(result) == "return 0.95 ± 0.01 over 2 episodes (from 0.95 to 0.96; mean length 12.5)"


def test_likeliest_actions_far_below_training_get_a_hint(train: Weft, weft: Weft) -> None:
    """Whoever always does the same is paid nothing; drawn actions differ half of the time."""
    train("mine:Alternate", "--run", "a")
    code, out, err = weft("eval", "a", "--episodes", "4")
    assert code == 0
    assert out.startswith("runs/a: return 0.00 in each of 4 episodes")
    assert err.startswith("hint: in training, where actions are drawn, the mean return was ")
    assert err.endswith("`weft eval a --sample` draws them.\n")
    sampled = weft("eval", "a", "--episodes", "20", "--sample")
    assert sampled.err == ""
    assert weft("eval", "a", "--episodes", "4", "--json").json["return_mean"] == 0.0


@pytest.mark.parametrize(
    ("trained", "mean", "std", "far"),
    [
        (200.0, 0.0, 0.0, True),
        (500.0, 480.0, 5.0, False),
        (-90.0, -500.0, 0.0, True),
        (-90.0, -80.0, 10.0, False),
        (10.0, 5.0, 20.0, False),  # chance may explain it
        (float("nan"), 0.0, 0.0, False),
        (None, 0.0, 0.0, False),
    ],
)
def test_what_is_far_below(trained: float | None, mean: float, std: float, far: bool) -> None:
    assert far_below(Evaluation(4, mean, std, mean, mean, 1.0, [mean]), trained) is far


def test_json_and_a_gif_of_a_gymnasium_environment(train: Weft, weft: Weft, here: Path) -> None:
    train("CartPole-v1", "--run", "a")
    result = weft("eval", "a", "--episodes", "2", "--video", "--json").json
    assert result["episodes"] == len(result["returns"]) == 2
    assert result["return_mean"] == pytest.approx(np.mean(result["returns"]))
    assert result["video"] == "runs/a/videos/64.gif"
    with Image.open(here / result["video"]) as image:
        assert image.size == (600, 400)
        assert len(image.convert("RGB").getcolors(600 * 400)) > 3  # something is drawn


def test_a_gif_of_an_environment_in_jax(train: Weft, weft: Weft, here: Path) -> None:
    train("weft:CartPole-v1", "--run", "a")
    code, out, _ = weft("eval", "a", "--video", "--episodes", "2", "--sample")
    assert code == 0
    with Image.open(here / out.splitlines()[1].removeprefix("video: ")) as image:
        assert image.n_frames > 3
        assert len(image.convert("RGB").getcolors(10**6)) > 3


def test_every_seed_plays(train: Weft, weft: Weft) -> None:
    train("mine:Walk", "--run", "a", "--seeds", "2", "--seed", "4")
    lines = weft("eval", "a", "--episodes", "2").out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["runs/a, seed 4", "runs/a, seed 5"]
    assert len(weft("eval", "a", "--json", "--episodes", "2").json["seeds"]) == 2


def test_nothing_to_play(train: Weft, weft: Weft, here: Path) -> None:
    code, out, err = weft("eval", "a")
    assert (code, out) == (2, "")
    assert "unknown run 'a'" in err
    train("mine:Walk", "--run", "walk")
    assert "Did you mean 'walk'?" in weft("eval", "wolk").err
    code, _, err = weft("eval", "walk", "--episodes", "0")
    assert (code, err) == (2, "weft: error: episodes must be at least 1, got 0\n")
    train("mine:InterruptsTwice", "--run", "none")
    code, _, err = weft("eval", "none")
    assert code == 1
    assert "has no checkpoint" in err
    (here / "mine.py").write_text("")
    sys.modules.pop("mine")
    assert "Module 'mine' has no 'Walk'" in weft("eval", "walk").err


def test_missing_encoders_are_found_out_before_the_episodes(
    train: Weft, weft: Weft, monkeypatch: pytest.MonkeyPatch
) -> None:
    train("mine:Walk", "--run", "a")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "PIL" else find(name, *a))
    code, out, err = weft("eval", "a", "--video")
    assert (code, out) == (1, "")
    assert (
        err == "weft: error: writing a video needs 'pillow', which is not installed. Run: pip install 'weft[video]'\n"
    )


FRAMES = [np.full((5, 7, 3), 40 * i, np.uint8) for i in range(5)]


def test_gif(tmp_path: Path) -> None:
    assert video_suffix() == ".gif"
    path = write_video(FRAMES, tmp_path / "new" / "video.gif")
    with Image.open(path) as image:
        assert image.n_frames == 5
        for i in range(5):
            image.seek(i)
            assert image.convert("RGB").getpixel((0, 0)) == (40 * i,) * 3


def test_mp4_goes_through_the_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the encoder is looked for again
    encoder = tmp_path / "ffmpeg"
    encoder.write_text('#!/bin/sh\nprintf "%s\\n" "$*" > "$0.args"\nfor last; do :; done\ncat > "$last"\n')
    encoder.chmod(encoder.stat().st_mode | stat.S_IEXEC)
    fake = ModuleType("imageio_ffmpeg")
    fake.__spec__ = importlib.util.spec_from_loader("imageio_ffmpeg", None)
    fake.get_ffmpeg_exe = lambda: str(encoder)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", fake)
    assert video_suffix() == ".mp4"
    path = write_video(FRAMES, tmp_path / "video.mp4")
    assert path.read_bytes() == b"".join(frame[:4, :6].tobytes() for frame in FRAMES)  # even sizes
    assert "-s 6x4" in (tmp_path / "ffmpeg.args").read_text()
    encoder.write_text("#!/bin/sh\necho 'no such codec' >&2\nexit 1\n")
    with pytest.raises(RunError, match="no such codec"):
        write_video(FRAMES, tmp_path / "video.mp4")


def test_videos_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(MissingExtra, match="pip install imageio-ffmpeg"):
        write_video(FRAMES, tmp_path / "video.mp4")
    with pytest.raises(ConfigError, match=r"must end in \.gif or \.mp4, got '\.avi'"):
        write_video(FRAMES, tmp_path / "video.avi")
    with pytest.raises(ConfigError, match="no frames"):
        write_video([], tmp_path / "video.gif")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write the video"):
        write_video(FRAMES, tmp_path / "file" / "video.gif")
