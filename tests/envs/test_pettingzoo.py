"""PettingZoo environments: who is in which group, who is there, what each gets, and what is refused."""

import importlib.util
import json

import numpy as np
import pytest
import zoo
from gymnasium import spaces
from zoo import Meadow, Nim

from weft.core.buffers import timestep_buffers
from weft.core.errors import ConfigError, EnvironmentFault, EnvironmentRaised, MissingExtra, UnknownName
from weft.core.specs import Box, MultiBinary, MultiDiscrete
from weft.core.trees import tree_leaves
from weft.envs.guards import Guards, guarded
from weft.envs.registry import open_environment
from weft.envs.regroup import regrouped


class Playing:
    """A batch of one, stepped by actions as policies give them; the last environments made, newest last."""

    def __init__(self, make, num_envs=1, guards=None, **options):
        self.made = []

        def factory():
            self.made.append(make())
            return self.made[-1]

        source = open_environment(factory, **options)
        self.source = source if guards is None else guarded(source, guards)
        self.spec = self.source.spec
        self.env = self.source.host(num_envs, 3)
        self.out = timestep_buffers(self.spec, (num_envs,))
        self.env.reset(self.out)

    def step(self, action):
        given = {t: np.asarray([a]) for t, a in action.items()} if isinstance(action, dict) else np.asarray([action])
        self.env.step(given, self.out)
        return self.out

    def zeros(self):
        shapes = self.spec.teams or {"": self.spec}
        given = {team: np.zeros(one.action.shape, one.action.dtype) for team, one in shapes.items()}
        return given if self.spec.teams else given[""]


# ---- groups -----------------------------------------------------------------------------------------------------


def test_agents_that_are_alike_are_one_group_without_a_team():
    spec = open_environment(zoo.fixed).spec
    assert not spec.teams
    assert spec.agents == ("hen_0", "hen_1", "hen_2")
    assert spec.observation == {"agents": Box((3, 3)), "state": Box((2,)), "present": MultiBinary(3)}
    assert spec.action == MultiDiscrete((3, 3, 3))
    assert spec.reward_shape == (3,)


def test_kinds_are_teams_and_boxes_have_room_for_nothing():
    spec = open_environment(zoo.kinds).spec
    assert list(spec.teams) == ["hen", "fox"]
    assert spec.teams["fox"].agents == ("fox_0", "fox_1")
    assert spec.teams["fox"].observation["agents"] == Box((2, 4), "float32", 0.0, 9.0)
    assert (spec.action_mask, spec.teams["hen"].action_mask, spec.teams["fox"].action_mask) == (True, True, False)


class Named(Meadow):
    """Agents by any names; those in ``wide`` see more."""

    def __init__(self, names, wide=()):
        super().__init__()
        self.possible_agents, self.wide = list(names), wide

    def observation_space(self, agent):
        return spaces.Box(0, 1, (5 if agent in self.wide else 2,))

    def action_space(self, agent):
        return spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        self.agents = self.possible_agents[:]
        return {a: np.zeros(self.observation_space(a).shape, np.float32) for a in self.agents}, {}

    def step(self, actions):
        seen, _ = self.reset()
        return seen, dict.fromkeys(seen, 0.0), {}, {}, {}


@pytest.mark.parametrize(
    ("names", "wide", "teams"),
    [
        (["a_0", "a_1", "b_0"], (), {"a": ("a_0", "a_1"), "b": ("b_0",)}),
        (["a_0", "a_1", "a_2"], ("a_1",), {"a_0": ("a_0", "a_2"), "a_1": ("a_1",)}),
        (["left", "right"], (), {"left": ("left",), "right": ("right",)}),
        (["my car 1", "my car 2", 7], (), {"my_car": ("my car 1", "my car 2"), "agent": ("7",)}),
        ([0, 1], (), {}),
    ],
)
def test_groups_are_by_what_names_begin_with_and_by_spaces(names, wide, teams):
    spec = open_environment(lambda: Named(names, wide)).spec
    assert {team: one.agents for team, one in spec.teams.items()} == teams


# ---- who is there -----------------------------------------------------------------------------------------------


