"""Specs, trees, keys, replicas and errors: what everything above takes for granted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import same

from weft.core.errors import ConfigError, UnknownName, nearest
from weft.core.keys import env_keys, fragment_key, host_seed, step_keys
from weft.core.replicas import mean_over_replicas, replica_axis
from weft.core.specs import (
    Box,
    Discrete,
    EnvSpec,
    MultiBinary,
    MultiDiscrete,
    allocate,
    describe,
    num_choices,
)
from weft.core.trees import tree_leaves, tree_map, tree_paths, unflatten
from weft.core.types import Timestep, Unroll


def test_a_bounded_box_is_stretched_and_clipped():
    spec = EnvSpec("x", Box((2,)), Box((3,), "float32", np.array([0.0, -2.0, 1.0]), np.array([1.0, 2.0, 5.0])))
    assert spec.action == Box((3,), "float32", -np.ones(3), np.ones(3))
    for xp in (np, jnp):
        native = spec.to_native(xp.array([[-1.0, 0.0, 1.0], [-9.0, 9.0, 0.5]]), xp)
        np.testing.assert_allclose(native, [[0.0, 0.0, 5.0], [0.0, 2.0, 4.0]])
        assert native.dtype == np.float32


def test_numbers_without_bounds_pass_unchanged():
    half = EnvSpec("x", Box((2,)), Box((2,), "float32", np.array([0.0, -np.inf]), np.array([4.0, np.inf])))
    np.testing.assert_allclose(half.to_native(np.array([0.0, 7.0], np.float32)), [2.0, 7.0])
    assert half.action.bounded.tolist() == [True, False]
    single = EnvSpec("x", Box((2,)), Box((2,), "float32", np.array([-2.0, -np.inf]), np.array([np.inf, 3.0])))
    np.testing.assert_allclose(single.to_native(np.array([-5.0, 7.0], np.float32)), [-2.0, 3.0])
    np.testing.assert_allclose(single.to_native(np.array([5.0, -7.0], np.float32)), [5.0, -7.0])
    free = EnvSpec("x", Box((2,)), Box((2,)))
    action = np.array([3.0, -4.0], np.float32)
    assert free.to_native(action) is action
    choice = EnvSpec("x", Box((2,)), Discrete(3))
    assert choice.action == Discrete(3)
    assert choice.to_native(2) == 2


def test_choices_and_masks():
    sizes = [(Discrete(4), 4), (MultiDiscrete((2, 3)), 5), (MultiBinary(3), 6), (Box((2,)), 0)]
    for space, choices in sizes:
        assert num_choices(space) == choices
        assert EnvSpec("x", Box((1,)), space).mask_size == choices
    with pytest.raises(ConfigError):
        num_choices("Discrete")


def test_spaces_are_compared_by_their_bounds():
    assert Box((2,), "float32", 0.0, 1.0) == Box((2,), "float32", np.zeros(2), np.ones(2))
    assert Box((2,), "float32", 0.0, 1.0) != Box((2,), "float32", 0.0, 2.0)
    assert Box((2,)) != Box((3,))
    assert Box((2,)) != Discrete(2)
    assert hash(Box((2,), "float32", 0.0, 1.0)) == hash(Box((2,), "float32", np.zeros(2), np.ones(2)))


def test_a_space_tree_in_words_and_in_arrays():
    tree = {"a": Box((2, 3), "uint8", 0, 255), "b": (Discrete(3), MultiBinary(2), MultiDiscrete((2, 4)))}
    assert describe(tree) == "{a: Box[2, 3] uint8, b: (Discrete(3), MultiBinary(2), MultiDiscrete(2, 4))}"
    arrays = allocate(tree, (5, 6))
    assert arrays["a"].shape == (5, 6, 2, 3)
    assert arrays["a"].dtype == np.uint8
    assert [x.shape for x in arrays["b"]] == [(5, 6), (5, 6, 2), (5, 6, 2)]


def test_trees_are_walked_and_rebuilt():
    tree = {"b": (np.array(1), None), "a": Timestep(np.array(2), np.array(3), np.array(4), np.array(5))}
    assert [path for path, _ in tree_paths(tree)] == [
        "a.observation", "a.reward", "a.terminated", "a.truncated", "b.0",
    ]  # fmt: skip
    assert [int(x) for x in tree_leaves(tree)] == [2, 3, 4, 5, 1]
    assert tree_leaves(tree) == jax.tree.leaves(tree), "channels have the one order, programs the other"
    assert unflatten(tree, [2, 3, 4, 5, 1]) == tree_map(int, tree)
    doubled = tree_map(lambda x, y: x + y, tree, tree)
    assert isinstance(doubled["a"], Timestep)
    assert doubled["b"] == (2, None)
    assert doubled["a"].valid is None
    assert list(doubled) == ["b", "a"], "a dict keeps its order"
    assert list(tree_paths(np.array(1))) == [("", np.array(1))]


def test_the_first_of_an_episode():
    flags = np.array([False, True, False, True]), np.array([False, False, True, True])
    assert Timestep(None, None, *flags).first.tolist() == [False, True, True, True]
    reward, flag = np.zeros((3, 4, 2)), np.zeros((3, 4), np.bool_)  # of two agents: a step is the environment's
    assert Unroll(*[None] * 4, reward, flag, *[None] * 5).steps == 12


def test_a_key_belongs_to_seed_fragment_index_and_step():
    def words(keys):
        return jax.random.key_data(keys).tolist()

    env = fragment_key(7, "env")
    assert same(env, jax.jit(lambda seed: fragment_key(seed, "env"))(jnp.int32(7)))
    assert words(env) != words(fragment_key(7, "act")) != words(fragment_key(8, "act"))
    few, many = env_keys(env, jnp.arange(2, 4)), env_keys(env, jnp.arange(6))
    assert words(few) == words(many)[2:4], "an environment's key must not depend on its batch"
    early, late = step_keys(many, jnp.int32(0), 5), step_keys(many, jnp.int32(3), 2)
    assert words(early)[3:] == words(late), "nor on the unroll that a step is in"
    flat = {tuple(key) for row in words(early) for key in row}
    assert len(flat) == 30


def test_host_seeds_are_spread():
    seeds = {host_seed(seed, index) for seed in range(20) for index in range(50)}
    assert len(seeds) == 1000
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert host_seed(3, 4) == host_seed(3, 4) != host_seed(4, 3)


def test_the_mean_over_replicas():
    tree = {"x": jnp.arange(4.0)}
    assert mean_over_replicas(tree) is tree

    def mean(x):
        with replica_axis("replica"):
            return mean_over_replicas(x)

    np.testing.assert_allclose(jax.vmap(mean, axis_name="replica")(tree)["x"], [1.5] * 4)
    with pytest.raises(RuntimeError, match="inside"), replica_axis("replica"):
        raise RuntimeError("inside")
    assert mean_over_replicas(tree) is tree, "the axis must be gone, even after an error"


def test_a_name_that_is_nearly_right():
    assert nearest("cartpole-v1", ["CartPole-v1", "Pendulum-v1"]) == ["CartPole-v1"]
    assert nearest("zzz", ["CartPole-v1"]) == []
    assert "Did you mean 'plan'?" in str(UnknownName("flag", "plam", ["plan", "seed"]))
    assert "Known: plan, seed." in str(UnknownName("flag", "xyz", ["seed", "plan"], "Try --help."))
    assert str(UnknownName("flag", "xyz", ["seed", "plan"], "Try --help.")).endswith("Try --help.")
