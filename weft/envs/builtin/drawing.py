"""A tiny rasteriser for the environments' videos: NumPy only, edges smoothed.

Images are uint8 ``[H, W, 3]`` and are drawn into in place. Points are ``(x, y)`` in pixels from the top left corner,
and may lie outside: shapes are cut at the border.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Image: TypeAlias = npt.NDArray[np.uint8]
Point: TypeAlias = tuple[float, float]
Colour: TypeAlias = tuple[int, int, int]

PAPER: Colour = (248, 247, 243)
PALE: Colour = (214, 212, 205)
GREY: Colour = (134, 138, 143)
INK: Colour = (38, 42, 51)
NIGHT: Colour = (22, 26, 38)
DUSK: Colour = (29, 34, 49)
RED: Colour = (217, 68, 60)
ORANGE: Colour = (224, 138, 58)
YELLOW: Colour = (236, 196, 78)
GREEN: Colour = (82, 160, 92)
SKY: Colour = (98, 176, 220)
BLUE: Colour = (52, 96, 172)


def canvas(height: int, width: int, colour: Colour = PAPER) -> Image:
    """A fresh image, all of one colour."""
    return np.full((height, width, 3), colour, np.uint8)


def disc(image: Image, centre: Point, radius: float, colour: Colour) -> None:
    """A filled circle."""
    line(image, centre, centre, 2 * radius, colour)


def ring(image: Image, centre: Point, radius: float, width: float, colour: Colour) -> None:
    """A circle of ``width`` pixels inside ``radius``."""
    window = _window(image, centre[0] - radius, centre[1] - radius, centre[0] + radius, centre[1] + radius)
    if window is None:
        return
    part, x, y = window
    distance = np.hypot(x - centre[0], y - centre[1])
    outer = np.clip(radius - distance + 0.5, 0, 1)
    _blend(part, outer - np.clip(radius - width - distance + 0.5, 0, 1), colour)


def line(image: Image, start: Point, end: Point, width: float, colour: Colour) -> None:
    """A straight line with round ends."""
    reach = width / 2 + 1
    window = _window(image, min(start[0], end[0]) - reach, min(start[1], end[1]) - reach,
                     max(start[0], end[0]) + reach, max(start[1], end[1]) + reach)  # fmt: skip
    if window is None:
        return
    part, x, y = window
    run_x, run_y = end[0] - start[0], end[1] - start[1]
    squared = run_x * run_x + run_y * run_y
    along = np.clip(((x - start[0]) * run_x + (y - start[1]) * run_y) / squared, 0, 1) if squared else 0.0
    distance = np.hypot(x - start[0] - along * run_x, y - start[1] - along * run_y)
    _blend(part, np.clip(width / 2 - distance + 0.5, 0, 1), colour)


def rectangle(image: Image, left: float, top: float, right: float, bottom: float, colour: Colour) -> None:
    """A filled rectangle with sides along the axes; ``right`` and ``bottom`` are not part of it."""
    window = _window(image, left, top, right, bottom)
    if window is None:
        return
    part, x, y = window
    across = np.clip(np.minimum(x + 0.5, right) - np.maximum(x - 0.5, left), 0, 1)
    down = np.clip(np.minimum(y + 0.5, bottom) - np.maximum(y - 0.5, top), 0, 1)
    _blend(part, across * down, colour)


def enlarge(grid: Image, factor: int) -> Image:
    """A copy of ``grid`` in which each pixel became a square of ``factor`` by ``factor``."""
    return grid.repeat(factor, axis=0).repeat(factor, axis=1)


def board(rows: int, columns: int, cell: int) -> Image:
    """A dark chequered image with ``cell`` pixels to a cell, for games on a grid."""
    odd = (np.arange(rows)[:, None] + np.arange(columns)) % 2
    return enlarge(np.where(odd[..., None] == 1, DUSK, NIGHT).astype(np.uint8), cell)


def _window(
    image: Image, left: float, top: float, right: float, bottom: float
) -> tuple[Image, npt.NDArray[np.float64], npt.NDArray[np.float64]] | None:
    """The part of ``image`` that a shape can touch, with its pixels' centres; None where it lies wholly outside."""
    height, width = image.shape[:2]
    x0, x1 = max(int(np.floor(left)), 0), min(int(np.ceil(right)), width)
    y0, y1 = max(int(np.floor(top)), 0), min(int(np.ceil(bottom)), height)
    if x0 >= x1 or y0 >= y1:
        return None
    return image[y0:y1, x0:x1], np.arange(x0, x1)[None, :] + 0.5, np.arange(y0, y1)[:, None] + 0.5


def _blend(part: Image, coverage: npt.NDArray[np.float64], colour: Colour) -> None:
    mixed = part + coverage[..., None] * (np.asarray(colour, np.float64) - part)
    part[:] = np.rint(mixed).astype(np.uint8)
