"""Every example does what its docstring says: it runs from anywhere, learns, and prints how well."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import weft

QUIET: dict[str, Any] = {"quiet": True, "tensorboard": False}
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
NAMES = [p.stem for p in EXAMPLES if "\nPLAN" not in p.read_text()]
"""Those that run in one process; the test of a plan is below, those of dataflows are in tests/dataflows."""


def load(name: str, folder: Path) -> Any:
    """An example of the user's folder as a module."""
    module = importlib.import_module(f"examples.{name}")
    assert Path(module.__file__ or "").parent == folder / "examples"
    return module


@pytest.mark.parametrize("name", NAMES)
def test_every_example_runs_and_prints_its_result(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = load(name, here)
    run = example.main(steps=4_096, **QUIET)
    assert run.summary["exit"] == "finished"
    assert run.summary["env_steps"] == 4_096
    out = capsys.readouterr().out
    assert out.startswith("return ")
    assert out.endswith(f", kept in {run.folder}\n")
    assert (here / run.folder / "summary.json").exists()
    loaded = weft.load(run.folder)
    assert jax.tree.all(jax.tree.map(np.array_equal, loaded.params, run.params)), "as a module it opens again too"
    assert f"\npython examples/{name}.py\n" in example.__doc__


@pytest.mark.slow
def test_the_plan_example_makes_its_own_devices_from_anywhere(here: Path) -> None:
    """In a process of its own: it must set XLA's flags before JAX starts, which is too late here."""
    code = "import examples.plan as plan; plan.main(steps=2_048, quiet=True, tensorboard=False)"
    clean = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "PYTHONPATH")}
    clean["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # what it runs is short
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=here, env=clean, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    one, two = ended.stdout.splitlines()
    assert one.startswith("(env+act+learn)@cpu: return ")
    assert two.startswith("(env+act+learn)*2@cpu: return ")


def test_the_workers_example_runs_and_measures_its_streams(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three processes, whose streams are in the summary, and in the drawing of the run."""
    from weft.cli.main import main

    example = load("workers", here)
    run = example.main(steps=16_384, **QUIET)
    assert (run.summary["exit"], run.summary["samples"]["trained"]) == ("finished", 16_384)
    assert run.summary["env_steps"] >= 16_384, "environments run ahead of learn"
    assert capsys.readouterr().out.endswith(f", kept in {run.folder}\n")
    assert "\npython examples/workers.py\n" in example.__doc__
    streams, samples = run.summary["streams"], run.summary["samples"]
    assert set(streams) == {"unroll", "params"}
    assert streams["unroll"]["environments"] == 16
    assert streams["unroll"]["messages_per_second"] > 0
    assert streams["params"]["messages_per_second"] > 0
    assert samples["produced"] == samples["trained"] + sum(samples["dropped"].values()) + samples["in_flight"]
    assert sorted(log.name for log in (run.folder / "logs").iterdir()) == [
        "env+act-0.log",
        "env+act-1.log",
        "learn-0.log",
    ]
    assert main(["show", "workers"]) == 0
    out = capsys.readouterr().out
    assert "╭─ (env+act)*2 ─" in out
    assert "is one lane's, 16 environments" in out


def test_each_example_changes_one_thing(here: Path) -> None:
    """The one line that trains is the base's, but for what the example is about and the run's name."""
    base = _training("base", here)
    assert _training("network", here) == [base[0].replace("0.98)", "0.98, network=(init, apply))"), base[1]]
    assert _training("gymnasium_environment", here) == [base[0], base[1].replace('"weft:CartPole-v1"', "make_docking")]
    assert _training("jax_environment", here) == [base[0], base[1].replace('"weft:CartPole-v1"', "Docking()")]
    assert _training("plan", here) == [base[0], base[1].replace("envs", "plan=plan, envs")]
    assert _training("workers", here) == [base[0], base[1].replace("envs", "plan=PLAN, envs")]
    assert _training("reinforce", here) == [base[1].replace("ppo", "Reinforce()")]


def _training(name: str, folder: Path) -> list[str]:
    source = (folder / "examples" / f"{name}.py").read_text()
    lines = [line.strip() for line in source[source.index("def main") :].splitlines()]
    return [line.partition(", run=")[0] for line in lines if line.startswith(("ppo =", "run ="))]


def test_reinforce_learns(here: Path) -> None:
    """A random policy gets about 22; over eight seeds this got between 441 and 494."""
    run = load("reinforce", here).main(**QUIET)
    assert run.summary["return_mean"] > 250
    assert weft.evaluate(run, episodes=5).return_mean > 250


def test_reinforce_sums_rewards_to_the_end_of_each_episode(here: Path) -> None:
    reinforce = load("reinforce", here).Reinforce(unroll=4, discount=0.5)
    no = np.zeros((4, 2), bool)
    terminated, truncated = no.copy(), no.copy()
    terminated[1, 0] = truncated[2, 1] = True
    reward = np.array([[1.0, 2.0]] * 4, np.float32)
    nothing: Any = None
    unroll = weft.Unroll(nothing, no, nothing, {}, reward, terminated, truncated, 0 * reward, (), nothing, nothing)
    assert np.asarray(reinforce.returns(unroll)).T.tolist() == [[1.5, 1.0, 1.5, 1.0], [3.5, 3.0, 2.0, 2.0]]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["network", "jax_environment"])
def test_what_examples_reach(name: str, here: Path) -> None:
    reached = load(name, here).main(**QUIET).summary["return_mean"]
    # CartPole: at most 500, and 22 by chance. Docking: about -1.3 at best, and far below -5 by chance (below).
    assert reached > {"network": 400.0, "jax_environment": -2.5}[name]


def test_chance_does_not_dock(here: Path) -> None:
    env = load("gymnasium_environment", here).make_docking()
    env.action_space.seed(0)
    returns = []
    for episode in range(20):
        env.reset(seed=episode)
        total, ended = 0.0, False
        while not ended:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total, ended = total + reward, terminated or truncated
        returns.append(total)
    assert np.mean(returns) < -5


def test_both_ships_are_the_same(here: Path) -> None:
    """The environment in Gymnasium is the oracle of the one in JAX."""
    import jax

    theirs, ours = load("gymnasium_environment", here).Docking(), load("jax_environment", here).Docking()
    theirs.reset(seed=0)
    ship, observation = ours.reset(jax.random.key(0))
    theirs.position = float(ship.position)
    step = jax.jit(ours.step)
    ends = 0
    for time in range(60):
        action = 2 * int(observation[0] + 4 * observation[1] < 0)
        ship, ours_now = step(ship, action, jax.random.key(time))
        seen, reward, terminated, truncated, _ = theirs.step(action)
        observation = ours_now.observation
        np.testing.assert_allclose(observation, seen, atol=1e-4)
        np.testing.assert_allclose(ours_now.reward, reward, atol=1e-4)
        assert (bool(ours_now.terminated), bool(ours_now.truncated)) == (terminated, truncated)
        ends += terminated
    assert ends > 0
    assert truncated


@pytest.mark.slow
def test_the_bonus_is_what_makes_it_learn(here: Path) -> None:
    fragment = load("fragment", here)
    with_bonus = fragment.main(**QUIET).summary["return_mean"]
    without = fragment.main(bonus=0.0, root=here / "without", **QUIET).summary["return_mean"]
    assert with_bonus > 0.5  # at best 0.6: it arrives
    assert without < 0.05


@pytest.mark.parametrize(
    ("environment", "plan"),
    [
        ("weft:MountainCar-v0", "(env+act+novelty+learn)*2"),
        ("MountainCar-v0", "inline"),
        pytest.param("weft:MountainCar-v0", "inline", marks=pytest.mark.slow),
        pytest.param("MountainCar-v0", "(env+act+novelty+learn)*2", marks=pytest.mark.slow),
    ],
)
def test_the_fragment_runs_fused_and_hosted_and_replicated(environment: str, plan: str, here: Path) -> None:
    """And its state counts every step that one replica made, whichever engine counted; all replicas agree on it."""
    from weft.runtimes.loop.engines import make_engine
    from weft.runtimes.prepare.config import RunConfig, prepare

    algorithm = load("fragment", here).CuriousPPO(unroll=4, hidden=(8,), epochs=1, minibatches=1)
    engine = make_engine(prepare(RunConfig(algorithm, environment, plan=plan, envs=8, steps=10_000)))
    try:
        engine.start()
        engine.advance(3)()
        visits = engine.saved()[0].fragments["novelty"]
        held = [np.asarray(shard.data) for shard in visits.addressable_shards]
    finally:
        engine.close()
    replicas = 2 if "*2" in plan else 1
    assert len(held) == replicas
    for counts in held:
        assert counts.shape == (20 * 20,)
        assert counts.sum() == 3 * 4 * 8 / replicas
        np.testing.assert_array_equal(counts, held[0])
