"""Frames to a file: an MP4 by ffmpeg (installed, or imageio-ffmpeg's), or a GIF by Pillow."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from weft.core.errors import ConfigError, MissingExtra, RunError

FRAMES_PER_SECOND = 30


def write_video(frames: list[np.ndarray[Any, Any]], path: Path) -> Path:
    """Write uint8 ``[H, W, 3]`` frames to ``path`` (.gif or .mp4) and return it; the folder is made where needed.

    Raises ConfigError for what is no video, MissingExtra for an encoder, RunError where it cannot be written.
    """
    if not frames:
        raise ConfigError(f"no frames to write to {path}")
    if path.suffix not in (".gif", ".mp4"):
        raise ConfigError(f"a video's name must end in .gif or .mp4, got {path.suffix!r} in {path}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        (_gif if path.suffix == ".gif" else _mp4)(frames, path)
    except OSError as error:
        raise RunError(f"cannot write the video {path}: {error.strerror or error}") from error
    return path


def video_suffix() -> str:
    """The best that can be written here: ``.mp4`` where there is an encoder, else ``.gif``. Raises MissingExtra."""
    if _ffmpeg() is not None:
        return ".mp4"
    if importlib.util.find_spec("PIL") is None:
        raise MissingExtra("writing a video", "pillow", "video")
    return ".gif"


def _gif(frames: list[np.ndarray[Any, Any]], path: Path) -> None:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("writing a GIF", "pillow", "video") from None
    images = [Image.fromarray(frame).quantize(64) for frame in frames]
    # A GIF counts time in hundredths of a second, and players slow down below two of them.
    images[0].save(path, save_all=True, append_images=images[1:], duration=1000 // FRAMES_PER_SECOND // 10 * 10, loop=0)


def _mp4(frames: list[np.ndarray[Any, Any]], path: Path) -> None:
    ffmpeg = _ffmpeg()
    if ffmpeg is None:
        raise MissingExtra("writing an MP4", "imageio-ffmpeg")
    height, width = (size - size % 2 for size in frames[0].shape[:2])  # the encoder wants even sizes
    command = [ffmpeg, "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    command += ["-s", f"{width}x{height}", "-r", str(FRAMES_PER_SECOND), "-i", "-", "-pix_fmt", "yuv420p", str(path)]
    raw = b"".join(np.ascontiguousarray(frame[:height, :width]).tobytes() for frame in frames)
    ended = subprocess.run(command, input=raw, capture_output=True, check=False)
    if ended.returncode:
        raise RunError(f"the encoder could not write {path}: {ended.stderr.decode(errors='replace').strip()}")


def _ffmpeg() -> str | None:
    """Where an encoder is; None where there is none."""
    if importlib.util.find_spec("imageio_ffmpeg") is not None:
        found: str = importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
        return found
    return shutil.which("ffmpeg")
