"""Gymnasium's spaces become Weft's, and actions and observations go between them without loss."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from weft.core.errors import ConfigError
from weft.core.specs import Box, Discrete, EnvSpec, MultiBinary, MultiDiscrete, allocate
from weft.core.trees import tree_leaves
from weft.envs.observations import Misfit, ObservationWriter
from weft.envs.scan import ValueScan
from weft.envs.spaces import action_spec, batch_converter, observation_spec, scalar_converter

NESTED = spaces.Dict(
    {
        "b": spaces.Tuple((spaces.Discrete(3, start=5), spaces.MultiBinary((2, 2)))),
        "a": spaces.Box(0, 255, (2, 3), np.uint8),
    }
)


def test_observation_spaces_become_specs():
    assert observation_spec(spaces.Box(-1, 1, (4,), np.float64), "x") == Box((4,), "float32", -1.0, 1.0)
    assert observation_spec(spaces.Box(0, 255, (8, 8, 3), np.uint8), "x") == Box((8, 8, 3), "uint8", 0, 255)
    assert observation_spec(spaces.MultiDiscrete([[2, 3], [4, 5]]), "x") == MultiDiscrete((2, 3, 4, 5))
    assert observation_spec(NESTED, "x") == {
        "a": Box((2, 3), "uint8", 0, 255),
        "b": (Discrete(3), MultiBinary(4)),
    }


def test_bounds_that_differ_are_kept_and_huge_ones_become_infinite():
    low, high = np.array([-1.0, -np.finfo(np.float64).max]), np.array([2.0, np.finfo(np.float64).max])
    spec = observation_spec(spaces.Box(low, high, dtype=np.float64), "x")
    assert isinstance(spec, Box)
    np.testing.assert_array_equal(spec.low, [-1.0, -np.inf])
    np.testing.assert_array_equal(spec.bounded, [True, False])


@pytest.mark.parametrize(
    ("space", "part"),
    [
        (spaces.Text(5), "observation is Text"),
        (spaces.Dict({"t": spaces.Tuple((spaces.Text(5),))}), r"observation\['t'\]\[0\] is Text"),
        (spaces.Tuple((spaces.Discrete(2), spaces.Sequence(spaces.Discrete(2)))), r"observation\[1\] is Sequence"),
        (spaces.Dict({}), "empty Dict"),
        (spaces.Box(-1, 1, (3, 0)), r"observation has shape \[3, 0\]: there is nothing to observe"),
    ],
)
def test_an_unsupported_part_of_an_observation_space_is_named(space, part):
    with pytest.raises(ConfigError, match=part):
        observation_spec(space, "x")


def test_a_dict_of_actions_is_refused():
    with pytest.raises(ConfigError, match=r"action is Dict.*Supported: Discrete"):
        action_spec(spaces.Dict({"a": spaces.Discrete(2)}), "x")


def convert(space: gym.Space, action):
    spec = EnvSpec("x", Box((1,)), action_spec(space, "x"))
    return batch_converter(space, spec)(np.asarray(action))


def test_discrete_actions_are_shifted_and_shaped_as_the_space_wants():
    shifted = spaces.Discrete(3, start=-1)
    np.testing.assert_array_equal(convert(shifted, np.array([0, 2], np.int32)), [-1, 1])
    assert scalar_converter(shifted)(np.array([0, 2], np.int32)) == [-1, 1]
    assert scalar_converter(spaces.Discrete(3))(np.array([0, 2], np.int32)) == [0, 2]
    multi = spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [0, 10]])
    native = convert(multi, np.array([[1, 2, 3, 4]], np.int32))
    np.testing.assert_array_equal(native, [[[1, 3], [3, 14]]])
    assert multi.contains(native[0])
    binary = spaces.MultiBinary((2, 2))
    assert binary.contains(convert(binary, np.array([[1, 0, 0, 1]], np.int8))[0])


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(np.float32([-2.0, 0.5]), np.float32([2.0, 1.5]), dtype=np.float32),
        spaces.Box(-3.0, 1.0, (2,), np.float64),
        spaces.Box(np.float32([-2.0, -np.inf]), np.float32([2.0, np.inf]), dtype=np.float32),
        spaces.Box(-np.inf, np.inf, (2,), np.float32),
    ],
)
def test_box_actions_are_what_the_spec_says_bit_for_bit(space):
    spec = EnvSpec("x", Box((1,)), action_spec(space, "x"))
    action = np.random.default_rng(0).normal(0, 2, (50, 2)).astype(np.float32)
    native = convert(space, action)
    np.testing.assert_array_equal(native, np.asarray(spec.to_native(action)).astype(native.dtype))
    assert native is not action


def test_nested_observations_are_written_in_the_specs_order():
    writer = ObservationWriter(NESTED)
    buffers = allocate(observation_spec(NESTED, "x"), (2,))
    image = np.arange(6, dtype=np.uint8).reshape(2, 3)
    writer.write_row(tree_leaves(buffers), 1, {"a": image, "b": (6, np.array([[1, 0], [0, 1]], np.int8))})
    np.testing.assert_array_equal(buffers["a"], [np.zeros((2, 3)), image])
    np.testing.assert_array_equal(buffers["b"][0], [0, 1])
    np.testing.assert_array_equal(buffers["b"][1], [[0, 0, 0, 0], [1, 0, 0, 1]])


def test_float64_is_narrowed_and_lists_are_taken():
    writer = ObservationWriter(spaces.Box(-1, 1, (2,), np.float64))
    target = np.zeros((1, 2), np.float32)
    writer.write_row([target], 0, np.array([0.1, 0.2]))
    np.testing.assert_array_equal(target[0], np.array([0.1, 0.2], np.float32))
    writer.write_row([target], 0, [0.5, 0.25])
    np.testing.assert_array_equal(target[0], [0.5, 0.25])


FLOATS, BYTES = spaces.Box(-1, 1, (2,), np.float32), spaces.Box(0, 255, (2,), np.uint8)


@pytest.mark.parametrize(
    ("space", "observation", "words"),
    [
        (FLOATS, np.zeros(3, np.float32), r"shape \[3\] float32.*says Box\[2\] float32"),
        (FLOATS, np.float32(0), r"shape \[\]"),  # NumPy would broadcast it
        (FLOATS, [[1.0], [1.0, 2.0]], "not an array"),
        (FLOATS, np.array(["a", "b"]), "dtype <U1"),
        (BYTES, np.zeros(2, np.float32), "dtype float32"),
        (BYTES, np.array([0, 256]), "cannot hold"),
        (spaces.Discrete(3, start=1), 0, "out of range"),
        (spaces.Discrete(3), 1.0, "dtype float64"),
        (spaces.MultiBinary(2), np.array([0, 2]), "out of range"),
        (NESTED, {"a": 1}, r"keys \['a'\].*\['a', 'b'\]"),
        (NESTED, np.zeros(3), "came as ndarray"),
        (NESTED, {"a": np.zeros((2, 3), np.uint8), "b": (5,)}, r"observation\['b'\] came as 1 parts"),
    ],
)
def test_a_misfit_says_what_came_and_what_the_space_says(space, observation, words):
    buffers = tree_leaves(allocate(observation_spec(space, "x"), (1,)))
    with pytest.raises(Misfit, match=words):
        ObservationWriter(space).write_row(buffers, 0, observation)


@pytest.mark.parametrize("bounded", [False, True])
def test_the_scan_finds_the_row_and_the_part(bounded):
    space = spaces.Dict({"a": BYTES, "b": FLOATS})
    spec = observation_spec(space, "x")
    buffers = tree_leaves(allocate(spec, (4,)))
    scan = ValueScan(buffers, ObservationWriter(space).leaves, spec if bounded else None)
    assert scan.clean(buffers)
    for bad in (np.inf, -np.inf, np.nan):
        buffers[1][2, 1] = bad
        assert not scan.clean(buffers)
        assert scan.not_finite(buffers) == (2, f"observation['b'][1] is {bad}")


@pytest.mark.parametrize("rows", [3, 40_000])  # the bounds spread out, and not
def test_the_scan_finds_what_is_outside_its_box(rows):
    low, high = np.array([-1, -np.inf, -np.inf], np.float32), np.array([np.inf, 2, np.inf], np.float32)
    space = spaces.Dict({"a": spaces.Box(0, 9, (2,), np.int32), "b": spaces.Box(low, high)})
    spec = observation_spec(space, "x")
    buffers = tree_leaves(allocate(spec, (rows,)))
    scan = ValueScan(buffers, ObservationWriter(space).leaves, spec)
    largest = np.finfo(np.float32).max
    for fine in ([-1, 2, largest], [largest, -largest, -largest]):
        buffers[1][1] = fine
        assert scan.clean(buffers)
    buffers[1][1:3] = [[-1.5, 3, 0], [0, 2.5, 0]]
    assert not scan.clean(buffers)
    assert scan.not_finite(buffers) is None
    words = "observation['b'][0] is -1.5, outside its Box, which goes from -1.0 to inf"
    assert scan.outside(buffers) == (1, 2, words)
    buffers[1][...] = 0
    assert scan.clean(buffers)
    buffers[0][2, 1] = 10
    assert scan.outside(buffers) == (2, 1, "observation['a'][1] is 10, outside its Box, which goes from 0 to 9")