def test_agents_come_and_go():
    """hen_1 leaves by step 2, hen_2 by step 4, hen_3 comes by step 3, and step 6 cuts the rest."""
    play = Playing(zoo.dying)
    out = play.out
    present = [out.observation["present"][0].tolist()]
    for action in ([0, 1, 2, 0], [1, 1, 1, 2], [2, 2, 0, 2], [0, 0, 0, 0], [0, 0, 0, 1]):
        play.step(action)
        present.append(out.observation["present"][0].tolist())
        if len(present) == 3:
            assert out.reward[0].tolist() == [2, 12, 22, 0], "its last reward is that of the step by which it left"
            assert out.observation["agents"][0, 1].tolist() == [0, 0, 0]
        if len(present) == 4:
            assert out.reward[0].tolist() == [3, 0, 21, 0], "what is not there gets nothing"
    assert present == [[1, 1, 1, 0], [1, 1, 1, 0], [1, 0, 1, 0], [1, 0, 1, 1], [1, 0, 0, 1], [1, 0, 0, 1]]
    acted = play.made[-1].acted
    assert acted[0] == {"hen_0": 1, "hen_1": 2, "hen_2": 3}
    assert acted[2] == {"hen_0": 3, "hen_2": 1}
    assert not out.first[0]
    play.step([2, 0, 0, 1])
    assert (out.terminated[0], out.truncated[0]) == (False, True)
    assert out.reward[0].tolist() == [3, 0, 0, 32]
    assert out.final_observation["present"][0].tolist() == [1, 0, 0, 1]
    assert out.final_observation["agents"][0, :, 0].tolist() == [6, 0, 0, 6]
    assert out.observation["present"][0].tolist() == [1, 1, 1, 0], "the next episode"
    assert out.observation["agents"][0, 0, 0] == 0


@pytest.mark.parametrize(
    ("leaves", "flags", "present"),
    [
        ({"hen_0": 3, "hen_1": 3}, (True, False), [0, 0]),
        ({"hen_0": 2, "hen_1": 3}, (True, False), [0, 0]),
        ({"hen_0": 3}, (False, True), [0, 1]),  # any that is cut: only what it would have got has a value
        ({}, (False, True), [1, 1]),
    ],
)
def test_the_last_ones_decide_how_an_episode_ends(leaves, flags, present):
    play = Playing(lambda: Meadow(2, length=3, leaves=leaves))
    for _ in range(3):
        assert not play.out.terminated.any()
        play.step([0, 0])
    assert (play.out.terminated[0], play.out.truncated[0]) == flags
    assert play.out.final_observation["present"][0].tolist() == present


class Ghost(Meadow):
    """hen_0 leaves by step 1 and is there again after step 2."""

    def step(self, actions):
        gave = super().step(actions)
        if self.time == 2:
            self.agents = ["hen_0", *self.agents]
            gave = (self.seen(), *gave[1:])
        return gave


def test_nobody_comes_back_under_the_same_name():
    play = Playing(lambda: Ghost(leaves={"hen_0": 1}))
    play.step([0, 0])
    with pytest.raises(EnvironmentFault, match=r"number 0, step 1: agent 'hen_0' came back after it had left"):
        play.step([0, 0])


def test_agents_that_always_take_part_need_no_marks():
    spec = open_environment(zoo.fixed, changing=False, state=False).spec
    assert spec.observation == {"agents": Box((3, 3))}
    play = Playing(zoo.dying)
    assert "present" in play.spec.observation
    with pytest.raises(EnvironmentFault, match=r"agents hen_3 take no part.*changing=false"):
        open_environment(zoo.dying, changing=False)
    play = Playing(lambda: Meadow(leaves={"hen_1": 2}), changing=False)
    play.step([0, 0])
    with pytest.raises(EnvironmentFault, match=r"step 1: agents hen_1 take no part"):
        play.step([0, 0])


def test_what_a_central_critic_sees_is_everybodys():
    play = Playing(lambda: Meadow(1, foxes=1, with_state=True))
    out = play.step({"hen": [0], "fox": [[0, 0]]})
    drawn = out.observation["hen"]["agents"][0, 0, 2]
    for team in ("hen", "fox"):
        np.testing.assert_allclose(out.observation[team]["state"][0], [1, drawn])


