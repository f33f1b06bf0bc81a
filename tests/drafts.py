"""Blueprints of plans on a machine without accelerators, for the tests of the process runtime."""

from __future__ import annotations

from typing import Any

from weft.plans import Machine, parse
from weft.plans.plan import Plan
from weft.runtimes.workers.layout.blueprint import Blueprint, Manner, draft

MANNER: dict[str, Any] = {"lockstep": False, "max_lag": 1, "ring": 2, "channel": "shm"}
"""What tests take unless they say otherwise."""


def resolved(expression: str) -> Plan:
    """A plan whose counts are all written."""
    plan = parse(expression)
    for index, group in enumerate(plan.groups):
        plan = plan.with_group(index, replicas=group.replicas or 1)
    return plan


def drafted(
    expression: str, envs: int = 8, machine: Machine | None = None, pure_env: bool = False, **manner: Any
) -> Blueprint:
    """The blueprint of an expression for ``envs`` environments."""
    return draft(resolved(expression), envs, machine or Machine(cores=2), Manner(**MANNER | manner), pure_env=pure_env)
