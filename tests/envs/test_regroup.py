"""Policies by pattern: every agent in one group, and the same environment whatever the groups are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from teams import Names, RedAndBlue

import weft
from weft.core.buffers import timestep_buffers
from weft.envs.jax_on_host import JaxOnHostFactory
from weft.envs.members import assigned, policy_name
from weft.envs.protocol import EnvSource
from weft.envs.regroup import Grouping, RegroupedFactory, regrouped

PATTERNS = ("red_0", "[rb]*_[12]", "blue_0")


def source(env: object) -> EnvSource:
    return EnvSource(env.spec.name, env.spec, pure=env)  # type: ignore[attr-defined, arg-type]


def test_who_is_in_which_group() -> None:
    groups = assigned(RedAndBlue().spec, PATTERNS)
    assert {name: [m.name for m in found] for name, found in groups.items()} == {
        "red_0": ["red_0"],
        "rb_12": ["red_1", "blue_1", "blue_2"],
        "blue_0": ["blue_0"],
    }
    assert [policy_name(p) for p in ("hider*", "*", "a.b?", "team_*")] == ["hider", "agents", "a_b", "team"]


def test_a_team_is_matched_by_its_own_name_and_stays_as_it_is() -> None:
    given = source(RedAndBlue())
    assert regrouped(given, ["red", "blue"]) is given


@pytest.mark.parametrize(
    ("patterns", "words"),
    [
        (["red*"], "none of 'red*' matches agent 'blue_0'. Each agent needs exactly one policy"),
        (["red*", "*_0", "blue_[12]"], r"'red*' and '*_0' match agent 'red_0'"),
        (["red*", "blue*", "green*"], "policy 'green*' matches no agent. Its agents are red_0, red_1, blue_0"),
        (["red_?", "red?*", "blue*"], "two policies would be called 'red'"),
    ],
)
def test_each_agent_needs_exactly_one_policy(patterns: list[str], words: str) -> None:
    with pytest.raises(weft.ConfigError) as caught:
        assigned(RedAndBlue().spec, patterns)
    assert words in str(caught.value)


def test_agents_of_a_policy_must_see_and_do_alike() -> None:
    near, far = (weft.EnvSpec("E", weft.Box((n,)), weft.Discrete(2)) for n in (2, 3))
    spec = weft.EnvSpec.of_teams("E", {"near": near, "far": far})
    with pytest.raises(weft.ConfigError, match=r"'near' sees Box\[2\] float32 .*'far' sees Box\[3\] float32"):
        assigned(spec, ["*"])


def test_one_agent_needs_no_patterns() -> None:
    with pytest.raises(weft.ConfigError, match="has one agent, and policies by pattern are for several"):
        assigned(weft.EnvSpec("E", weft.Box((2,)), weft.Discrete(2)), ["*"])


@pytest.mark.parametrize("masked", [False, True])
def test_other_groups_are_the_same_environment(masked: bool) -> None:
    """Each agent sees, does and gets the same in either grouping; on the host too."""
    env, key = RedAndBlue(masked=masked), jax.random.key(0)
    other = regrouped(source(env), PATTERNS)
    assert other.pure is not None
    state, seen = env.reset(key)
    again, sights = other.pure.reset(key)
    np.testing.assert_array_equal(sights["rb_12"]["agents"][0], seen["red"]["agents"][1])
    np.testing.assert_array_equal(sights["rb_12"]["agents"][2], seen["blue"]["agents"][2])
    np.testing.assert_array_equal(sights["blue_0"]["agents"][0], seen["blue"]["agents"][0])
    if masked:
        masks, theirs = env.action_mask(state), other.pure.action_mask(again)  # type: ignore[attr-defined]
        np.testing.assert_array_equal(theirs["rb_12"], jnp.concatenate([masks["red"][4:], masks["blue"][4:]]))
    own = {"red": jnp.array([0, 1]), "blue": jnp.array([2, 3, 0])}
    new = {"red_0": jnp.array([0]), "rb_12": jnp.array([1, 3, 0]), "blue_0": jnp.array([2])}
    _, before = env.step(state, own, key)
    _, after = other.pure.step(again, new, key)  # type: ignore[arg-type]
    assert after.reward["rb_12"].tolist() == [float(before.reward["red"][1]), *before.reward["blue"][1:].tolist()]  # type: ignore[call-overload, index]

    grouping = Grouping(env.spec, tuple((n, tuple(m)) for n, m in assigned(env.spec, PATTERNS).items()))
    batch = RegroupedFactory(JaxOnHostFactory(env), grouping)(3, 1)
    out = timestep_buffers(batch.spec, (3,))
    batch.reset(out)
    wanted = {name: out.observation[name]["agents"].argmax(-1).astype(np.int32) for name in batch.spec.teams}
    batch.step(wanted, out)
    assert {name: rewards.tolist() for name, rewards in out.reward.items()} == {  # type: ignore[attr-defined]
        "red_0": [[1.0]] * 3,
        "rb_12": [[1.0] * 3] * 3,
        "blue_0": [[1.0]] * 3,
    }
    batch.close()


def test_a_part_of_a_changing_group_keeps_who_is_present() -> None:
    other = regrouped(source(Names(changing=True)), ["a0", "a[12]"])
    assert other.pure is not None
    state, _ = other.pure.reset(jax.random.key(0))
    wanted = state.wanted
    _, went = other.pure.step(
        state, {"a0": wanted[:1], "a_12": (wanted[1:] + jnp.array([0, 1])) % 4}, jax.random.key(1)
    )  # type: ignore[arg-type]
    assert went.observation["a0"]["present"].tolist() == [1]
    assert went.observation["a_12"]["present"].tolist() == [1, 0]
