"""Native vector environments, by hand-written ones under each auto-reset mode, and by Gymnasium's own CartPole."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from weft.core.buffers import timestep_buffers
from weft.core.errors import ConfigError, EnvironmentFault, EnvironmentRaised
from weft.core.specs import MultiDiscrete
from weft.envs.fake import ScriptedEnv
from weft.envs.masks import dimension_starts, mask_batch
from weft.envs.native import NativeVector, probe_native
from weft.envs.observations import Misfit
from weft.envs.registry import open_environment

SAME, NEXT, OFF = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED


class Counters(VectorEnv):
    """Two counters that end after 2 and 3 steps; an observation is [episode, step], the reward 10 + step.

    Row 0 is terminated at its end, row 1 truncated. Written against Gymnasium's words on auto-reset modes.
    """

    lengths = np.array([2, 3])

    def __init__(self, mode, num_envs=2, masked=False, batched_final=False):
        self.num_envs, self.mode, self.masked, self.batched_final = num_envs, mode, masked, batched_final
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.single_action_space = spaces.Discrete(3, start=1)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)
        self.actions, self.reset_seeds = [], []

    def reset(self, *, seed=None, options=None):
        mask = (options or {}).get("reset_mask")
        if mask is None:
            self.reset_seeds.append(seed)
            self.count, self.ended = np.zeros((self.num_envs, 2)), np.zeros(self.num_envs, bool)
        else:
            assert self.mode is OFF
            self.begin(mask)
            return np.where(mask[:, None], self.count, np.nan), self.info()  # other rows have no meaning
        return self.count, self.info()  # not a copy: it changes at the next call

    def begin(self, rows):
        self.count[rows, 0] += 1
        self.count[rows, 1] = 0
        self.ended[rows] = False

    def step(self, action):
        assert self.action_space.contains(action)
        self.actions.append(action.tolist())
        resetting = self.ended.copy()
        if self.mode is OFF:
            assert not resetting.any(), "a row that ended was not reset"
        moving = ~resetting if self.mode is NEXT else np.ones(self.num_envs, bool)
        self.count[moving, 1] += 1
        reward = np.where(moving, 10 + self.count[:, 1], 0)
        ended = moving & (self.count[:, 1] >= self.lengths[: self.num_envs])
        if self.mode is NEXT:
            self.begin(resetting)
        self.ended = ended
        terminated, truncated = ended & (np.arange(self.num_envs) == 0), ended & (np.arange(self.num_envs) == 1)
        info = {}
        if self.mode is SAME and ended.any():
            final = self.count.copy()
            if not self.batched_final:
                final = np.full(self.num_envs, None, object)
                for row in np.flatnonzero(ended):
                    final[row] = self.count[row].copy()
            info = {"final_obs": final, "_final_obs": ended.copy()}
            self.begin(ended.copy())
        return self.count, reward, terminated, truncated, {**info, **self.info()}

    def info(self):
        if not self.masked:
            return {}
        mask = np.zeros((self.num_envs, 3), np.int8)
        alive = ~self.ended
        mask[alive, self.count[alive, 1].astype(int) % 3] = 1  # at an ended row nothing is allowed
        return {"action_mask": mask}


def story(vector, out, steps):
    told = []
    for _ in range(steps):
        vector.step(np.zeros(vector.num_envs, np.int32), out)
        row = [out.observation.tolist(), out.reward.tolist(), out.terminated.tolist(), out.truncated.tolist()]
        ended = out.terminated | out.truncated
        told.append((*row, [f.tolist() if e else None for f, e in zip(out.final_observation, ended, strict=True)]))
    return told


def opened(mode, **options):
    spec = probe_native("counters", lambda: Counters(mode, **options))
    env = Counters(mode, **options)
    return NativeVector(spec, env, seed=3), timestep_buffers(spec, (2,)), env


AT_ONCE = [
    ([[0, 1], [0, 1]], [11, 11], [False, False], [False, False], [None, None]),
    ([[1, 0], [0, 2]], [12, 12], [True, False], [False, False], [[0, 2], None]),
    ([[1, 1], [1, 0]], [11, 13], [False, False], [False, True], [None, [0, 3]]),
    ([[2, 0], [1, 1]], [12, 11], [True, False], [False, False], [[1, 2], None]),
]


@pytest.mark.parametrize(("mode", "options"), [(SAME, {}), (SAME, {"batched_final": True}), (OFF, {})])
def test_same_step_and_disabled_begin_the_next_episode_at_once(mode, options):
    vector, out, env = opened(mode, **options)
    assert not vector.spec.next_step_reset
    assert out.valid is None
    vector.reset(out)
    assert story(vector, out, 4) == AT_ONCE
    assert env.actions[0] == [1, 1]  # the space starts at 1


def test_next_step_gives_a_record_that_is_not_valid_and_a_first_observation_after_it():
    vector, out, _ = opened(NEXT)
    assert vector.spec.next_step_reset
    vector.reset(out)
    assert out.valid.all()
    told, valid = [], []
    for _ in range(5):
        told += story(vector, out, 1)
        valid.append(out.valid.tolist())
    assert told == [
        ([[0, 1], [0, 1]], [11, 11], [False, False], [False, False], [None, None]),
        ([[0, 2], [0, 2]], [12, 12], [True, False], [False, False], [[0, 2], None]),
        ([[1, 0], [0, 3]], [0, 13], [False, False], [True, True], [[0, 2], [0, 3]]),
        ([[1, 1], [1, 0]], [11, 0], [False, False], [False, True], [None, [0, 3]]),
        ([[1, 2], [1, 1]], [12, 11], [True, False], [False, False], [[1, 2], None]),
    ]
    assert valid == [[True, True], [True, True], [False, True], [True, False], [True, True]]


class Sticky(Counters):
    """Repeats the flags of an end in the step that only resets."""

    def step(self, action):
        before = self.ended.copy()
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated | before, truncated, info


def test_flags_and_rewards_of_a_reset_only_step_are_not_believed():
    spec = probe_native("sticky", lambda: Sticky(NEXT))
    vector, out = NativeVector(spec, Sticky(NEXT), seed=0), timestep_buffers(spec, (2,))
    vector.reset(out)
    flags = [(step[2][0], step[3][0], bool(out.valid[0])) for _ in range(5) for step in story(vector, out, 1)]
    ordinary, ended, reset_only = (False, False, True), (True, False, True), (False, True, False)
    assert flags == [ordinary, ended, reset_only, ordinary, ended]


@pytest.mark.parametrize("mode", [SAME, NEXT, OFF])
def test_masks_are_of_the_observation_that_is_acted_on(mode):
    vector, out, _ = opened(mode, masked=True)
    assert vector.spec.action_mask
    vector.reset(out)
    for _ in range(9):
        vector.step(np.zeros(2, np.int32), out)
        for row in range(2):
            if mode is NEXT and (out.terminated[row] or out.truncated[row]) and out.valid[row]:
                assert out.action_mask[row].all()  # the action will be ignored
            else:
                assert out.action_mask[row].tolist() == np.eye(3)[int(out.observation[row, 1]) % 3].tolist()


@pytest.mark.parametrize("mode", [SAME, NEXT, OFF])
def test_gymnasiums_own_vectoriser_under_each_mode_agrees_with_ours(mode):
    """SyncVectorEnv over the same environments: same valid records, whatever the mode."""
    # Episodes of 4 steps: nested observations, whose final ones come in SAME_STEP as an array of dicts.
    space = spaces.Dict({"a": spaces.Box(-1, 1, (2,), np.float32), "b": spaces.Discrete(5, start=2)})

    def make():
        return ScriptedEnv(length=4, ends="truncated", observation_space=space)

    def native():
        return SyncVectorEnv([make, make], copy=False, autoreset_mode=mode)

    spec = probe_native("sync", native)
    vector, out = NativeVector(spec, native(), seed=0), timestep_buffers(spec, (2,))
    vector.reset(out)
    seed = vector._seed
    alone = [make(), make()]
    observations = [env.reset(seed=seed + i)[0] for i, env in enumerate(alone)]
    ends = 0
    for _ in range(14):
        vector.step(np.zeros(2, np.int32), out)
        for row, env in enumerate(alone):
            if out.valid is not None and not out.valid[row]:
                np.testing.assert_array_equal(out.observation["a"][row], observations[row]["a"])
                continue
            final, reward, terminated, truncated, _ = env.step(0)
            assert (reward, terminated, truncated) == (out.reward[row], out.terminated[row], out.truncated[row])
            now = final
            if truncated:
                ends += 1
                np.testing.assert_array_equal(out.final_observation["a"][row], final["a"])
                assert out.final_observation["b"][row] == final["b"] - 2
                observations[row], _ = env.reset()
                now = final if mode is NEXT else observations[row]
            np.testing.assert_array_equal(out.observation["a"][row], now["a"])
            assert out.observation["b"][row] == now["b"] - 2
    assert ends >= 4


def test_cartpoles_native_vector_environment():
    source = open_environment("CartPole-v1", vector="native")
    assert (source.spec.next_step_reset, source.spec.max_episode_steps) == (True, 500)
    vector, out = source.host(4, 1), timestep_buffers(source.spec, (4,))
    vector.reset(out)
    rng, resets, before = np.random.default_rng(0), 0, np.zeros(4, bool)
    last = out.observation.copy()
    for _ in range(200):
        vector.step(rng.integers(2, size=4).astype(np.int32), out)
        np.testing.assert_array_equal(out.valid, ~before)  # the step after an end, and only that one
        for row in np.flatnonzero(~out.valid):
            resets += 1
            assert np.abs(out.observation[row]).max() <= 0.05  # fresh
            np.testing.assert_array_equal(out.final_observation[row], last[row])
            assert (out.reward[row], out.terminated[row], out.truncated[row]) == (0, False, True)
        before = (out.terminated | out.truncated) & out.valid
        np.testing.assert_array_equal(out.final_observation[before], out.observation[before])
        last = out.observation.copy()
    assert resets > 10
    vector.close()


def test_a_native_batch_is_seeded_by_the_run_and_its_first_index():
    source = open_environment("CartPole-v1")
    out = timestep_buffers(source.spec, (3,))

    def first(seed, index):
        source.host(3, seed, index).reset(out)
        return out.observation.copy()

    np.testing.assert_array_equal(first(1, 0), first(1, 0))
    assert not np.array_equal(first(1, 0), first(2, 0))
    assert not np.array_equal(first(1, 0), first(1, 3))


def test_a_native_batch_cannot_be_brought_back_and_says_so():
    vector, out, env = opened(SAME)
    vector.reset(out)
    story(vector, out, 2)
    snapshot = vector.snapshot()
    assert vector.restore(snapshot, out) == [0, 1]
    assert out.truncated.all()
    np.testing.assert_array_equal(out.observation, [[0, 0], [0, 0]])
    assert len(set(env.reset_seeds)) == len(env.reset_seeds) == 2


class Faulty(Counters):
    def __init__(self, fault):
        super().__init__(SAME)
        self.fault, self.steps = fault, 0

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        self.steps += 1
        return self.fault(self.steps, observation, reward, terminated, truncated, info)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda n, o, r, te, tr, i: (o, r * np.array([1, np.nan]), te, tr, i), "reward in row 1 is nan"),
        (lambda n, o, r, te, tr, i: (o, r[:1], te, tr, i), r"reward came as float64 \[1\]"),
        (lambda n, o, r, te, tr, i: (o[:, :1], r, te, tr, i), r"shape \[2, 1\]"),
        (lambda n, o, r, te, tr, i: (o * [[1], [np.inf]], r, te, tr, i), "row 1: observation.0. is"),
        (lambda n, o, r, te, tr, i: (o, r, np.array([True, True]), tr, {}), "no 'final_obs'"),
    ],
)
def test_faults_name_the_step(fault, words):
    def later(n, *gave):
        return fault(n, *gave) if n == 2 else gave

    spec = probe_native("faulty", lambda: Faulty(lambda n, *gave: gave))
    vector, out = NativeVector(spec, Faulty(later), seed=0, first_index=8), timestep_buffers(spec, (2,))
    vector.reset(out)
    vector.step(np.zeros(2, np.int32), out)
    with np.errstate(invalid="ignore"), pytest.raises(EnvironmentFault, match=f"from number 8.*step 1: .*{words}"):
        vector.step(np.zeros(2, np.int32), out)


def as_objects(rows):
    """As Gymnasium batches masks that are tuples: an array of objects, None where a row has none."""
    given = np.full(len(rows), None, object)
    for i, row in enumerate(rows):
        given[i] = None if row is None else (np.array(row[:2]), np.array(row[2:]))
    return given


@pytest.mark.parametrize("form", [np.array, as_objects])
def test_a_row_that_allows_nothing_in_one_dimension(form):
    """Dimensions of 2 and 3 choices: a fault, unless the row's next action is of no effect."""
    starts = dimension_starts(MultiDiscrete((2, 3)))
    fine, lacking, nothing = [1, 0, 0, 0, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]
    info = {"action_mask": form([fine, lacking, nothing])}
    with pytest.raises(Misfit, match="allows nothing in dimension 1"):
        mask_batch(info, 3, 5, starts)
    with pytest.raises(Misfit, match="allows nothing in dimension 1"):
        mask_batch(info, 3, 5, starts, idle=np.array([False, False, True]))
    with pytest.raises(Misfit, match="allows no action at all"):
        mask_batch(info, 3, 5, starts, idle=np.array([False, True, False]))
    masks = mask_batch(info, 3, 5, starts, idle=np.array([True, True, True]))
    assert masks.astype(int).tolist() == [fine, [1] * 5, [1] * 5]