def test_actions_are_in_the_environments_units():
    play = Playing(zoo.kinds)
    out = play.step({"hen": [2, 0], "fox": [[-1.0, 1.0], [0.0, 5.0]]})
    acted = play.made[-1].acted[-1]
    assert (acted["hen_0"], acted["hen_1"]) == (3, 1)
    np.testing.assert_allclose(acted["fox_0"], [0, 2])
    np.testing.assert_allclose(acted["fox_1"], [1, 2])
    np.testing.assert_allclose(out.reward["hen"][0], [3, 11])
    np.testing.assert_allclose(out.reward["fox"][0], [2, 3])
    with pytest.raises(ConfigError, match=r"actions of team 'fox' have shape \[1, 3\], expected \[1, 2, 2\]"):
        play.step({"hen": [2, 0], "fox": [0, 0, 0]})


def test_policies_by_pattern_may_part_its_groups():
    """Of masks, only those that have any."""
    source = regrouped(open_environment(zoo.kinds), ["hen_0", "hen_1", "fox*"])
    env, out = source.host(1, 3), timestep_buffers(source.spec, (1,))
    env.reset(out)
    assert out.action_mask["hen_0"][0].tolist() == [False, True, True]
    assert out.action_mask["hen_1"][0].tolist() == [True, False, True]
    assert out.action_mask["fox"] is None
    env.step({"hen_0": np.array([[2]]), "hen_1": np.array([[0]]), "fox": np.zeros((1, 2, 2))}, out)
    assert {team: reward[0].tolist() for team, reward in out.reward.items()} == {
        "hen_0": [3],
        "hen_1": [11],
        "fox": [2, 2],
    }


# ---- masks and turns --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["observation", "info"])
def test_masks_are_put_side_by_side(where):
    play = Playing(lambda: Meadow(2, masks=where, leaves={"hen_0": 2}))
    assert play.out.action_mask[0].tolist() == [False, True, True, True, False, True]
    assert play.spec.observation["agents"] == Box((2, 3))
    play.step([1, 0])
    play.step([1, 0])
    assert play.out.action_mask[0].tolist() == [True, True, True, False, True, True], "to who is gone all is allowed"


class Forbidding(Meadow):
    def allowed(self, agent):
        return np.zeros(3) if self.time and agent == "hen_1" else np.ones(3)


def test_a_mask_that_allows_nothing_names_the_agent():
    with pytest.raises(EnvironmentFault, match=r"agent 'hen_1': observation\['action_mask'\] allows no action at all"):
        open_environment(lambda: Forbidding(masks="observation"))


def test_those_that_wait_for_their_turn_have_one_choice():
    play = Playing(lambda: Nim(4))
    assert play.spec.action_mask
    told = []
    for action in ([1, 0], [0, 1], [0, 0]):
        told.append((play.out.observation["agents"][0].tolist(), play.out.action_mask[0].tolist()))
        play.step(action)
        told.append(play.out.reward[0].tolist())
        if len(told) == 4:
            assert (play.out.terminated[0], play.out.truncated[0]) == (True, False)
    yes, no = True, False
    assert told == [
        ([4, 4], [yes, yes, yes, no]),
        [0, 0],
        ([2, 2], [yes, no, yes, yes]),
        [-1, 1],
        ([4, 4], [yes, yes, yes, no]),
        [0, 0],
    ]


def test_turn_games_have_choices():
    with pytest.raises(ConfigError, match=r"take turns, and agent 'player_1' acts by Box.*need discrete actions"):
        open_environment(lambda: Nim(continuous=True))


def test_games_of_pettingzoo_are_played_by_their_rules():
    """Legal moves only, by the masks: a game of tic-tac-toe ends with a winner or a full board."""
    source = open_environment("pettingzoo:tictactoe_v3")
    env, out = source.host(4, 0), timestep_buffers(source.spec, (4,))
    env.reset(out)
    rng, returns = np.random.default_rng(0), []
    for _ in range(60):
        masks = out.action_mask.reshape(4, 2, 9)
        moves = np.array([[rng.choice(np.flatnonzero(mask)) for mask in row] for row in masks], np.int32)
        env.step(moves, out)
        for row in np.flatnonzero(out.terminated):
            returns.append(tuple(out.reward[row]))
            assert out.final_observation["agents"][row].sum() == 2 * (out.final_observation["agents"][row, 0].sum())
    assert {(1.0, -1.0), (-1.0, 1.0)} <= set(returns) <= {(1.0, -1.0), (-1.0, 1.0), (0.0, 0.0)}
    env.close()


