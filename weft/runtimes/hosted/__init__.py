"""A host loop around compiled pieces."""