def test_batches_of_masks_need_a_row_for_each_environment():
    with pytest.raises(Misfit, match="has 2 rows, expected one for each of 3 environments"):
        mask_batch({"action_mask": as_objects([[1, 1, 1], [1, 1, 1]])}, 3, 3)
    with pytest.raises(Misfit, match="no 'action_mask'"):
        mask_batch({"action_mask": as_objects([[1, 1, 1], None])}, 2, 3)


class TwoChoices(Counters):
    """Each row chooses twice; after its third step, row 1 may choose nothing in the second dimension."""

    lengths = np.array([9, 9])

    def __init__(self):
        super().__init__(SAME)
        self.single_action_space = spaces.MultiDiscrete([2, 3])
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, 2)

    def info(self):
        mask = np.ones((2, 5), np.int8)
        mask[1, 2:] = self.count[1, 1] < 3
        return {"action_mask": mask}


def test_a_native_batch_names_the_row_and_the_dimension_in_which_nothing_is_allowed():
    spec = probe_native("two", TwoChoices)
    vector, out = NativeVector(spec, TwoChoices(), seed=0), timestep_buffers(spec, (2,))
    vector.reset(out)
    for _ in range(2):
        vector.step(np.zeros((2, 2), np.int32), out)
    with pytest.raises(EnvironmentFault, match=r"step 2: row 1: .* allows nothing in dimension 1 \(entries 2 to 4 of"):
        vector.step(np.zeros((2, 2), np.int32), out)


