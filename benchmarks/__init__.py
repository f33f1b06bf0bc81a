"""What Weft costs and what it gives, measured beside something else in one interleaved run: ``python -m benchmarks``.

Nothing here is imported by the package. Modules that a peer's own environment runs need the standard library alone.
"""
