"""What ``weft envs`` shows."""

import importlib.util
import sys

import pytest

from weft.core.errors import ConfigError
from weft.envs.listing import usable
from weft.envs.registry import open_environment


def rows(**options):
    return {row.name: row for row in usable(**options)}


def test_usable_ones_have_nothing_to_install_and_the_others_do():
    listed = usable()
    assert len({row.name for row in listed}) == len(listed)
    for row in listed:
        assert bool(row.install) != row.usable, row
        assert row.summary
        assert row.kind in ("weft", "gymnasium", "gymnax", "pgx", "jaxmarl", "pettingzoo", "yours")


def test_each_kind_is_there():
    listed = rows()
    assert listed["weft:CartPole-v1"].usable
    assert listed["CartPole-v1"].summary == "classic control"
    assert listed["gymnax:CartPole-v1"].kind == "gymnax"
    assert listed["pettingzoo:mpe/simple_spread_v3"].usable
    assert listed["pettingzoo:classic/tictactoe_v3"].kind == "pettingzoo"
    assert listed["package.module:factory"].kind == "yours"


def test_a_package_that_cannot_be_imported_does_not_end_the_list(monkeypatch, tmp_path):
    (tmp_path / "gymnax").mkdir()
    (tmp_path / "gymnax" / "__init__.py").write_text("import what_is_not_there\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "gymnax"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    listed = rows()
    assert listed["weft:CartPole-v1"].usable
    assert not listed["gymnax:*"].usable
    assert "cannot be imported: ModuleNotFoundError: No module named 'what_is_not_there'" in listed["gymnax:*"].summary
    with pytest.raises(ConfigError, match="gymnax is installed, but cannot be imported"):
        open_environment("gymnax:CartPole-v1")


def test_only_the_latest_version_by_default():
    assert "CartPole-v0" not in rows()
    assert "CartPole-v0" in rows(all_versions=True)


def test_what_is_missing_says_how_to_get_it(monkeypatch):
    real = importlib.util.find_spec
    missing = {"ale_py", "mujoco", "gymnax", "mpe2", "multi_agent_ale_py"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name in missing else real(name, *a))
    listed = rows()
    assert listed["ALE/*"].install == "pip install 'weft[atari]'"
    assert listed["Hopper-v5"].install == "pip install 'weft[mujoco]'"
    assert listed["gymnax:*"].install == "pip install 'weft[gymnax]'"
    assert not any(name.startswith("gymnax:C") for name in listed)
    assert listed["pettingzoo:mpe/*"].install == "pip install 'weft[pettingzoo]'"
    assert listed["pettingzoo:atari/pong_v3"].install == "pip install 'pettingzoo[atari]'"
    missing.add("pettingzoo")
    assert rows()["pettingzoo:*"].install == "pip install 'weft[pettingzoo]'"


def test_those_listed_as_usable_open():
    for row in usable():
        if row.summary in ("classic control", "toy text"):
            assert open_environment(row.name).host is not None