def test_what_it_raises_is_passed_on():
    def broken(*_):
        raise RuntimeError("stuck")

    vector, out, env = opened(SAME)
    vector.reset(out)
    env.step = broken
    with pytest.raises(EnvironmentRaised, match=r"raised RuntimeError in step at its step 0: stuck"):
        vector.step(np.zeros(2, np.int32), out)


@pytest.mark.parametrize("doing", ["step", "reset", "close"])
def test_a_batch_that_leaves_the_process_raised(doing):
    def leaves(*_, **__):
        raise SystemExit

    vector, out, env = opened(SAME)
    vector.reset(out)
    setattr(env, doing, leaves)
    ask = {"reset": lambda: vector.reset(out), "close": vector.close}
    with pytest.raises(EnvironmentRaised, match=f"raised SystemExit in {doing} at its step 0$"):
        ask.get(doing, lambda: vector.step(np.zeros(2, np.int32), out))()
    with pytest.raises(EnvironmentRaised, match=r"raised SystemExit in making it$"):
        probe_native("counters", leaves)


def test_odd_modes_shapes_and_renders_are_refused():
    env = Counters(SAME)
    env.metadata = {"autoreset_mode": "Sometimes"}
    with pytest.raises(EnvironmentFault, match=r"'Sometimes' is unknown .known: NextStep"):
        probe_native("odd", lambda: env)
    vector, out, _ = opened(SAME)
    vector.reset(out)
    with pytest.raises(ConfigError, match=r"shape"):
        vector.step(np.zeros((2, 1), np.int32), out)
    with pytest.raises(ConfigError, match=r"render=True"):
        vector.render()


def test_cartpole_is_rendered():
    vector = open_environment("CartPole-v1", vector="native").host(2, 0, render=True)
    out = timestep_buffers(vector.spec, (2,))
    vector.reset(out)
    frame = vector.render()
    assert (frame.dtype, frame.ndim, frame.shape[-1]) == (np.uint8, 3, 3)
    assert frame.std() > 0
    vector.close()
    vector.close()
