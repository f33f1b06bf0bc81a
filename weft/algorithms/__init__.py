"""Algorithms, one readable file each, with the base that they share, their registry and their tuned settings."""
