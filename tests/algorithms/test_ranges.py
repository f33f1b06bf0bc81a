"""The ranges of hyper-parameters, of every algorithm that has a field of that name."""

import dataclasses
import math

import numpy as np
import pytest
from batches import SPEC
from batches import bind as bind_tiny
from by_hand import SPEC as LINE

import weft
from weft.algorithms.offline import NoData, Offline
from weft.algorithms.ranges import RANGES
from weft.algorithms.replayed import Replayed
from weft.core.errors import ConfigError

ACTOR_CRITICS = [weft.PPO, weft.IMPALA, weft.A2C]
CONTINUOUS = [weft.SAC, weft.TD3]
ALL = [*ACTOR_CRITICS, weft.DQN, *CONTINUOUS, weft.IQL]


def bind(cls, **fields):
    if issubclass(cls, Replayed):  # it has other sizes than actor-critics have
        spec = LINE if cls in CONTINUOUS else SPEC
        return cls(**{"unroll": 8, "samples_per_insert": 100.0, **fields}).bind(weft.Spec(spec, 4, 10))
    return bind_tiny(cls, **({"data": NoData()} if issubclass(cls, Offline) else {}), **fields)


# Just outside, and on the edge inside or as near as makes no difference.
EDGES = {
    "epochs": (0, 1),
    "minibatches": (0, 1),
    "recurrent_size": (0, 1),
    "attention": (-4, 0),
    "hidden": ((8, 0), (1,)),
    "discount": (1.001, 1.0),
    "trace_decay": (-0.001, 0.0),
    "learning_rate": (0.0, 1e-9),
    "learning_rate_end": (-1e-9, 0.0),
    "clip": (0.0, 1e-9),
    "dual_clip": (1.0, 1.001),
    "value_clip": (0.0, 1e-9),
    "clip_rho": (0.0, 1.0),
    "clip_c": (0.0, 1e-9),
    "reward_scale": (math.nan, -1.0),
    "reward_clip": (0.0, 1e-9),
    "value_cost": (-1e-9, 0.0),
    "entropy_cost": (-1e-9, 0.0),
    "entropy_cost_end": (-1e-9, 0.0),
    "max_gradient_norm": (0.0, 1e-9),
    "target_kl": (0.0, 1e-9),
    "deviation": (0.0, 1e-9),
    "n_step": (0, 1),
    "capacity": (0, 100_000),
    "batch": (0, 32),
    "samples_per_insert": (0.0, 100.0),
    "learning_begins": (0, 1),
    "priority_power": (1.001, 1.0),
    "importance_power": (-0.001, 0.0),
    "epsilon": (1.001, 1.0),
    "epsilon_end": (-0.001, 0.0),
    "exploration": (1.001, 1.0),
    "target_period": (0, 1),
    "priority_mix": (1.001, 1.0),
    "huber": (0.0, 1e-9),
    "blocks": (-1, 0),
    "critics": (0, 1),
    "critic_learning_rate": (0.0, 1e-9),
    "weight_decay": (-1e-9, 0.0),
    "target_rate": (0.0, 1.0),
    "temperature": (0.0, 1e-9),
    "target_entropy": (math.nan, -100.0),
    "noise": (-1e-9, 0.0),
    "smoothing": (-1e-9, 0.0),
    "smoothing_clip": (0.0, 1e-9),
    "policy_delay": (0, 1),
    "quantiles": (-1, 0),
    "atoms": (-1, 0),
    "value_min": (math.nan, -100.0),
    "value_max": (math.nan, 100.0),
    "updates": (0, 1),
    "expectile": (1.0, 0.999),
    "weight_clip": (0.0, 1e-9),
    "mixing": (0, 1),
    "hyper_hidden": ((8, 0), (1,)),
}


def named(cls, kind):
    return [field.name for field in dataclasses.fields(cls) if kind in str(field.type)]


HAVE = [(cls, name) for cls in ALL for name in EDGES if name in {f.name for f in dataclasses.fields(cls)}]


def test_every_number_has_a_range():
    assert set(EDGES) == set(RANGES)
    for cls in ALL:
        assert {*named(cls, "float"), *named(cls, "int")} - {"unroll"} <= set(RANGES), "unroll is Algorithm's own"


@pytest.mark.parametrize(("cls", "name"), HAVE)
def test_what_is_out_of_range_is_refused_and_its_edge_is_not(cls, name):
    outside, inside = EDGES[name]
    with pytest.raises(ConfigError, match=rf"^{cls.__name__}\.{name} must be .*, got "):
        bind(cls, **{name: outside})
    bind(cls, **{name: inside})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan")])
@pytest.mark.parametrize("cls", ALL)
def test_what_is_not_finite_is_refused(cls, value):
    for name in named(cls, "float"):
        with pytest.raises(ConfigError, match=rf"^{cls.__name__}\.{name} must be a finite number( or None)?, got "):
            bind(cls, **{name: value})


def test_the_message_says_where_none_would_do():
    with pytest.raises(ConfigError, match=r"^PPO.dual_clip must be above 1 or None, got 0.5$"):
        bind(weft.PPO, dual_clip=0.5)
    with pytest.raises(ConfigError, match=r"^PPO.clip must be above 0, got -1$"):
        bind(weft.PPO, clip=-1)


@pytest.mark.parametrize("cls", ALL)
def test_none_is_refused_where_it_is_not_the_default(cls):
    with pytest.raises(ConfigError, match=rf"^{cls.__name__}\.learning_rate must be a number, got None"):
        bind(cls, learning_rate=None)
    assert bind(cls, learning_rate_end=None).learning_rate_end is None


def test_a_field_that_a_subclass_adds_is_its_own_affair():
    @dataclasses.dataclass(frozen=True)
    class Bounded(weft.PPO):
        bonus_limit: float = math.inf

    assert bind(Bounded).bonus_limit == math.inf
    with pytest.raises(ConfigError, match=r"^Bounded.clip must be above 0"):
        bind(Bounded, clip=0.0)


@pytest.mark.parametrize("cls", ALL)
def test_what_is_of_another_kind_is_refused(cls):
    for name in named(cls, "float"):
        with pytest.raises(
            ConfigError, match=rf"^{cls.__name__}\.{name} must be a number( or None)?, got 'x' \(a str\)"
        ):
            bind(cls, **{name: "x"})
    for name in named(cls, "bool"):
        with pytest.raises(ConfigError, match=rf"^{cls.__name__}\.{name} must be True or False, got 1 \(a int\)"):
            bind(cls, **{name: 1})
    with pytest.raises(ConfigError, match=r"\.discount must be a number, got True \(a bool\)"):
        bind(cls, discount=True)


def test_whole_numbers_and_tuples_are_asked_for_by_name():
    with pytest.raises(ConfigError, match=r"^PPO.epochs must be a whole number, got 4.0 \(a float\)$"):
        bind(weft.PPO, epochs=4.0)
    with pytest.raises(ConfigError, match=r"^PPO.hidden must be a tuple, as \(64, 64\), got 64 \(a int\)$"):
        bind(weft.PPO, hidden=64)
    with pytest.raises(ConfigError, match=r"^PPO.hidden must be a whole number, got 'a' \(a str\)$"):
        bind(weft.PPO, hidden=(64, "a"))
    assert bind(weft.PPO, epochs=np.int64(2)).epochs == 2
