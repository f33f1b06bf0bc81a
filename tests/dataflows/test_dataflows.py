"""Each dataflow of the table under each of its plans: it learns the same, is drawn, and survives kill -9.

Without workers: ``-k "not workers"``.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import random
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from cells import one_device
from flows import FLOWS, TOLERANCE, inline, learned, prepared
from running import missing
from toys import farthest

import weft
from weft.runtimes.loop.engines import make_engine
from weft.runtimes.prepare.config import Settings

EXAMPLES = Path(__file__).parents[2] / "examples"
QUIET = {"quiet": True, "tensorboard": False}
IN_WORKERS = [(name, plan) for name, flow in FLOWS.items() for plan in flow.workers]
IN_ONE_PROCESS = [(name, plan) for name, flow in FLOWS.items() for plan in flow.one_process]
QUICK = {(name, FLOWS[name].workers[0]) for name in ("relabel", "reward_model", "two_teams")}  # with workers


def but_for(quick, *cases):
    """Cases of which only ``quick`` ones are in the normal suite: the others say the same at length."""
    return [pytest.param(*c, marks=[] if (c if len(c) > 1 else c[0]) in quick else [pytest.mark.slow]) for c in cases]


EACH_WITH_ITS_OWN = [(name, flow.workers[0]) for name, flow in FLOWS.items()]


# ---- what it learns ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flow", but_for({"two_teams"}, *((name,) for name in FLOWS)))
def test_with_host_code_in_its_graph_it_learns_the_same(flow, here):
    """One program, or a loop on the host around several."""
    usual, _ = FLOWS[flow].make()
    stream = "unroll.red" if flow == "two_teams" else "unroll"

    class Hosted(type(usual)):
        def graph(self):
            return super().graph().insert("looks_on", lambda state, unroll: (state, unroll), on=stream, host=True)

    fields = {field.name: getattr(usual, field.name) for field in dataclasses.fields(usual)}
    hosted = learned(prepared(flow, algorithm=Hosted(**fields)))
    assert farthest(hosted.params, inline(flow).params) < TOLERANCE
    np.testing.assert_allclose(hosted.episodes, inline(flow).episodes, rtol=1e-5)


@pytest.mark.parametrize(
    "flow", but_for({"reward_model"}, *((name,) for name, f in FLOWS.items() if f.environment == "weft:CartPole-v1"))
)
def test_it_runs_around_a_host_environment(flow, here):
    run = prepared(flow, environment="CartPole-v1")
    assert farthest(learned(run).params, inline(flow).params) > TOLERANCE, "other episodes"


@pytest.mark.parametrize("flow", but_for({"relabel"}, ("relabel",), ("reward_model",), ("sift_role",)))
def test_it_is_not_what_ppo_learns_without_it(flow, here):
    """The comparisons can fail: what the example adds makes a difference."""
    run = prepared(flow)
    own = {field.name: getattr(run.algorithm, field.name) for field in dataclasses.fields(weft.PPO)}
    assert farthest(learned(prepared(flow, algorithm=weft.PPO(**own))).params, inline(flow).params) > 100 * TOLERANCE


@pytest.mark.parametrize(("flow", "plan"), but_for({IN_ONE_PROCESS[-1]}, *IN_ONE_PROCESS))
def test_two_devices_learn_what_one_learns(flow, plan, here):
    run = prepared(flow, plan)
    assert not run.in_workers
    assert farthest(learned(run).params, inline(flow).params) < TOLERANCE


@pytest.mark.parametrize(("flow", "plan"), but_for(QUICK, *IN_WORKERS))
def test_every_plan_of_the_table_is_accepted(flow, plan, here):
    with one_device():
        run = prepared(flow, plan)
    assert run.in_workers


@pytest.mark.parametrize(("flow", "plan"), but_for(QUICK, *IN_WORKERS))
def test_workers_learn_in_lockstep_what_one_process_learns(flow, plan, here):
    with one_device():
        run = prepared(flow, plan)
    found = learned(run)
    assert farthest(found.params, inline(flow).params) < TOLERANCE
    np.testing.assert_allclose(found.episodes, inline(flow).episodes, rtol=1e-5)  # float32 in a program, else float64
    assert found.samples.balanced
    assert found.samples.trained == run.steps * len(run.series)
    assert found.samples.dropped == {}


@pytest.mark.slow
def test_workers_over_sockets_learn_the_same(here):
    run = prepared("reanalyse", "(env+act)*2 | reanalyse | learn")
    found = learned(run, channel="tcp")
    assert farthest(found.params, inline("reanalyse").params) < TOLERANCE
    assert found.samples.balanced


# ---- what it loses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flow", "plan", "kills"),
    [
        *(pytest.param(flow, plan, 6, marks=pytest.mark.slow) for flow, plan in IN_WORKERS),
    ],
)
def test_workers_killed_at_random_are_replaced_and_no_sample_is_lost_from_sight(flow, plan, kills, training):
    """And the run can be interrupted after that, and goes on to its end."""
    arguments = [*FLOWS[flow].command, "--plan", plan, "--envs", "8", "--seed", "1", "--checkpoint-seconds", "0.5"]
    run = training(*arguments, "--steps", "100000000")
    run.wait_for_learning(2)
    run.wait_for_checkpoint()
    choose = random.Random(f"{flow} {plan}")
    for _ in range(kills):
        name = choose.choice(sorted(run.workers()))
        pid = run.kill(name)
        run.wait_for_another(name, pid, 20.0)
        run.wait_for_learning(2)
    assert run.end(signal.SIGINT) == 130
    assert run.left() == []
    summary = run.summary
    assert summary["exit"] == "interrupted"
    assert summary["restarts"] >= kills  # one worker's death may take others with it
    assert missing(summary["samples"]) == 0
    assert summary["samples"]["trained"] > 0
    again = training(*arguments, "--steps", str(summary["env_steps"] + 8192))
    assert again.end(seconds=120) == 0, again.err
    assert again.left() == []
    last = again.summary
    assert last["exit"] == "finished"
    assert missing(last["samples"]) == 0
    assert last["samples"]["trained"] > summary["samples"]["trained"]


def test_a_learner_that_was_saved_ahead_of_another_lets_it_catch_up(here):
    """It is at its limit from the start, and holds the slots that the environments need for the other."""
    with one_device():
        run = prepared("two_teams", "(env+act.red+act.blue)*2 | learn.red | learn.blue", lockstep=False)
    engine = make_engine(run, Settings(), here / "logs")
    try:
        engine.start()
        engine.advance(2)()
        state, document = engine.saved()
        behind = int(min(learner.step for learner in state.fragments.values()))
        red = state.fragments["learn.red"]
        fragments = {**state.fragments, "learn.red": red._replace(step=red.step + 5)}
        engine.resume(state._replace(fragments=fragments), document)
        fetch = engine.advance(4)
        got = []
        waiting = threading.Thread(target=lambda: got.append(fetch()), daemon=True)
        waiting.start()
        waiting.join(60.0)
        assert got, "it stands still"
        assert engine._version >= behind + 4
    finally:
        engine.close()


def test_workers_of_your_own_are_killed_too(training):
    """The one that is not in any graph of ours, by name: its messages on their way are lost, and counted."""
    run = training(
        *FLOWS["sift_role"].command, "--plan", "(env+act)*2 | sift | learn", "--envs", "8", "--steps", "10_000_000"
    )
    run.wait_for_learning(2)
    pid = run.kill("sift-0")
    run.wait_for_another("sift-0", pid, 20.0)
    run.wait_for_learning(2)
    assert run.end(signal.SIGINT) == 130
    assert run.left() == []
    assert run.summary["restarts"] == 1
    assert missing(run.summary["samples"]) == 0


# ---- how it looks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flow", FLOWS)
def test_it_is_drawn_in_one_process(flow, here):
    drawing = weft.show(*FLOWS[flow].make(), envs=8)
    for leg in FLOWS[flow].legs:
        assert f" {leg} " in drawing


@pytest.mark.parametrize(("flow", "plan"), but_for(set(EACH_WITH_ITS_OWN), *IN_WORKERS))
def test_it_is_drawn_in_its_groups(flow, plan, here):
    """As Mermaid, which has the same groups and streams."""
    drawing = weft.show(*FLOWS[flow].make(), plan=plan, envs=8, mermaid=True)
    assert drawing.count("subgraph") == plan.count("|") + 1
    for source, stream, target in (leg.replace("→", "─").split("─") for leg in FLOWS[flow].legs):
        source, target = (f"f_{name.strip().replace('.', '_')}" for name in (source, target))
        assert any(
            line.strip().startswith((f'{source} ==>|"{stream}<', f'{source} -->|"{stream}<'))
            and line.endswith(f"| {target}")
            for line in drawing.splitlines()
        ), (source, stream, target)


@pytest.mark.parametrize(("flow", "plan"), EACH_WITH_ITS_OWN)
def test_workers_are_drawn_with_the_streams_between_them(flow, plan, here):
    drawing = weft.show(*FLOWS[flow].make(), plan=plan, envs=8)
    for group in plan.split(" | "):
        assert f"╭─ {group} ─" in drawing
    for source, stream, target in (leg.replace("→", "─").split("─") for leg in FLOWS[flow].legs):
        rows = [line.split() for line in drawing.splitlines()]
        assert any(row[:4] == [stream, source.strip(), "→", target.strip()] for row in rows)


# ---- how it is written ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flow", but_for({"reward_model", "two_teams"}, *((name,) for name in FLOWS)))
def test_the_example_runs_in_one_process_and_prints_its_result(flow, here, capsys):
    _check_main(flow, "inline", here, capsys)


@pytest.mark.parametrize("flow", but_for({"two_teams"}, *((name,) for name in FLOWS)))
def test_workers_run_the_example_as_it_is(flow, here, capsys):
    _check_main(flow, None, here, capsys)


def _check_main(flow, plan, here, capsys):
    example = importlib.import_module(f"examples.{flow}")
    assert Path(example.__file__).parent == here / "examples"
    assert FLOWS[flow].workers[0] == example.PLAN
    run = example.main(steps=4_096, **({"plan": plan} if plan else {}), **QUIET)
    assert run.summary["exit"] == "finished"
    assert run.summary["env_steps"] >= 4_096
    assert missing(run.summary["samples"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("return ")
    assert out.endswith(f", kept in {run.folder}\n")
    assert f"\npython examples/{flow}.py\nweft show examples.{flow}:{FLOWS[flow].algorithm} " in example.__doc__


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_use_nothing_but_the_public_names(example):
    tree = ast.parse(example.read_text())
    used = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert not [a.name for a in node.names if a.name.startswith("weft.")], "import weft, and no more of it"
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").partition(".")[0] != "weft", "import weft, and no more of it"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "weft":
            used.add(node.attr)
    assert used
    assert used <= set(weft.__all__)
