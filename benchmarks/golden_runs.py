"""The runs of the golden record: small, deterministic, and chosen so that every kind of thing appears several times.

Not the full product of algorithms, plans, environments and channels, which takes hours. To add a run, add a line.
"""

from __future__ import annotations

from dataclasses import dataclass, field

ENVS, UNROLL, LEARN_STEPS, SEED = 8, 8, 20, 3
STEPS = ENVS * UNROLL * LEARN_STEPS

BASE = {"unroll": str(UNROLL), "hidden": "16"}
PPO = BASE | {"epochs": "2", "minibatches": "2"}
SCALED = {"normalise-observations": "true", "normalise-rewards": "true", "learning-rate-end": "0"}
ALGORITHMS: dict[str, tuple[str, dict[str, str]]] = {  # what weft train calls it, and its fields
    "ppo": ("ppo", PPO),
    "ppo scaled": ("ppo", PPO | SCALED),  # its statistics are state too, and its schedule depends on the steps
    "gru": ("ppo", PPO | {"recurrent": "gru", "recurrent-size": "8"}),
    "impala": ("impala", BASE),
    "a2c": ("a2c", BASE),
    "curious": ("examples.fragment:CuriousPPO", PPO | {"bins": "4"}),  # has a fragment of its own, with state
}
ENVIRONMENTS = {"jax": ["weft:CartPole-v1"], "gym": ["CartPole-v1", "--vector", "each"]}


@dataclass(frozen=True)
class GoldenRun:
    """A run: one training, or several of the same run folder, one after the other."""

    algorithm: str  # of ALGORITHMS
    environment: str  # of ENVIRONMENTS
    plan: str = "inline"
    channel: str = ""  # of a plan with workers; "": in one process
    devices: int = 1  # that JAX sees
    seeds: int = 0
    stops: tuple[int, ...] = (STEPS,)  # the steps that each training is asked for
    flags: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def title(self) -> str:
        """Unique, and what ``--only`` looks in."""
        parts = [self.algorithm, self.environment, self.plan, self.channel]
        parts += [f"{self.devices} devices"] * (self.devices > 1) + [f"{self.seeds} seeds"] * (self.seeds > 0)
        parts += ["resumed"] * (len(self.stops) > 1) + [" ".join(self.flags)]
        return " ".join(filter(None, parts))

    def command(self, steps: int) -> tuple[str, list[str]]:
        """The algorithm, and the rest of ``weft train`` from the environment on."""
        name, fields = ALGORITHMS[self.algorithm]
        asked = [*ENVIRONMENTS[self.environment], "--plan", self.plan, "--lockstep", "--run", "golden"]
        asked += ["--envs", str(ENVS), "--steps", str(steps), "--seed", str(SEED), *self.flags]
        asked += ["--channel", self.channel] if self.channel else []
        asked += ["--seeds", str(self.seeds)] if self.seeds else []
        return name, asked + [part for key, value in fields.items() for part in (f"--algo.{key}", value)]

    @property
    def variables(self) -> dict[str, str]:
        """For the processes of the run."""
        return {"XLA_FLAGS": f"--xla_force_host_platform_device_count={self.devices}"}


REPLICAS = "(env+act+learn)*2"
ACTORS = "(env+act)*2 | learn"
SEED_RL = "env*2 | act+learn"
SRL = "env*2 | act*2 | learn*2"
LEARNERS_ACT = "env*2 | (act+learn)*2"
CENTRAL = "(env+act+grad)*2 | apply"
STAGES = "env | act | learn"
HALVES = (STEPS // 2, STEPS)

RUNS = (
    GoldenRun("ppo", "jax"),
    GoldenRun("ppo scaled", "gym"),
    GoldenRun("gru", "jax"),
    GoldenRun("gru", "gym"),
    GoldenRun("impala", "gym"),
    GoldenRun("a2c", "jax"),
    GoldenRun("ppo scaled", "jax", REPLICAS, devices=2),
    GoldenRun("gru", "gym", REPLICAS, devices=2),
    GoldenRun("impala", "jax", REPLICAS, devices=2),
    GoldenRun("ppo", "jax", REPLICAS, "shm"),  # with one device replicas become processes
    GoldenRun("a2c", "gym", REPLICAS, "tcp"),
    GoldenRun("ppo scaled", "gym", ACTORS, "shm"),
    GoldenRun("gru", "jax", ACTORS, "tcp"),
    GoldenRun("ppo", "jax", SEED_RL, "tcp"),
    GoldenRun("a2c", "gym", SEED_RL, "shm", flags=("--ring", "1")),
    GoldenRun("ppo scaled", "gym", SRL, "shm"),
    GoldenRun("impala", "gym", SRL, "tcp"),
    GoldenRun("gru", "gym", LEARNERS_ACT, "shm"),
    GoldenRun("a2c", "jax", LEARNERS_ACT, "tcp"),
    GoldenRun("impala", "gym", CENTRAL, "shm"),
    GoldenRun("a2c", "jax", CENTRAL, "tcp"),
    GoldenRun("gru", "gym", STAGES, "tcp"),
    GoldenRun("impala", "jax", STAGES, "shm"),
    GoldenRun("curious", "jax"),
    GoldenRun("curious", "gym", "(env+act)*2 | novelty+learn", "shm"),
    GoldenRun("ppo", "jax", seeds=2),
    GoldenRun("ppo scaled", "gym", stops=HALVES),
    GoldenRun("gru", "gym", ACTORS, "shm", stops=HALVES),
)
