"""What ``import weft`` promises: these names and no others, each with a docstring."""

from __future__ import annotations

import inspect

import pytest

import weft

NAMES = [
    "A2C",
    "BC",
    "DQN",
    "IMPALA",
    "IQL",
    "MAPPO",
    "PPO",
    "PQN",
    "QMIX",
    "R2D2",
    "SAC",
    "TD3",
    "VDN",
    "Acted",
    "Algorithm",
    "Box",
    "ConfigError",
    "Dataset",
    "Discrete",
    "EnvSpec",
    "FixedReplay",
    "Fragment",
    "FrameStack",
    "Frozen",
    "Graph",
    "JaxEnv",
    "Looked",
    "MessageRole",
    "MultiBinary",
    "MultiDiscrete",
    "Network",
    "NetworkOutput",
    "Plan",
    "Policies",
    "Population",
    "Port",
    "Priorities",
    "PrioritisedReplay",
    "Ran",
    "Random",
    "Role",
    "Run",
    "Scripted",
    "Seen",
    "SelfPlay",
    "Spec",
    "Stage",
    "Stream",
    "Timestep",
    "TrainState",
    "Transition",
    "Transitions",
    "UniformReplay",
    "Unroll",
    "WatchContext",
    "WeftError",
    "evaluate",
    "load",
    "make",
    "mean_over_replicas",
    "no_progress",
    "off_policy",
    "pbt",
    "reached",
    "record",
    "register_role",
    "several_policies",
    "show",
    "sweep",
    "tag",
    "train",
]
"""Adding one is a decision, and removing one breaks somebody's code: change this list on purpose, and the changelog."""


def test_the_public_names() -> None:
    assert weft.__all__ == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_there_and_explained(name: str) -> None:
    assert name in dir(weft)
    assert inspect.getdoc(getattr(weft, name))


def test_the_list_for_type_checkers_agrees_with_that_for_loading() -> None:
    """Names are loaded when used; a type checker reads the imports beside them. Both must say the same."""
    import ast
    from pathlib import Path

    tree = ast.parse(Path(inspect.getfile(weft)).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    imported = {
        alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported == weft._HOME
    assert sorted(imported) == sorted(NAMES)


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'weft' has no attribute 'Trainer'"):
        weft.Trainer  # noqa: B018
