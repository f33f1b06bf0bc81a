"""The plan language: read it, print it, fill it for a machine, refuse what cannot run, draw it.

    plan = resolve("(env+act)*4 | learn", graph, Machine.here(), envs=64, pure_env=True)
    executable(plan, graph, machine, envs=64)     # raises with the rule that it breaks
    print(draw_text(graph, plan))

Nothing here loads JAX when imported; ``Machine.here`` and drawing do.
"""

from weft.plans.draw import draw_mermaid, draw_text
from weft.plans.machine import Machine
from weft.plans.named import catalogue
from weft.plans.parse import parse
from weft.plans.plan import Device, Group, Plan, diff
from weft.plans.rules import executable, needs_workers
from weft.plans.validate import resolve

__all__ = [
    "Device",
    "Group",
    "Machine",
    "Plan",
    "catalogue",
    "diff",
    "draw_mermaid",
    "draw_text",
    "executable",
    "needs_workers",
    "parse",
    "resolve",
]
