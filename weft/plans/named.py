"""The named plans: layouts from the literature, each an alias for an expression with counts filled from the machine."""

from __future__ import annotations

from dataclasses import dataclass

from weft.core.errors import PlanError
from weft.graph.graph import Graph
from weft.plans.fit import complete, fit, stands_for
from weft.plans.parse import parse
from weft.plans.plan import Plan


@dataclass(frozen=True)
class NamedPlan:
    """A row of ``weft plans``."""

    name: str
    expression: str  # capital letters are counts that the machine fills
    who: str  # systems with this layout
    instead: str = "inline"  # the nearest by name, where the graph lacks what this one needs

    @property
    def runs_now(self) -> bool:
        """Whether this version can execute it, for an algorithm that has what it names."""
        return bool(self.expression)


NAMED = (
    NamedPlan("inline", "env+act+learn", "CleanRL, SB3; whole in XLA with a JAX environment: PureJaxRL, Anakin"),
    NamedPlan("replicated", "(env+act+learn)*N", "DD-PPO, Anakin on several devices: gradients averaged over replicas"),
    NamedPlan("actors", "(env+act)*N | learn", "IMPALA, Acme, SRL with inline inference"),
    NamedPlan("seed", "env*N | act+learn", "SEED RL: inference beside the learner"),
    NamedPlan("srl", "env*N | act*M | learn*K", "SRL, OpenAI's Rapid; with devices named: Sebulba"),
    NamedPlan("environments", "env*N | (act+learn)*G", "MSRL's Environments, for multi-agent PPO"),
    NamedPlan("central", "(env+act+grad)*N | apply", "A3C, parameter servers", instead="actors"),
    NamedPlan("apex", "(env+act)*N | replay*R | learn", "Ape-X, R2D2", instead="actors"),
    NamedPlan("auto", "", "nobody: chosen from a measured profile"),
)


def catalogue() -> list[tuple[str, str, str, bool]]:
    """Every named plan: its name, its expression, the systems that have it, and whether this version executes it."""
    return [(p.name, p.expression or "chosen from a measured profile", p.who, p.runs_now) for p in NAMED]


def named(name: str) -> NamedPlan | None:
    """The named plan called ``name``, or None."""
    return next((plan for plan in NAMED if plan.name == name), None)


def expand(plan: NamedPlan, graph: Graph) -> Plan:
    """A named plan's expression for a graph, its counts still open.

    A fragment that the expression does not mention (one of your own, a replay) goes beside its reader; ``act`` means
    every ``act.x``.
    """
    if not plan.expression:
        raise PlanError(
            f"plan {plan.name!r} is chosen from a measured profile: that comes with the planner, which this version "
            "does not have. Nearest plan that runs now: 'inline'. `weft plans` lists the others."
        )
    expression = parse(plan.expression)
    lacking = [name for name in expression.fragments if not stands_for(name, graph)]
    if lacking:
        raise PlanError(
            f"plan {plan.name!r} is '{plan.expression}', and this algorithm has no "
            f"{' and no '.join(map(repr, lacking))} (its fragments: {', '.join(graph.names)}). "
            f"Nearest plan that fits: {plan.instead!r}."
        )
    return complete(fit(expression, graph), graph)
