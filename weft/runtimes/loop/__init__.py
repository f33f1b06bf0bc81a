"""Dispatch, report, checkpoint, summary: the same for every engine."""
