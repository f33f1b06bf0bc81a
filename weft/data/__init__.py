"""Data sets: episodes that were recorded, as arrays in one folder, to learn from without an environment."""

from weft.data.dataset import Dataset, Episode
from weft.data.opened import opened

__all__ = ["Dataset", "Episode", "opened"]
