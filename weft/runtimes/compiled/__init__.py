"""A pure graph as one XLA program."""
