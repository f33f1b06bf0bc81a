"""Algorithms, one readable file each; their names and their tuned settings."""
