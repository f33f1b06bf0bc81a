"""Frames to a file: a GIF by Pillow, or an MP4 by imageio-ffmpeg, whichever the name asks for."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from weft.core.errors import ConfigError, MissingExtra

FRAMES_PER_SECOND = 30


def write_video(frames: list[np.ndarray[Any, Any]], path: Path) -> Path:
    """Write uint8 ``[H, W, 3]`` frames to ``path`` (.gif or .mp4) and return it; the folder is made where needed."""
    if not frames:
        raise ConfigError(f"no frames to write to {path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    match path.suffix:
        case ".gif":
            _gif(frames, path)
        case ".mp4":
            _mp4(frames, path)
        case other:
            raise ConfigError(f"a video's name must end in .gif or .mp4, got {other!r} in {path}")
    return path


def best_suffix() -> str:
    """``.mp4`` where an encoder is installed, else ``.gif``."""
    return ".mp4" if importlib.util.find_spec("imageio_ffmpeg") else ".gif"


def _gif(frames: list[np.ndarray[Any, Any]], path: Path) -> None:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("writing a GIF", "pillow", "video") from None
    images = [Image.fromarray(frame).quantize(64) for frame in frames]
    # A GIF counts time in hundredths of a second, and players slow down below two of them.
    images[0].save(path, save_all=True, append_images=images[1:], duration=1000 // FRAMES_PER_SECOND // 10 * 10, loop=0)


def _mp4(frames: list[np.ndarray[Any, Any]], path: Path) -> None:
    try:
        import imageio_ffmpeg
    except ImportError:
        raise MissingExtra("writing an MP4", "imageio-ffmpeg", "video") from None
    height, width = (size - size % 2 for size in frames[0].shape[:2])  # the encoder wants even sizes
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    command += ["-s", f"{width}x{height}", "-r", str(FRAMES_PER_SECOND), "-i", "-", "-pix_fmt", "yuv420p", str(path)]
    raw = b"".join(np.ascontiguousarray(frame[:height, :width]).tobytes() for frame in frames)
    ended = subprocess.run(command, input=raw, capture_output=True, check=False)
    if ended.returncode:
        raise ConfigError(f"the encoder could not write {path}: {ended.stderr.decode(errors='replace').strip()}")
