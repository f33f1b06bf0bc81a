"""What an exported folder's ``policy.py`` is made of. Nothing here imports Weft or, at its top, anything but NumPy."""
