"""Every setting of a run, declared once: those that decide its result, and those that say how it is carried out.

To add one, add a field here and use it. The command line, ``weft.train``, the checks and ``config.json`` follow from
the declaration (``weft.core.setting``); ``python docs/generate_settings.py`` writes it into docs/runs.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from weft.core.errors import ConfigError
from weft.core.setting import REQUIRED, check_settings, setting
from weft.envs.guards import BOUNDS, ERRORS
from weft.envs.protocol import VECTOR_MODES, EnvLike
from weft.graph.algorithm import Algorithm
from weft.plans.plan import Plan
from weft.runtimes.prepare.rules import Rule

MAX_SEED = 2**31 - 1
"""Seeds are int32 on the device; those of a run go from ``seed`` to ``seed + seeds``."""


ON = re.compile(r"local|ray|(ray://)?[A-Za-z0-9.\-]+:[0-9]{1,5}|processes:[0-9]{1,6}")
"""What ``on`` may be."""


@dataclass(frozen=True)
class RunConfig:
    """What decides a run's result. None means: as tuned for the environment."""

    algorithm: Algorithm | str = setting(
        REQUIRED, "a name (`weft algorithms`), or package.module:Class", argument="ALGO"
    )
    environment: EnvLike = setting(
        REQUIRED,
        "a Gymnasium id, weft:NAME, gymnax:NAME (`weft envs`), or package.module:factory",
        argument="ENV",
    )
    _: KW_ONLY
    plan: str | Plan = setting("inline", "where the fragments run: a name (`weft plans`) or an expression")
    lockstep: bool = setting(
        False, "learn only from what the current params did: the result is then the same for every plan"
    )
    max_lag: int = setting(
        1,
        "versions that params may be behind, unless in lockstep; older is dropped",
        at_least=0,
        unit="versions",
        only="lag",
    )
    steps: int | None = setting(
        None, "environment steps for each seed; unless set: tuned for the environment", at_least=1
    )
    seed: int = setting(0, "of everything that is random", at_least=0, at_most=MAX_SEED)
    seeds: int = setting(0, "seeds to train side by side, from seed on; 0: one, without a seed axis", at_least=0)
    envs: int | None = setting(None, "environments in the whole run; unless set: tuned for the environment", at_least=1)
    vector: str = setting(
        "auto",
        "Gymnasium: its own vector environment (refused in lockstep), or one by one",
        choices=VECTOR_MODES,
        noun="vector mode",
    )
    env_options: Mapping[str, Any] = setting(
        {}, "options for the environment, a dict; on the command line --env.OPTION VALUE"
    )
    env_errors: str = setting(
        "reset",
        "where a Gymnasium environment raises: reset that one and go on, or fail",
        choices=ERRORS,
        noun="answer to environments' errors",
    )
    env_bounds: str = setting(
        "warn",
        "where a host environment's observation is outside its Box: warn and count, fail, or ignore",
        choices=BOUNDS,
        noun="answer to observations outside their Box",
    )
    curriculum: str | Rule | None = setting(
        None,
        "a rule that sets options of the environment by what evaluation in the run found (--eval-every): "
        "package.module:function",
    )
    fields: Mapping[str, Any] = field(default_factory=dict)  # no setting: the algorithm's own fields to change

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a run is carried out: nothing here changes its result."""

    run: str | None = setting(None, "the run's name, its folder in root; unless set: ALGO-ENV-sSEED")
    root: Path = setting(Path("runs"), "the folder that runs are kept in")
    fresh: bool = setting(
        False, "begin anew: a run of that name that exists is kept under a number, NAME.1; unless set, it is resumed"
    )
    new_code: bool = setting(
        False, "go on with a run although code of yours, the environment's or the algorithm's, has changed since"
    )
    on: str = setting(
        "local",
        "where workers run: `local`; `ray`, here or on a cluster (`ray://HOST:PORT`, `HOST:PORT`); or `processes:N`, N "
        "hosts that are processes of this machine, to try what crosses hosts",
    )
    trust_network: bool = setting(
        False, "use a Ray cluster although it asks nobody for a token: whoever reaches it can run code on it"
    )
    grow: str = setting(
        "",
        "FRAGMENT=LEAST:MOST, such as env=2:64: where hosts join the cluster or are lost, the run goes over to as many "
        "replicas of that group as there is room for; of several, separated by commas, the first gets room first",
    )
    checkpoint_seconds: float = setting(
        30.0, "from one checkpoint to the next; there is always one at the end", at_least=0
    )
    keep_checkpoints: int = setting(3, "how many of the newest checkpoints stay; older ones are removed", at_least=1)
    keep_best: int = setting(
        1, "how many checkpoints of the highest mean return in training stay besides; 0: none", at_least=0
    )
    keep_every: int = setting(
        0, "env steps from one checkpoint that stays for good to the next; 0: none does", at_least=0, unit="env steps"
    )
    mirror: str = setting(
        "",
        "a place that fsspec knows (`s3://BUCKET/runs`, `file:///mnt/runs`): what the run needs to go on is copied "
        "there with each checkpoint, and fetched from there where its folder is not here",
    )
    eval_every: int = setting(
        0,
        "env steps, for each seed, from one evaluation in the run to the next; there is one at the end too; 0: none",
        at_least=0,
        unit="env steps",
    )
    eval_episodes: int = setting(20, "episodes of each of those, in environments of its own", at_least=1)
    eval_sample: bool = setting(False, "draw actions in those instead of taking the likeliest")
    stop_at: float | None = setting(
        None, "a mean return at which the run ends early: of the last 100 episodes, or of evaluation where there is one"
    )
    ring: int = setting(
        2,
        "slices of an env worker's environments: one is stepped while others wait for their actions",
        at_least=1,
        unit="slice",
        only="workers",
    )
    channel: str = setting(
        "shm",
        "what joins worker processes: shared memory, Unix sockets without a name, or encrypted sockets on loopback",
        choices=("shm", "ipc", "tcp"),
        only="workers",
    )
    compress: str = setting(
        "images",
        "what is compressed on its way to another host: images (arrays of 4 KiB of uint8 and more), where both have "
        "lz4 and it halves them; or nothing",
        choices=("images", "nothing"),
        only="workers",
    )
    hang_seconds: float = setting(
        30.0,
        "a worker without progress for so long is killed and replaced; in one process, an environment is named",
        above=0,
    )
    tensorboard: bool = setting(True, "write TensorBoard files")
    wandb: str | None = setting(None, "a W&B project to log to")
    quiet: bool = setting(False, "show nothing but warnings")

    def __post_init__(self) -> None:
        check_settings(self)
        if not ON.fullmatch(self.on):
            raise ConfigError(
                f"on={self.on!r} is no runtime: expected local, ray, ray://HOST:PORT, HOST:PORT or processes:N."
            )
