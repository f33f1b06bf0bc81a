"""The report stands by itself, has everything, and escapes what comes out of a run folder."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from folders import append, live, make_run, record

from weft.cli.main import main
from weft.dashboard.report import Reported, report
from weft.dashboard.run_view import RunView
from weft.dashboard.svg import ticks

HOSTILE = "<script>alert(1)</script>\"'&"


class Parts(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def view(folder):
    return RunView(folder, folder.name)


SUMMARY = {
    "exit": "finished",
    "restarts": 2,
    "samples": {"produced": 1000, "trained": 900, "dropped": {"stale": 60}, "in_flight": 40},
    "evaluation": {"return_mean": 480.0, "return_low": 470.0, "return_high": 490.0, "episodes": 20},
    "streams": {"unroll": {"messages_per_second": 50.0, "bytes_per_message": 10_000}},
}


def test_a_report_of_one_run(root):
    machine = {"system": "Linux", "python": "3.11", "cores": 2, "memory_bytes": 2**34, "versions": {"jax": "0.10.2"}}
    now = live(
        training=False, machine=machine, notes=[{"at": 1e9, "kind": "warning", "text": "worker env-1 was killed"}]
    )
    folder = make_run(root, "run", summary=SUMMARY, live=now)
    append(folder, [record(210, **{"loss/total": 0.5}), record(220, **{"loss/total": 0.25})])
    parts = Parts(report([Reported(view(folder), "weft train ppo CartPole-v1", "It lacks a network.")]))
    for words in (
        "ppo on CartPole-v1 · finished",
        "env*2 | act | learn",
        "bottleneck",
        "Loss: total",
        "return 480, 95 % interval 470 to 490, of 20 episodes",
        "dropped: stale 60",
        "worker env-1 was killed",
        "weft train ppo CartPole-v1",
        "It lacks a network.",
        "jax 0.10.2",
        "algo.clip 0.2",
    ):
        assert words in parts.text, words
    assert parts.tags.count("svg") == 3  # the plan, the return and the loss: nothing else was recorded
    assert "script" not in parts.tags


def test_it_fetches_nothing_and_runs_nothing(root):
    folder = make_run(root, "run", summary=SUMMARY)
    (folder / "lineage.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>')
    page = report([Reported(view(folder))])
    parts = Parts(page)
    assert not {"script", "link", "iframe", "object"} & set(parts.tags)
    fetched = [value for name, value in parts.attributes if name in ("src", "href", "data", "srcset")]
    assert all((value or "").startswith("data:") for value in fetched)
    assert not any(name.startswith("on") for name, _ in parts.attributes)
    assert not re.search(r"url\(|@import", page)


def test_hostile_text_is_escaped(root):
    folder = make_run(
        root,
        "run",
        config={"algorithm": HOSTILE, HOSTILE: HOSTILE, "seed": HOSTILE},
        plan={"expression": HOSTILE, "groups": [{"fragments": [HOSTILE]}]},
        summary={
            "exit": HOSTILE,
            "error": HOSTILE,
            "evaluation": {"return_mean": HOSTILE},
            "members": [{"values": HOSTILE}],
        },
        live=live(notes=[{"text": HOSTILE, "at": "x"}], machine={"system": HOSTILE, "versions": {HOSTILE: HOSTILE}}),
    )
    append(folder, [record(1000, **{f"loss/{HOSTILE}": 1.0}), record(1001, **{f"loss/{HOSTILE}": 2.0})])
    parts = Parts(report([Reported(view(folder), HOSTILE, HOSTILE), Reported(view(folder))]))
    assert "script" not in parts.tags
    assert "<script>alert(1)</script>" in parts.text


def test_several_runs_are_compared(root):
    first = make_run(root, "first", summary=SUMMARY)
    second = make_run(root, "second", config={"seed": 2})
    parts = Parts(report([Reported(view(first)), Reported(view(second))]))
    assert "What differs field first second seed 1 2" in parts.text
    assert parts.text.count("Curves") == 1


def test_the_command_writes_it_and_repeats_the_run(root, tmp_path, capsys):
    make_run(root, "run", summary=SUMMARY, config={"lockstep": False, "max_lag": 3, "seed": 5})
    target = tmp_path / "out.html"
    assert main(["report", "run", "--root", str(root), "-o", str(target)]) == 0
    assert capsys.readouterr().out.strip() == str(target)
    command = "weft train ppo CartPole-v1 --plan &#x27;env*2 | act | learn&#x27; --max-lag 3 --steps 1000 --seed 5"
    assert command in target.read_text()
    assert main(["report", "runn", "--root", str(root)]) == 2
    assert "Did you mean 'run'?" in capsys.readouterr().err


def test_the_command_means_what_the_config_says():
    """Read back by the command line itself: the same fields, whatever the defaults are by then."""
    import shlex

    from weft.algorithms.ppo import PPO
    from weft.cli.fields import parse_with_algorithm
    from weft.cli.flags import Flags
    from weft.cli.repeat import repeating_command
    from weft.runtimes.prepare.settings import RunConfig
    from weft.services.config_json import to_json

    wanted = PPO(learning_rate=1.25e-4, hidden=(32, 16), recurrent="gru", target_kl=None, normalise_observations=True)
    fields = {name: getattr(wanted, name) for name in wanted.__dataclass_fields__ if name not in ("spec",)}
    algo = to_json(
        {name: value for name, value in fields.items() if isinstance(value, int | float | str | tuple | None)}
    )
    config = {
        "algorithm": "ppo",
        "environment": "CartPole-v1",
        "plan": "inline",
        "lockstep": True,
        "seed": 3,
        "algo": algo,
    }
    command, lacks = repeating_command(config)
    assert lacks == ""
    words = shlex.split(command)
    assert words[:2] == ["weft", "train"]
    (asked,), said, _ = parse_with_algorithm("weft train", "", words[2:], Flags(RunConfig))
    assert asked["lockstep"] is True
    assert asked["seed"] == 3
    again = PPO(**said)
    for name in algo:
        assert getattr(again, name) == getattr(wanted, name), name


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.2e-5, 4e-5), (1e6, 1.00001e6), (5.0, 5.0)])
def test_ticks_are_few_round_and_within(low, high):
    found = ticks(low, high, 5)
    assert 1 <= len(found) <= 6
    assert all(low <= tick <= high for tick in found)