def test_the_particle_world_is_what_mpe2_says():
    from mpe2 import simple_spread_v3

    source = open_environment("pettingzoo:simple_spread_v3", N=2, max_cycles=4)
    env, out = source.host(1, 5), timestep_buffers(source.spec, (1,))
    env.reset(out)
    theirs = simple_spread_v3.parallel_env(N=2, max_cycles=4)
    seen, _ = theirs.reset(seed=env.snapshot()["rows"][0]["seed"])
    for step, moves in enumerate(([1, 2], [3, 4], [0, 1], [2, 2])):
        np.testing.assert_array_equal(out.observation["agents"][0], [seen["agent_0"], seen["agent_1"]])
        np.testing.assert_array_equal(out.observation["state"][0], theirs.state())
        env.step(np.array([moves]), out)
        seen, rewards, _, cut, _ = theirs.step(dict(zip(theirs.agents, moves, strict=True)))
        np.testing.assert_allclose(out.reward[0], list(rewards.values()), rtol=1e-6)
        assert out.truncated[0] == (step == 3) == cut["agent_0"]
    np.testing.assert_array_equal(out.final_observation["agents"][0], [seen["agent_0"], seen["agent_1"]])
    env.close()


# ---- what goes wrong --------------------------------------------------------------------------------------------


class Odd(Meadow):
    """At step 2 ``what`` of hen_1 is ``value``."""

    def __init__(self, what, value):
        super().__init__()
        self.what, self.value = what, value

    def step(self, actions):
        gave = super().step(actions)
        if self.time == 2:
            if self.value is KeyError:
                del gave[self.what]["hen_1"]
            else:
                gave[self.what]["hen_1"] = self.value
        return gave


@pytest.mark.parametrize(
    ("what", "value", "message"),
    [
        (0, np.array([0, np.nan, 0]), r"agent 'hen_1': observation\[1\] is nan"),
        (0, np.zeros(4), r"agent 'hen_1': observation came as shape \[4\] float64, but the space says Box\[3\]"),
        (0, KeyError, r"agent 'hen_1' takes part, and there is no observation for it"),
        (1, np.inf, r"agent 'hen_1': the reward is inf, expected a finite number"),
        (1, [1, 2], r"agent 'hen_1': the reward is \[1, 2\]"),
        (2, "yes", r"agent 'hen_1': terminated is 'yes', expected True or False"),
    ],
)
def test_what_breaks_the_contract_names_the_agent(what, value, message):
    play = Playing(lambda: Odd(what, value))
    play.step([0, 0])
    with pytest.raises(EnvironmentFault, match=f"number 0, step 1: {message}") as caught:
        play.step([0, 0])
    assert not isinstance(caught.value, EnvironmentRaised)


def test_a_reset_that_breaks_the_contract_is_a_fault_and_not_tried_again():
    class Empty(Meadow):
        def reset(self, seed=None, options=None):
            self.tried = getattr(self, "tried", 0) + 1
            gave = super().reset(seed)
            return gave if self.tried == 1 else ({}, {})

    play = Playing(lambda: Empty(length=2), guards=Guards("reset", "warn"))
    play.step([0, 0])
    with pytest.raises(EnvironmentFault, match=r"agent 'hen_0' takes part, and there is no observation"):
        play.step([0, 0])


def test_one_that_raises_begins_again_and_its_record_is_left_out():
    class Breaks(Meadow):
        broken = False

        def step(self, actions):
            if self.time == 1 and not Breaks.broken:
                Breaks.broken = True
                raise ZeroDivisionError("a fence came down")
            return super().step(actions)

    play = Playing(lambda: Breaks(2, foxes=1), num_envs=2, guards=Guards("reset", "warn"))
    assert all(one.may_fail for one in play.spec.teams.values())
    action = {"hen": np.zeros((2, 2), np.int32), "fox": np.zeros((2, 1, 2), np.float32)}
    play.env.step(action, play.out)
    play.env.step(action, play.out)
    out = play.out
    assert out.valid.tolist() == [False, True]
    assert out.truncated.tolist() == [True, False]
    assert out.reward["hen"].tolist() == [[0, 0], [1, 11]]
    assert out.observation["hen"]["agents"][:, 0, 0].tolist() == [0, 2]
    assert [trouble.errors for trouble in play.env.troubles.take()] == [1]
    play.env.step(action, play.out)
    assert out.reward["hen"].tolist() == [[1, 11], [1, 11]]


