"""Counters that outlive the worker that counts, and what they add up to."""
