"""Data sets: what is written is read, bit for bit; what cannot be is refused with what came and what was expected."""

from __future__ import annotations

import gc
import json
import sys

import numpy as np
import pytest

import weft
from weft.core.errors import ConfigError
from weft.core.specs import Box, Discrete, EnvSpec, MultiBinary, MultiDiscrete
from weft.core.trees import tree_map
from weft.data import Dataset, Episode, opened
from weft.data.minari import to_policy

NESTED = {"camera": Box((2, 2, 1), "uint8", 0, 255), "joints": (Box((3,)), Discrete(4))}
SPEC = EnvSpec("toys:Nested", NESTED, Discrete(3), action_mask=True)
PLAIN = EnvSpec("toys:Plain", Box((1,)), Box((2,), "float32", -2.0, np.array([1.0, 4.0])))


def episode(length, ends="", spec=SPEC, seed=0):
    random = np.random.default_rng(seed)
    rows = length + 1

    def some(space, count):
        high = {"uint8": 255, "int32": getattr(space, "n", 2)}.get(space.dtype)
        drawn = (
            random.normal(size=(count, *space.shape))
            if high is None
            else random.integers(high, size=(count, *space.shape))
        )
        return drawn.astype(space.dtype)

    last = np.arange(length) == length - 1
    return Episode(
        tree_map(lambda space: some(space, rows), spec.observation),
        some(spec.action, length) if not isinstance(spec.action, Box) else np.tanh(some(spec.action, length)),
        random.normal(size=length).astype(np.float32),
        last & (ends == "terminated"),
        last & (ends == "truncated"),
        random.random((rows, 3)) < 0.5 if spec.action_mask else None,
    )


EPISODES = [episode(3, "terminated", seed=1), episode(1, "truncated", seed=2), episode(4, seed=3)]


def equal(left, right):
    flat = [np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(leaves(left), leaves(right), strict=True)]
    return all(flat)


def leaves(tree):
    found = []
    tree_map(found.append, tree)
    return found


def test_what_is_written_is_read(tmp_path):
    data = Dataset.from_episodes(SPEC, EPISODES, run="first")
    assert data.save(tmp_path / "a") == tmp_path / "a"
    read = weft.Dataset.load(tmp_path / "a")
    assert read.spec == SPEC
    assert read.recorded == {"run": "first"}
    for one, other in zip(read.episodes, EPISODES, strict=True):
        assert equal(one, other)
    about = json.loads((tmp_path / "a" / "about.json").read_text())
    assert (about["environment"], about["steps"], about["episodes"], about["episodes_ended"]) == (
        "toys:Nested",
        8,
        3,
        2,
    )
    ended = [float(e.reward.astype(np.float64).sum()) for e in EPISODES[:2]]
    assert about["return_mean"] == pytest.approx(np.mean(ended))
    assert repr(read) == f"Dataset('toys:Nested': 8 steps in 3 episodes, return {np.mean(ended):.1f})"


def test_each_observation_is_there_once_and_the_next_row_is_what_followed():
    data = Dataset.from_episodes(SPEC, EPISODES)
    assert data.rows.tolist() == [0, 1, 2, 4, 6, 7, 8, 9]
    assert len(data.observation["camera"]) == 8 + 3
    assert np.array_equal(data.observation["camera"][4 + 1], EPISODES[1].observation["camera"][1])
    assert data.returns.tolist() == pytest.approx([float(e.reward.sum()) for e in EPISODES], rel=1e-5)


def test_one_that_is_open_is_not_read_again_until_it_is_another(tmp_path):
    Dataset.from_episodes(SPEC, EPISODES).save(tmp_path / "a")
    assert opened(str(tmp_path / "a")) is opened(str(tmp_path / "a"))
    for file in (tmp_path / "a").iterdir():
        file.unlink()
    Dataset.from_episodes(SPEC, EPISODES[:1]).save(tmp_path / "a")
    assert opened(str(tmp_path / "a")).steps == 3