def test_a_reward_is_kept_although_the_reset_after_it_fails():
    class Stuck(Meadow):
        made = 0

        def __init__(self):
            super().__init__(length=2)
            self.last = Stuck.made != 3
            Stuck.made += 1

        def reset(self, seed=None, options=None):
            if not self.last and getattr(self, "time", 0) == 2:
                raise RuntimeError("the gate is stuck")
            return super().reset(seed)

    play = Playing(Stuck, num_envs=2, guards=Guards("reset", "warn"))
    for _ in range(2):
        play.env.step(np.zeros((2, 2), np.int32), play.out)
    assert Stuck.made == 6, "the probe's three, a batch of two, and one made anew"
    assert play.out.valid.all()
    assert play.out.truncated.all()
    assert play.out.reward.tolist() == [[1, 11], [1, 11]]


@pytest.mark.parametrize("steps", [2, 3, 8, 12])  # 6: an episode
def test_episodes_are_brought_back_with_their_rewards(steps):
    """In the first episode and in later ones, which are seeded from the first's seed; and right after an end."""
    play = Playing(zoo.kinds, num_envs=2)
    rng = np.random.default_rng(0)

    def action():
        return {"hen": rng.integers(3, size=(2, 2)), "fox": rng.uniform(-1, 1, (2, 2, 2)).astype(np.float32)}

    for _ in range(steps):
        play.env.step(action(), play.out)
    other, there = play.source.host(2, 3), timestep_buffers(play.spec, (2,))
    assert other.restore(json.loads(json.dumps(play.env.snapshot())), there) == []
    for _ in range(8):
        left, right = play.out._replace(final_observation=None), there._replace(final_observation=None)
        for a, b in zip(tree_leaves(left), tree_leaves(right), strict=True):
            np.testing.assert_array_equal(a, b)
        given = action()
        play.env.step(given, play.out)
        other.step(given, there)


def test_environments_of_a_batch_are_different_objects():
    one = Meadow()
    with pytest.raises(EnvironmentFault, match=r"same object as an earlier one"):
        open_environment(lambda: one).host(2, 0)


def test_rendering():
    source = open_environment("zoo:Meadow")
    env = source.host(1, 0, render=True)
    env.reset(timestep_buffers(source.spec, (1,)))
    assert env.render().shape == (8, 8, 3)
    env.close()


# ---- names and options ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mpe/simple_v3", "simple_v3", "simple-v3"])
def test_names_with_or_without_their_family(name):
    assert open_environment(f"pettingzoo:{name}").spec.agents == ("agent_0",)


def test_names_that_are_not_known():
    with pytest.raises(UnknownName, match=r"Did you mean 'pettingzoo:simple_spread_v3'"):
        open_environment("pettingzoo:simple_spred_v3")
    with pytest.raises(ConfigError, match=r"does not take these options \(colour\)"):
        open_environment("pettingzoo:simple_v3", colour="red")
    with pytest.raises(ConfigError, match=r"no native batches"):
        open_environment("pettingzoo:simple_v3", vector="native")
    with pytest.raises(ConfigError, match=r"option changing is true or false, got 3"):
        open_environment("pettingzoo:simple_v3", changing=3)
    with pytest.raises(UnknownName, match=r"unknown option of environment 'weft.envs.fake:ScriptedEnv': 'changing'"):
        open_environment("weft.envs.fake:ScriptedEnv", changing=False)


def test_what_is_missing_says_how_to_get_it(monkeypatch):
    real = importlib.util.find_spec
    missing = {"mpe2"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name in missing else real(name, *a))
    with pytest.raises(MissingExtra, match=r"needs 'mpe2'.*pip install 'weft\[pettingzoo\]'"):
        open_environment("pettingzoo:simple_spread_v3")
    missing.add("pettingzoo")
    with pytest.raises(MissingExtra, match=r"needs 'pettingzoo'.*pip install 'weft\[pettingzoo\]'"):
        open_environment("pettingzoo:mpe/simple_spread_v3")


def test_an_environment_without_possible_agents_is_refused():
    class Anybody(Meadow):
        def __init__(self):
            super().__init__()
            self.possible_agents = []

    with pytest.raises(ConfigError, match=r"has no possible_agents"):
        open_environment(Anybody)
