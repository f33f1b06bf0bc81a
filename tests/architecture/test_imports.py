"""What loading costs: ``import weft`` and environment workers never load JAX; lists and help texts do not either."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("jax", "jaxlib", "flax", "optax", "gymnasium", "tensorboardX", "rich", "wandb", "ray")


def loaded_by(code: str) -> set[str]:
    """The packages that ``code`` loads in a fresh interpreter."""
    tell = (
        "import sys, json; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", f"{code}\n{tell}"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return set(json.loads(ended.stderr.splitlines()[-1]))


def test_importing_weft_loads_nothing_heavy() -> None:
    assert not loaded_by("import weft; dir(weft); weft.WeftError; weft.EnvSpec").intersection(HEAVY)


def test_a_worker_with_a_gymnasium_environment_never_loads_jax() -> None:
    loaded = loaded_by(
        """
import numpy as np
from weft.core.buffers import timestep_buffers
from weft.envs.registry import open_environment
for vector in ("each", "native"):
    source = open_environment("CartPole-v1", vector=vector)
    env = source.host(2, seed=0)
    out = timestep_buffers(source.spec, (2,))
    env.reset(out)
    env.step(np.zeros(2, np.int32), out)
    env.close()
"""
    )
    assert "gymnasium" in loaded
    assert not loaded & {"jax", "jaxlib", "flax", "optax"}


def test_a_worker_with_a_pettingzoo_environment_never_loads_jax() -> None:
    loaded = loaded_by(
        """
import numpy as np
from weft.core.buffers import timestep_buffers
from weft.envs.registry import open_environment
source = open_environment("pettingzoo:mpe/simple_spread_v3")
env = source.host(2, seed=0)
out = timestep_buffers(source.spec, (2,))
env.reset(out)
env.step(np.zeros((2, 3), np.int32), out)
env.close()
"""
    )
    assert "pettingzoo" in loaded
    assert not loaded & {"jax", "jaxlib", "flax", "optax"}


def test_other_environments_do_not_load_pettingzoo() -> None:
    code = "from weft.envs.registry import open_environment; open_environment('CartPole-v1', vector='each')"
    assert not loaded_by(code) & {"pettingzoo", "mpe2", "pygame"}


@pytest.mark.parametrize("arguments", [["--help"], ["plans"], ["plans", "--help"], ["algorithms"], ["eval", "--help"]])
def test_lists_and_help_texts_load_nothing_heavy(arguments: list[str]) -> None:
    assert not loaded_by(f"from weft.cli.main import main; assert main({arguments}) == 0").intersection(HEAVY)


def test_an_environment_workers_code_loads_no_jax() -> None:
    """All that a worker with environments alone imports before it makes them; its role is found by its name."""
    modules = (
        "runtimes.synchrony",
        "runtimes.workers.worker",
        "runtimes.workers.wiring",
        "runtimes.workers.wires",
        "runtimes.workers.layout.blueprint",
        "runtimes.workers.counting.ledger",
    )
    code = "\n".join(f"import weft.{module}" for module in modules)
    code += "\nfrom weft.graph.role import role\nrole('step').code()"
    assert not loaded_by(code) & {"jax", "jaxlib", "flax", "optax", "gymnasium"}


def test_reading_a_run_folder_and_a_plan_loads_no_jax() -> None:
    """What a launcher or a monitor needs."""
    modules = (
        "core.errors",
        "core.specs",
        "core.types",
        "envs.protocol",
        "plans",
        "services.run_folder",
        "telemetry.ledger",
    )
    code = "\n".join(f"import weft.{module}" for module in modules)
    assert not loaded_by(code) & {"jax", "jaxlib", "flax", "optax"}
