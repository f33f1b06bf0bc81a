"""Nested dicts and tuples of NumPy arrays, walked without JAX (environment workers never load it)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from weft.core.types import Tree


def tree_map(function: Callable[..., Any], tree: Tree, *rest: Tree) -> Tree:
    """Apply ``function`` to the leaves of ``tree`` and to the leaves of ``rest`` at the same places.

    Dicts, tuples and NamedTuples are walked, in the order of ``tree_leaves``; None stays None; all else is a leaf.
    """
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        made = {k: tree_map(function, tree[k], *(r[k] for r in rest)) for k in sorted(tree)}
        return {k: made[k] for k in tree}
    if isinstance(tree, tuple):
        parts = [tree_map(function, v, *(r[i] for r in rest)) for i, v in enumerate(tree)]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return function(tree, *rest)


def tree_leaves(tree: Tree) -> list[Any]:
    """The leaves in JAX's order: a dict's by its keys, a tuple's by position."""
    return [leaf for _, leaf in tree_paths(tree)]


def unflatten(like: Tree, leaves: Sequence[Any]) -> Tree:
    """A tree of the structure of ``like``, whose leaves are ``leaves`` in the order of ``tree_leaves(like)``."""
    expected = len(tree_leaves(like))
    if len(leaves) != expected:
        raise ValueError(f"unflatten: {len(leaves)} leaves came, and the tree has {expected}")
    coming = iter(leaves)
    return tree_map(lambda _: next(coming), like)


def tree_paths(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each leaf with its path, ``a.0.b``; the path of a bare leaf is empty."""
    if tree is None:
        return
    if isinstance(tree, Mapping):
        items = [(str(k), tree[k]) for k in sorted(tree)]
    elif isinstance(tree, tuple):
        names = getattr(tree, "_fields", None) or [str(i) for i in range(len(tree))]
        items = list(zip(names, tree, strict=True))
    else:
        yield prefix, tree
        return
    for name, value in items:
        yield from tree_paths(value, f"{prefix}.{name}" if prefix else name)
