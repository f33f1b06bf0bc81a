"""The comparison with distributed peers: its environments, its arithmetic, and the harness. Asserts no speed."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks import costly, distributed, ring, weft_command
from benchmarks.__main__ import main
from benchmarks.measure import Case, interleave
from benchmarks.options import Options
from benchmarks.serve import Window
from benchmarks.table import tables
from benchmarks.weft_command import Measured, NotRun, steady_rate


def record(wall_seconds: float, learn_steps: int) -> dict[str, float]:
    return {"wall_seconds": wall_seconds, "learn_steps": learn_steps}


@pytest.mark.parametrize("name", ["burning", "sleeping", "CartPole-v1"])
def test_environments_are_made_by_name_and_repeat(name: str) -> None:
    seen = []
    for _ in range(2):
        env = costly.make(name)
        first, _ = env.reset(seed=3)
        after = env.step(env.action_space.dtype.type(1))[0]
        assert env.observation_space.contains(after)
        seen.append((first.tolist(), after.tolist()))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("make", [costly.Burning, costly.Sleeping])
def test_a_costly_episode_terminates_at_its_200th_step(make: type[costly.Costly]) -> None:
    env = make(seconds=0.0)
    env.reset(seed=0)
    ends = [env.step(0)[2:4] for _ in range(costly.EPISODE_STEPS)]  # type: ignore[arg-type]
    assert ends == [(False, False)] * (costly.EPISODE_STEPS - 1) + [(True, False)]


def test_burning_uses_the_core_and_sleeping_does_not() -> None:
    used = {}
    for env in (costly.Burning(0.02), costly.Sleeping(0.02)):
        env.reset(seed=0)
        wall, began = time.perf_counter(), time.thread_time()
        env.step(0)  # type: ignore[arg-type]
        used[type(env)] = time.thread_time() - began
        assert time.perf_counter() - wall >= 0.02
    assert used[costly.Burning] >= 0.02 > used[costly.Sleeping]


def test_what_was_made_while_the_learner_compiled_is_left_out() -> None:
    """512 steps a second for ever, and 1,024 more that were waiting when the learner was ready."""
    told = [record(10.0, 1), record(10.01, 3)] + [record(10.0 + s, 3 + s) for s in range(1, 6)]
    assert steady_rate(told, 512) == pytest.approx(512.0)
    # Few records: never the first.
    assert steady_rate([told[0], told[1], told[-1]], 512) == pytest.approx(512.0, rel=0.01)
    assert steady_rate(told[:2], 512) is None


def test_a_run_with_too_few_records_is_made_longer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def run(environment: str, flags: list[str], folder: Path, limit: float, **how: Path) -> dict[str, float]:
        asked.append(flags[flags.index("--steps") + 1])
        lines = [record(1.0, 1), record(2.5, 2), record(4.5, 6)][: 2 if len(asked) < 3 else 3]
        (folder / "a-run").mkdir()
        (folder / "a-run" / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
        return {"env_steps_per_second": 100.0}

    monkeypatch.setattr(weft_command, "run", run)
    measured = Measured("CartPole-v1", "inline", 4, 8, 2.0, tmp_path)
    measured.prepare(64)
    assert measured() == pytest.approx(2 * 4 * 8)  # two learn steps a second
    assert asked == ["64", "384", "768"]  # 12 learn calls at least, then twice that
    assert not list(tmp_path.iterdir())


def test_a_plan_that_weft_refuses_is_a_row_of_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = Case("title", "env steps/s", {"other": lambda: 1.0})
    measured = Measured("CartPole-v1", "env | nonsense", 4, 8, 0.01, tmp_path)
    distributed.add_weft(case, Options(), "Weft env | nonsense", measured, 64)
    printed = tables(interleave([case], 1))
    assert "Weft env \\| nonsense | refused" in printed
    assert "nonsense" in case.notes[0]
    assert "left out" in capsys.readouterr().err


def test_every_peer_is_asked_for_the_same_environments() -> None:
    for setting in distributed.SETTINGS.values():
        for peer in distributed.PEERS.values():
            asked = peer.request(setting)
            assert asked["environment"] == setting.name
            assert (asked.get("workers") or asked.get("runners"), asked["envs"]) == (2, setting.envs)
            assert asked["batch"] % setting.batch == 0


def test_a_ring_has_a_case_for_each_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Measured, guess: int) -> None:
        raise NotRun("refused", "not in this test")

    monkeypatch.setattr(Measured, "prepare", refuse)
    with ExitStack() as stack:
        cases = ring.cases(Options(seconds=0.01, settings=("cartpole", "sleeping")), stack)
        assert [len(case.left_out) for case in cases] == [4, 4]
        assert all(value > 0 for case in cases for value in (contender() for contender in case.contenders.values()))


@pytest.mark.slow
def test_the_harness_runs_without_peers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = tmp_path / "values.json"
    flags = ["--repeats", "1", "--seconds", "0.05", "--no-peers", "--environments", "cartpole", "--plans", "inline"]
    assert main(["distributed", *flags, "--json", str(written)]) == 0
    assert "Weft inline" in capsys.readouterr().out
    (case,) = json.loads(written.read_text())["cases"]
    assert all(value > 0 for values in case["values"].values() for value in values)


def test_a_window_measures_itself() -> None:
    assert Window(lambda seconds: 3.0 * seconds).measure(2.0) == 6.0
