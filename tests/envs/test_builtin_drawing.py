"""The rasteriser: shapes land where they should, with smooth edges, and are cut at the border."""

from __future__ import annotations

import numpy as np

from weft.envs.builtin import drawing

BLACK, WHITE = (0, 0, 0), (255, 255, 255)


def ink(image: np.ndarray) -> float:
    """How many pixels' worth of white there is on black."""
    return float(image[..., 0].astype(np.float64).sum() / 255)


def test_a_disc_has_its_area_and_centre() -> None:
    image = drawing.canvas(60, 80, BLACK)
    drawing.disc(image, (30, 20), 12, WHITE)
    assert abs(ink(image) - np.pi * 144) < 5
    rows, columns = np.nonzero(image[..., 0] > 127)
    assert abs(rows.mean() + 0.5 - 20) < 0.1
    assert abs(columns.mean() + 0.5 - 30) < 0.1
    assert len(np.unique(image)) > 2  # edges are smoothed


def test_a_line_has_its_length_and_width() -> None:
    image = drawing.canvas(100, 100, BLACK)
    drawing.line(image, (20, 30), (80, 70), 6, WHITE)
    expected = np.hypot(60, 40) * 6 + np.pi * 9  # round ends
    assert abs(ink(image) - expected) < 8
    assert tuple(image[50, 50]) == WHITE
    assert tuple(image[70, 30]) == BLACK


def test_a_rectangle_covers_parts_of_pixels() -> None:
    image = drawing.canvas(10, 10, BLACK)
    drawing.rectangle(image, 2.5, 3, 6, 5, WHITE)
    assert image[3, 2:7, 0].tolist() == [128, 255, 255, 255, 0]
    assert image[2:6, 4, 0].tolist() == [0, 255, 255, 0]


def test_shapes_are_cut_at_the_border_and_vanish_outside() -> None:
    image = drawing.canvas(20, 20, BLACK)
    drawing.disc(image, (0, 0), 8, WHITE)
    assert abs(ink(image) - np.pi * 16) < 2
    before = image.copy()
    drawing.disc(image, (-50, 10), 8, WHITE)
    drawing.line(image, (30, 30), (60, 40), 4, WHITE)
    drawing.rectangle(image, 25, 0, 30, 9, WHITE)
    np.testing.assert_array_equal(image, before)


def test_enlarge_repeats_pixels() -> None:
    grid = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    large = drawing.enlarge(grid, 3)
    assert large.shape == (6, 6, 3)
    np.testing.assert_array_equal(large[::3, ::3], grid)
    np.testing.assert_array_equal(large[2::3, 2::3], grid)
