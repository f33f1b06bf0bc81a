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

from weft.core.errors import ConfigError, MissingExtra, RunError
from weft.runtimes.policies.video import video_suffix, write_video


@pytest.fixture(autouse=True)
def no_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without ffmpeg, whatever this one has."""
    monkeypatch.setattr("weft.runtimes.policies.video._ffmpeg", lambda: None)


def test_mean_deviation_and_episodes(train: Weft, weft: Weft) -> None:
    train("mine:Walk", "--run", "a")
    code, out, err = weft("eval", "a", "--episodes", "3")
    assert (code, err) == (0, "")
    assert out == "runs/a: return 10.00 ± 0.00 over 3 episodes (from 10.0 to 10.0; mean length 10.0)\n"
    assert weft("eval", "runs/a", "--sample", "--seed", "3").out.startswith("runs/a: return 10.00")


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
    code, out, err = weft("eval", "a", "--video", "--episodes", "2")
    assert (code, err) == (0, "")
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