def test_a_folder_that_is_not_free_is_left_alone(tmp_path):
    data = Dataset.from_episodes(SPEC, EPISODES)
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not empty: choose another folder"):
        data.save(tmp_path)
    with pytest.raises(ConfigError, match=r"mine.txt is a file; a data set is a folder"):
        data.save(tmp_path / "mine.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_what_is_no_data_set_is_refused(tmp_path):
    with pytest.raises(
        ConfigError, match=r"no folder '.*nowhere'; expected a data set\. `weft record RUN .*` makes one"
    ):
        Dataset.load(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"is no data set: it has no about\.json"):
        Dataset.load(tmp_path)
    folder = Dataset.from_episodes(SPEC, EPISODES).save(tmp_path / "a")
    about = (folder / "about.json").read_text()
    (folder / "about.json").write_text(about.replace('"format": 1', '"format": 7'))
    with pytest.raises(ConfigError, match="format 7; this version of Weft reads format 1"):
        Dataset.load(folder)
    (folder / "about.json").write_text(about.replace("weft.core.specs:EnvSpec", "os:system"))
    with pytest.raises(ConfigError, match="'os:system', which must not be made from one here"):
        Dataset.load(folder)
    (folder / "about.json").write_text(about)
    whole = (folder / "data.npz").read_bytes()
    (folder / "data.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ConfigError, match=r"data\.npz cannot be read"):
        Dataset.load(folder)
    np.savez(folder / "data.npz", action=np.array([{"an": "object"}], dtype=object))
    with pytest.raises(ConfigError, match=r"data\.npz cannot be read: .*allow_pickle=False"):
        Dataset.load(folder)
    np.savez(folder / "data.npz", action=np.zeros(3))
    with pytest.raises(ConfigError, match=r"has no observation.camera, .*lengths, action_mask \(it has: action\)"):
        Dataset.load(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"action": np.zeros(3, np.int64)}, r"action is \[3\] int64, and 3 steps in 1 episodes .* need \[3\] int32"),
        ({"action": np.array([0, 1, 3], np.int32)}, r"actions are from 0 to 3, and Discrete\(3\) has"),
        ({"reward": np.array([0, np.nan, 1], np.float32)}, "reward has numbers that are not finite"),
        ({"terminated": np.array([True, False, False])}, "goes on after a step that is marked as its end"),
        ({"action_mask": None}, r"action_mask is missing; expected an array \[4, 3\] bool"),
        (
            {
                "observation": {
                    **EPISODES[0].observation,
                    "joints": (np.zeros((4, 2), np.float32), np.zeros(4, np.int32)),
                }
            },
            r"observation.joints.0 is \[4, 2\] float32, and .* need \[4, 3\] float32",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, words):
    with pytest.raises(ConfigError, match=words):
        Dataset.from_episodes(SPEC, [EPISODES[0]._replace(**change)])


def test_an_empty_one_is_refused():
    with pytest.raises(ConfigError, match="needs a step at least, and none came"):
        Dataset.from_episodes(SPEC, [episode(0)])


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            EnvSpec("B", Box((2,)), PLAIN.native_action),
            r"observations are Box\[1\] float32; those .* are Box\[2\]",
        ),
        (
            EnvSpec("B", Box((1,)), Discrete(3)),
            r"actions are Box\[2\] from -2 to \[1.0, 4.0\]; those .* Discrete",
        ),
        (
            EnvSpec("B", Box((1,)), Box((2,), "float32", -2.0, 4.0)),
            r"those .* are Box\[2\] from -2 to 4\.",
        ),
        (EnvSpec("B", Box((1,)), PLAIN.native_action, action_mask=True), "action masks are False; those"),
    ],
)
def test_one_of_another_environment_is_refused(other, words):
    data = Dataset.from_episodes(PLAIN, [episode(2, "terminated", PLAIN)])
    data.check_fits(EnvSpec("C", Box((1,), "float32", -1, 1), PLAIN.native_action), "BC", "'a'")
    with pytest.raises(ConfigError, match=f"^BC: the data set 'a' was recorded in 'toys:Plain', whose .*{words}"):
        data.check_fits(other, "BC", "'a'")


@pytest.mark.parametrize(
    "spec",
    [
        PLAIN,
        EnvSpec("unbounded", Box((1,)), Box((2,))),
        EnvSpec("from five", Box((1,)), Discrete(3), action_start=5),
        EnvSpec("table", Box((1,)), MultiDiscrete((2, 3, 2, 3)), action_start=[[1, 0], [0, 1]], action_shape=(2, 2)),
        EnvSpec("bits", Box((1,)), MultiBinary(4), action_shape=(2, 2)),
    ],
    ids=lambda spec: spec.name,
)
def test_actions_in_an_environments_units_come_back_as_policies_see_them(spec):
    random = np.random.default_rng(0)
    space = spec.action
    if isinstance(space, Box):
        action = random.uniform(-1, 1, (50, *space.shape)).astype(np.float32)
    else:
        most = getattr(space, "nvec", 2 if isinstance(space, MultiBinary) else getattr(space, "n", 0))
        action = random.integers(most, size=(50, *space.shape)).astype(space.dtype)
    back = to_policy(np.asarray(spec.to_native(action)), spec)
    assert back.dtype == action.dtype
    np.testing.assert_allclose(back, action, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*is set to None:UserWarning", "ignore:Implicitly cleaning up:ResourceWarning")
def test_episodes_of_minari(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    import gymnasium as gym

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = minari.DataCollector(gym.make("Pendulum-v1", max_episode_steps=7))
    for seed in range(3):
        env.reset(seed=seed)
        while not env.step(env.action_space.sample())[3]:
            pass
    env.create_dataset(dataset_id="toys/pendulum-v0")
    env.close()
    del env
    gc.collect()  # Minari leaves its temporary folder to be found here
    data = opened("minari:toys/pendulum-v0")
    assert (data.steps, data.lengths.tolist(), data.spec.name) == (21, [7, 7, 7], "Pendulum-v1")
    first = next(iter(minari.load_dataset("toys/pendulum-v0").iterate_episodes()))
    mine = data.episodes[0]
    np.testing.assert_allclose(mine.observation, first.observations, rtol=1e-6)
    np.testing.assert_allclose(2 * mine.action, first.actions, rtol=1e-5, atol=1e-6)
    assert mine.truncated.tolist() == [False] * 6 + [True]
    assert not mine.terminated.any()
    with pytest.raises(ConfigError, match="minari has no data set 'toys/none-v0'"):
        opened("minari:toys/none-v0")


def test_minari_where_it_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(weft.WeftError, match=r"'minari:a/b-v0' needs 'minari', .*pip install 'weft\[minari\]'"):
        opened("minari:a/b-v0")
