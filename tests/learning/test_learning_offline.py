"""Offline: cloning is as good as its data; IQL is better, where the data are mostly bad. CartPole: 500 is the best."""

from __future__ import annotations

import shutil

import pytest
from recorded import balance, mostly_wrong, play

import weft
from weft.data import Dataset
from weft.envs.registry import open_environment


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Good play, and the same among twice as many steps of bad play, from which the greater part is wrong."""
    root = tmp_path_factory.mktemp("data")
    spec, good = open_environment("CartPole-v1").spec, play("CartPole-v1", balance, 3_000)
    data = {"good": good, "mixed": good + play("CartPole-v1", mostly_wrong, 6_000, seed=1_000)}
    return {name: str(Dataset.from_episodes(spec, episodes).save(root / name)) for name, episodes in data.items()}


def reached(algorithm, data, root, **fields):
    run = weft.train(
        algorithm,
        "weft:CartPole-v1",
        data=data,
        steps=25_000,
        seed=1,
        run=f"{algorithm}-{data.rpartition('/')[2]}",
        root=root,
        quiet=True,
        tensorboard=False,
        **fields,
    )
    assert run.summary["exit"] == "finished"
    return run, weft.evaluate(run, episodes=10).return_mean


def test_cloning_is_as_good_as_its_data_and_opens_without_them(folders, tmp_path):
    data = shutil.copytree(folders["good"], tmp_path / "good")
    run, mean = reached("bc", str(data), tmp_path)
    assert mean >= 450
    shutil.rmtree(data)
    again = weft.load("bc-good", root=tmp_path)
    assert weft.evaluate(again, episodes=10).return_mean == mean
    assert run.summary["learn_steps"] == 49 * 64


@pytest.mark.slow
def test_cloning_learns_the_bad_too(folders, tmp_path):
    assert reached("bc", folders["mixed"], tmp_path)[1] < 100


def test_iql_finds_the_good_in_the_bad(folders, tmp_path):
    assert reached("iql", folders["mixed"], tmp_path)[1] > 250
