"""Dataflows that examples make without touching the package, and the plans that each is tried with.

To add a flow, write examples/NAME.py and add a row to FLOWS.
"""

from __future__ import annotations

import importlib
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
from toys import SMALL

import weft
from weft.runtimes.loop.engines import make_engine
from weft.runtimes.prepare.config import Prepared, RunConfig, Settings, prepare

ENVS, LEARN_STEPS, SEED = 8, 20, 3
TOLERANCE = 1e-5
"""Sums are taken in another order where batches have another shape: see tests/conformance/cells.py."""
LITTLE: dict[str, Any] = {"unroll": 4, "hidden": (8,)}
"""As SMALL, for algorithms that make one update of each batch."""


class Flow(NamedTuple):
    """A row: what an example makes, and where it is to run."""

    example: str  # its name in examples/
    algorithm: str  # its class there
    legs: tuple[str, ...]  # streams that the example adds, as drawings have them: "act ─unroll→ relabel"
    workers: tuple[str, ...]  # plans in worker processes; the first is the example's own
    one_process: tuple[str, ...] = ()  # plans besides inline that run in one process with two devices
    fields: dict[str, Any] = SMALL
    environment: str = "weft:CartPole-v1"  # or a class of the example
    arguments: tuple[str, ...] = ("--algo.hidden", "16")  # of a run that is killed

    def make(self) -> tuple[Any, Any]:
        """The algorithm, small, and the environment. The examples must be importable."""
        module = importlib.import_module(f"examples.{self.example}")
        fields = {name: value() if callable(value) else value for name, value in self.fields.items()}
        found = getattr(module, self.environment, None)
        return getattr(module, self.algorithm)(**fields), found() if found else self.environment

    @property
    def command(self) -> tuple[str, ...]:
        """The arguments that name it on the command line."""
        environment = self.environment if ":" in self.environment else f"examples.{self.example}:{self.environment}"
        return (f"examples.{self.example}:{self.algorithm}", environment, *self.arguments)


FLOWS = {
    flow.example: flow
    for flow in (
        Flow(
            "relabel",
            "ShapedPPO",
            ("act ─unroll→ relabel", "relabel ─unroll→ learn"),
            (
                "(env+act)*2 | relabel*2 | learn",
                "env*2 | act*2 | relabel | learn",
                "env*2 | act | (relabel+learn)*2",
                "(env+act+relabel)*2 | learn",
            ),
            ("(env+act+relabel+learn)*2",),
        ),
        Flow(
            "reward_model",
            "JudgedPPO",
            ("act ─unroll→ judge", "judge ─unroll→ learn"),
            (
                "(env+act)*2 | judge*2 | learn",
                "env*2 | act+judge | learn",
                "(env+act+judge)*2 | learn",
                "env*2 | act | judge+learn",
            ),
            fields={**SMALL, "model": "numpy"},
            arguments=("--algo.hidden", "16", "--algo.model", "numpy"),
        ),
        Flow(
            "reanalyse",
            "FreshPPO",
            ("act ─unroll→ reanalyse", "reanalyse ─unroll→ learn", "learn ─params→ reanalyse"),
            (
                "(env+act)*2 | reanalyse | learn",
                "env*2 | act | reanalyse*2 | learn",
                "(env+act)*2 | reanalyse+learn",
            ),
            ("(env+act+reanalyse+learn)*2",),
        ),
        Flow(
            "two_teams",
            "TwoTeams",
            (
                "env ─timestep.red→ act.red",
                "act.blue ─action.blue→ env",
                "act.red ─unroll.red→ learn.red",
                "learn.blue ─params.blue→ act.blue",
            ),
            (
                "(env+act.red+act.blue)*2 | learn.red | learn.blue",
                "env*2 | act.* | learn.*",
                "env*2 | act.red*2 | act.blue | learn.red+learn.blue",
            ),
            ("(env+act.*+learn.*)*2",),
            fields={"unroll": 4, "red": lambda: weft.PPO(**SMALL), "blue": lambda: weft.A2C(**LITTLE)},
            environment="Chase",
            arguments=(),
        ),
        Flow(
            "sift_role",
            "SiftedPPO",
            ("act ─unroll→ sift", "sift ─unroll→ learn"),
            ("(env+act)*2 | sift | learn", "env*2 | act | sift+learn", "env*2 | act+sift | learn"),
        ),
        Flow(
            "watch",
            "WatchedPPO",
            ("learn ─params→ drift",),
            ("(env+act)*2 | learn | drift", "env*2 | act | learn+drift"),
        ),
    )
}


class Learned(NamedTuple):
    """What a run knew at its end."""

    params: Any  # by learner
    samples: Any  # the engine's ledger; None in one process
    episodes: list[tuple[float, ...]]  # of each policy: how many, their returns and their lengths in all


def prepared(
    flow: str, plan: str = "inline", *, algorithm: Any = None, environment: Any = None, lockstep: bool = True
) -> Prepared:
    """A run of a flow, or of another algorithm or environment; raises PlanError where it cannot run."""
    usual, its_own = FLOWS[flow].make()
    algorithm, environment = algorithm or usual, environment or its_own
    steps = ENVS * algorithm.unroll * LEARN_STEPS
    return prepare(RunConfig(algorithm, environment, plan=plan, envs=ENVS, steps=steps, seed=SEED, lockstep=lockstep))


def learned(run: Prepared, **settings: Any) -> Learned:
    """Train for LEARN_STEPS."""
    with tempfile.TemporaryDirectory() as logs:
        engine = make_engine(run, Settings(**settings), Path(logs))
        try:
            engine.start()
            report = engine.advance(LEARN_STEPS)()
            assert report.finite
            assert report.learn_steps == LEARN_STEPS
            episodes = [tuple(map(sum, zip(*told, strict=True))) for told in report.episodes]
            states = jax.device_get({name: state.params for name, state in engine.train_states().items()})
            return Learned(states, report.samples, episodes)
        finally:
            engine.close()


@cache
def inline(flow: str) -> Learned:
    """What one process learns."""
    run = prepared(flow)
    assert not run.in_workers
    return learned(run)
