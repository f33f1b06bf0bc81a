"""IPPO on simple_spread: Weft's compiled engine, and JaxMARL's own training loop, in the same process."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import jax

from benchmarks.serve import Contender, serve
from weft.runtimes.prepare.jax_setup import set_up

ENOUGH_LEARN_STEPS = 10**6
LEARNS = {"epochs": 4, "minibatches": 4, "learning_rate": 2.5e-4, "discount": 0.99, "trace_decay": 0.95}
NOT_MEASURED = ("hydra", "omegaconf", "wandb", "matplotlib", "PIL", "gymnax", "tree")
"""What JaxMARL's files import and its training loop does not need: settings, logging, drawing, other environments."""


def weft(*, envs: int, unroll: int, iterations: int) -> Contender:
    """Weft's compiled engine. A unit is one dispatch of ``iterations``, its report read before the next is sent."""
    from weft.algorithms.ppo import PPO
    from weft.core.specs import Spec
    from weft.envs.builtin import load
    from weft.graph.by_agent import for_agents
    from weft.runtimes.compiled.engine import FusedEngine
    from weft.runtimes.compiled.replicas import Layout

    env = load("Spread-v0")
    of = PPO(unroll=unroll, learning_rate_end=0.0, value_clip=0.2, **LEARNS)  # type: ignore[arg-type]
    algorithm = for_agents(of, env.spec).bind(Spec(env.spec, envs, ENOUGH_LEARN_STEPS))
    engine = FusedEngine(algorithm.graph(), env, Layout((jax.devices()[0],)), envs, seed=0)
    engine.start()

    def run(dispatches: int) -> None:
        for _ in range(dispatches):
            report = engine.advance(iterations)()
            assert report.finite

    return Contender(envs * unroll * iterations, run)


def jaxmarl(*, peers: str, envs: int, unroll: int, iterations: int) -> Contender:
    """JaxMARL's ``train``, compiled. A unit is one call of it, of ``iterations`` updates."""
    module = _loop(Path(peers))
    config = {
        "LR": LEARNS["learning_rate"],
        "NUM_ENVS": envs,
        "NUM_STEPS": unroll,
        "TOTAL_TIMESTEPS": envs * unroll * iterations,
        "UPDATE_EPOCHS": LEARNS["epochs"],
        "NUM_MINIBATCHES": LEARNS["minibatches"],
        "GAMMA": LEARNS["discount"],
        "GAE_LAMBDA": LEARNS["trace_decay"],
        "CLIP_EPS": 0.2,
        "ENT_COEF": 0.01,
        "VF_COEF": 0.5,
        "MAX_GRAD_NORM": 0.5,
        "ACTIVATION": "tanh",
        "ENV_NAME": "MPE_simple_spread_v3",
        "ENV_KWARGS": {},
        "ANNEAL_LR": True,
    }
    program = jax.jit(module.make_train(config))
    keys = iter(range(10**9))

    def run(calls: int) -> None:
        for _ in range(calls):
            jax.block_until_ready(program(jax.random.PRNGKey(next(keys))))

    return Contender(envs * unroll * iterations, run)


@cache
def _loop(peers: Path) -> Any:
    """The module with JaxMARL's loop; what it logs and draws with does nothing."""
    sys.path.insert(0, str(peers))
    for name in NOT_MEASURED:
        if importlib.util.find_spec(name) is None or name in ("hydra", "omegaconf", "wandb"):
            sys.modules[name] = Nothing(name)
    sys.meta_path.append(_Within())
    spec = importlib.util.spec_from_file_location("ippo_ff_mpe", peers / "ippo_ff_mpe.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Nothing(ModuleType):
    """A module, and whatever is taken from it, that can be called and does nothing."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing(f"{self.__name__}.{name}")

    def __call__(self, *arguments: Any, **fields: Any) -> Any:
        """Give back whatever it decorates."""
        return lambda function: function


class _Within:
    """Finds modules within a module that does nothing: they do nothing either."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        if not isinstance(sys.modules.get(name.partition(".")[0]), Nothing):
            return None
        return importlib.util.spec_from_loader(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> ModuleType:
        return Nothing(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


if __name__ == "__main__":
    set_up(cache=False)
    serve({"weft": weft, "jaxmarl": jaxmarl})
