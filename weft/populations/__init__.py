"""Populations: many members of one algorithm with values of their own, all in one program where that can be."""
