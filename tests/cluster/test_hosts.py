"""The same plan on several hosts, which are processes of this machine: the same result, and nothing left behind."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import weft
from weft.core.errors import ConfigError, PlanError
from weft.runtimes.cluster import cluster as cluster_module
from weft.runtimes.cluster.fitness import fitness

SMALL: dict[str, Any] = {
    "steps": 768,
    "envs": 8,
    "seed": 3,
    "fields": {"unroll": 16, "hidden": (8,)},
    "quiet": True,
    "tensorboard": False,
}


def trained(root: Any, plan: str, algorithm: str = "ppo", **how: Any) -> weft.Run:
    settings = {**SMALL, **how}
    fields = settings.pop("fields")
    return weft.train(algorithm, "CartPole-v1", plan=plan, root=root, run="r", fresh=True, **settings, **fields)


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def test_lockstep_over_hosts_is_as_on_one(tmp_path: Any) -> None:
    """To the bit, as in workers here. Every stream crosses: timesteps, actions, unrolls, and params by relays."""
    plan = "env*2@node:host-0 | act@node:host-1 | learn@node:host-2"
    over = trained(tmp_path, plan, on="processes:3", lockstep=True)
    assert same(over.params, trained(tmp_path, "env*2 | act | learn", lockstep=True).params)
    samples = over.summary["samples"]
    assert (samples["produced"], samples["trained"], samples["in_flight"]) == (768, 768, 0)
    assert over.summary["env_steps"] == 768
    logs = {path.name for path in (tmp_path / "r.1" / "logs").glob("*.log")}
    assert {"env-0.log", "env-1.log", "act-0.log", "learn-0.log"} <= logs


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["(env+act)*2 | learn", "env*4 | act*2 | learn", "env*2 | act | learn*2"])
def test_any_plan_in_lockstep_over_hosts_is_as_on_one(tmp_path: Any, plan: str) -> None:
    over = trained(tmp_path, plan, on="processes:3", lockstep=True)
    assert same(over.params, trained(tmp_path, plan, lockstep=True).params)


def test_what_cannot_be_is_refused_before_anything_is_started(tmp_path: Any) -> None:
    with pytest.raises(PlanError, match=r"wants a node 'sim'.* the cluster has none: host-0"):
        trained(tmp_path, "env*2@node:sim | act | learn", on="processes:2")
    with pytest.raises(ConfigError, match="only a cluster has"):
        trained(tmp_path, "env*2@node:sim | act | learn")
    with pytest.raises(ConfigError, match="expected local, ray"):
        trained(tmp_path, "inline", on="slurm")
    assert list(tmp_path.iterdir()) == []


def test_a_host_with_other_sources_is_refused_and_both_are_named(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "fitness", lambda: fitness() | {"jax": "0.0.1", "sources": "beef"})
    with pytest.raises(ConfigError, match=r"host host-\d has JAX '.*', and here it is '0.0.1'; the sources .*'beef'"):
        trained(tmp_path, "env*2 | act | learn", on="processes:2")
