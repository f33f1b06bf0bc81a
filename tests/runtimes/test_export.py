"""An exported folder gives the actions of the policy, in a process that can import neither Weft nor, for NumPy, JAX."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import SMALL, Masked

import weft
from weft.core.errors import ConfigError, RunError, UnknownName
from weft.envs.registry import open_environment
from weft.nets.native import library
from weft.runtimes.policies.export import export_policy
from weft.runtimes.policies.export_check import check_export, draw, load_exported
from weft.runtimes.policies.export_program import CannotBeProgram, as_program
from weft.runtimes.policies.export_trace import trace
from weft.runtimes.policies.exported.loader import Program
from weft.runtimes.policies.policy import Policy

OUTSIDE = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Blocked())
sys.path.insert(0, {folder!r})
import numpy as np
from policy import Policy
asked = np.load({asked!r}, allow_pickle=False)
policy = Policy(format={format!r})
names = sorted({{name.partition("/")[2] for name in asked.files if name.startswith("seen/")}})
out = []
for step in range(len(asked["first"])):
    seen = asked["seen/"][step] if names == [""] else {{name: asked["seen/" + name][step] for name in names}}
    mask = asked["mask"][step] if "mask" in asked.files else None
    out.append(policy(seen, mask, first=asked["first"][step]))
np.save({answers!r}, np.stack(out))
assert policy(seen, mask, greedy=False).shape == out[0].shape
assert not any(name.partition(".")[0] in {blocked} for name in sys.modules)
"""


def policy_of(name, environment, **fields):
    source = open_environment(environment)
    made = {"ppo": weft.PPO, "dqn": weft.DQN, "sac": weft.SAC}[name]
    small = {**SMALL, **fields} if name == "ppo" else {"hidden": (16,), **fields}
    algorithm = made(**small).bind(weft.Spec(source.spec, 4, 10))
    params = jax.device_get(algorithm.init(jax.random.key(1)).params)
    if fields.get("normalise_observations"):  # as if it had seen some
        seen = params.observations
        moved = jax.tree.map(lambda x: np.asarray(x) + np.float32(0.5) if np.ndim(x) else np.float32(90), seen)
        params = params._replace(observations=moved)
    return Policy(algorithm, params), source


def exported(policy, source, folder, formats=("numpy", "stablehlo")):
    return export_policy(
        policy, folder, formats, {"run": "r"}, lambda made, kept: check_export(made, kept, policy, source, None, "")
    )


def dictionary():
    import gymnasium as gym

    class Env(gym.Env):
        observation_space = gym.spaces.Dict(
            {
                "a": gym.spaces.Box(-1, 1, (3,)),
                "b": gym.spaces.Discrete(4),
                "c": gym.spaces.Box(0, 255, (4, 4), np.uint8),
            }
        )
        action_space = gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 10]))

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.observation_space.seed(seed)
            return self.observation_space.sample(), {}

        def step(self, action):
            assert self.action_space.contains(action)
            return self.observation_space.sample(), 1.0, False, False, {}

    return Env()


def choices():
    import gymnasium as gym

    class Env(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (3,))
        action_space = gym.spaces.MultiDiscrete([3, 5, 2])

        def reset(self, *, seed=None, options=None):
            return np.zeros(3, np.float32), {}

        def step(self, action):
            return np.float32(action / 10), 1.0, False, False, {}

    return Env()


SLOW = pytest.mark.slow
AT_LENGTH = ("lstm", "dictionary", "choices")
CASES = {
    "mlp": ("ppo", "weft:CartPole-v1", {}),
    "cnn": ("ppo", "weft:Orchard-v0", {}),
    "gru": ("ppo", "weft:Memory-v0", {"recurrent": "gru", "minibatches": 1}),
    "lstm": ("ppo", "weft:CartPole-v1", {"recurrent": "lstm", "minibatches": 1}),
    "normalised": ("ppo", "weft:Pendulum-v1", {"normalise_observations": True}),
    "squashed": ("ppo", "weft:Pendulum-v1", {"distribution": "squashed"}),
    "masked": ("ppo", Masked(), {}),
    "dictionary": ("ppo", dictionary, {}),
    "choices": ("ppo", choices, {}),
    "dqn": ("dqn", "weft:CartPole-v1", {"dueling": True}),
    "sac": ("sac", "weft:Pendulum-v1", {}),
}


class Jitted(weft.SAC):
    """Its network is called by a function that jax.jit keeps as it was traced first."""

    def greedy(self, params, carry, timestep):
        return weft.Acted(self.actions.mode(self.forward(params, timestep.observation[None])[0]), carry)

    @functools.cached_property
    def forward(self):
        def forward(params, observation):
            return self.output(params, observation)

        return jax.jit(forward)


@pytest.mark.skipif(not library.available(), reason=library.trouble())
def test_a_network_that_was_traced_with_kernels_is_refused_with_its_function(monkeypatch):
    source = open_environment("weft:Pendulum-v1")

    def made():
        algorithm = Jitted(hidden=(256, 256)).bind(weft.Spec(source.spec, 4, 10))
        return Policy(algorithm, jax.device_get(algorithm.init(jax.random.key(1)).params))

    assert trace(made(), "greedy").any_batch, "it is traced here for the first time, without kernels"
    policy = made()
    assert "weft_towers" in str(jax.make_jaxpr(policy.algorithm.forward)(policy.params, np.zeros((1, 3), np.float32)))
    with pytest.raises(
        ConfigError, match=r"policy of Jitted: 'forward' was traced before, with weft_towers.*WEFT_NATIVE=0"
    ):
        trace(policy, "greedy")


def questions(policy, steps=6, rows=5):
    """Observations of several steps, with episodes that begin in between, and what the policy does."""
    spec, random = policy.algorithm.spec.environment, np.random.default_rng(3)
    seen = [draw(spec.observation, random, rows) for _ in range(steps)]
    first = random.random((steps, rows)) < 0.3
    mask = random.random((steps, rows, spec.mask_size)) < 0.6 if spec.action_mask else None
    nothing = np.zeros(rows, np.float32)
    policy.reset()
    actions = []
    for step in range(steps):
        allowed = None if mask is None else mask[step]
        timestep = weft.Timestep(seen[step], nothing, first[step], np.zeros(rows, bool), action_mask=allowed)
        actions.append(spec.to_native(policy.act(timestep)))
    if isinstance(seen[0], dict):
        arrays = {f"seen/{k}": np.stack([s[k] for s in seen]) for k in seen[0]}
    else:
        arrays = {"seen/": np.stack(seen)}
    arrays["first"] = first
    if mask is not None:
        arrays["mask"] = mask
    return arrays, np.stack(actions)


def outside(folder, tmp_path, arrays, form, python=sys.executable, isolated=("-I",)):
    """What the export answers in a process of its own that can import neither Weft nor JAX (or Weft alone)."""
    asked, answers = tmp_path / "asked.npz", tmp_path / f"{form}.npy"
    np.savez(asked, **arrays)
    blocked = {"weft", "jax", "jaxlib", "flax"} if form == "numpy" else {"weft", "flax"}
    code = OUTSIDE.format(blocked=blocked, folder=str(folder), asked=str(asked), answers=str(answers), format=form)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    ran = subprocess.run([python, *isolated, "-c", code], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    return np.load(answers)


@pytest.mark.parametrize("case", [pytest.param(c, marks=SLOW) if c in AT_LENGTH else c for c in CASES])
def test_the_same_actions_without_weft_and_without_jax(case, tmp_path):
    name, environment, fields = CASES[case]
    policy, source = policy_of(name, environment, **fields)
    manifest = exported(policy, source, tmp_path / "made", ("numpy",))
    assert manifest["checks"]["random"] == 64
    assert manifest["checks"]["played"] == 512
    arrays, wanted = questions(policy)
    got = outside(tmp_path / "made", tmp_path, arrays, "numpy")
    assert got.dtype == wanted.dtype
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(got, wanted, atol=1e-4)
    else:
        assert np.array_equal(got, wanted)


@pytest.mark.parametrize("case", ["gru", pytest.param("cnn", marks=SLOW), pytest.param("sac", marks=SLOW)])
def test_the_same_actions_in_jax_without_weft(case, tmp_path):
    name, environment, fields = CASES[case]
    policy, source = policy_of(name, environment, **fields)
    exported(policy, source, tmp_path / "made", ("stablehlo",))
    arrays, wanted = questions(policy)
    np.testing.assert_allclose(outside(tmp_path / "made", tmp_path, arrays, "stablehlo"), wanted, atol=1e-5)


@pytest.mark.slow
def test_in_an_environment_with_numpy_alone(tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "numpy"], check=True)
    for case, (name, environment, fields) in CASES.items():
        policy, source = policy_of(name, environment, **fields)
        exported(policy, source, tmp_path / case, ("numpy",))
        arrays, wanted = questions(policy)
        got = outside(tmp_path / case, tmp_path, arrays, "numpy", python)
        np.testing.assert_allclose(got, wanted, atol=1e-4)


def test_drawn_actions_have_the_policys_distribution(tmp_path):
    policy, source = policy_of("ppo", "weft:CartPole-v1")
    exported(policy, source, tmp_path / "made")
    seen = np.tile(np.array([[0.1, 2.0, -0.1, -2.0]], np.float32), (4000, 1))
    shares = [Policy(policy.algorithm, policy.params, greedy=False)(seen).mean()]
    for form in ("numpy", "stablehlo"):
        shares.append(load_exported(tmp_path / "made")(tmp_path / "made", format=form)(seen, greedy=False).mean())
    assert max(shares) - min(shares) < 0.05  # six deviations


def test_gaussian_draws(tmp_path):
    policy, source = policy_of("ppo", "weft:Pendulum-v1", deviation=0.5)
    exported(policy, source, tmp_path / "made", ("numpy",))
    seen = np.tile(np.array([[1.0, 0.0, 0.5]], np.float32), (4000, 1))
    ours = Policy(policy.algorithm, policy.params, greedy=False)(seen)
    theirs = load_exported(tmp_path / "made")(tmp_path / "made")(seen, greedy=False)
    assert abs(ours.mean() - theirs.mean()) < 0.1
    assert abs(ours.std() - theirs.std()) < 0.1


def odd_network(body):
    """A network of the user's own: ``body`` on one layer."""

    def init(key):
        return {
            "w": jax.random.normal(key, (4, 8)),
            "v": jax.random.normal(key, (8, 3)),
            "e": jnp.arange(24.0).reshape(8, 3),
        }

    def apply(params, observation):
        hidden = body(params, observation @ params["w"])
        out = jnp.sin(3 * hidden @ params["v"])  # both actions occur
        return out[:2], out[2]

    return init, apply


BODIES = {
    "scan": lambda p, h: jax.lax.scan(lambda c, x: (c * 0.5 + x, c), jnp.zeros(8), jnp.stack([h, h * 2, jnp.sin(h)]))[
        0
    ],
    "while": lambda p, h: jax.lax.fori_loop(0, 3, lambda i, x: jnp.tanh(x) + i, h),
    "cond": lambda p, h: jax.lax.cond(h[0] > 0, jnp.tanh, lambda x: x * 2, h),
    "switch": lambda p, h: jax.lax.switch(jnp.argmax(h[:3]), [jnp.tanh, jnp.sin, jnp.cos], h),
    "gather": lambda p, h: h + p["e"][jnp.argmax(h), 1] + jnp.take(h, jnp.array([3, 1]), axis=0).sum(),
    "sort": lambda p, h: jnp.sort(h) + jnp.cumsum(h) - jnp.flip(h),
    "pool": lambda p, h: jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (3,), (1,), "SAME"),
    "softmax": lambda p, h: jax.nn.softmax(h) + jax.nn.gelu(h) + jax.nn.silu(h) + jax.nn.elu(h) + jax.nn.softplus(h),
    "norm": lambda p, h: (h - h.mean()) / jnp.sqrt(h.var() + 1e-5) + jnp.linalg.norm(h),
    "erf": lambda p, h: jax.lax.erf(h) + jax.scipy.special.erfinv(jnp.tanh(h) * 0.9) + jnp.round(h) + h // 2 + h % 3,
    "pad": lambda p, h: jnp.pad(h, (2, 1))[1:9] + jnp.clip(h, -1, 1) + jnp.where(h > 0, h, -h) ** 3,
    "attention": lambda p, h: jnp.einsum("ij,jk->ik", jax.nn.softmax(jnp.outer(h, h)), h[:, None])[:, 0],
}


@pytest.mark.parametrize("body", BODIES)
def test_a_network_of_ones_own(body, tmp_path):
    policy, _ = policy_of("ppo", "weft:CartPole-v1", network=odd_network(BODIES[body]))
    traced = trace(policy, "greedy")
    program = Program(json.loads(json.dumps(as_program(traced))))
    assert traced.any_batch
    seen = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    wanted = policy(seen)
    (got,) = program([*traced.weights.values(), seen, np.zeros(50, bool)], 50, np.random.default_rng(0))
    assert np.array_equal(got, wanted)
    assert 0 < wanted.sum() < 50  # else nothing was shown


def test_what_numpy_cannot_do_is_named_and_left_out(tmp_path):
    policy, source = policy_of("ppo", "weft:CartPole-v1", network=odd_network(lambda p, h: jax.lax.digamma(h)))
    with pytest.raises(CannotBeProgram, match=r"digamma, which the NumPy loader does not know. Export it as stablehlo"):
        exported(policy, source, tmp_path / "made", ("numpy",))
    assert not (tmp_path / "made").exists()
    manifest = exported(policy, source, tmp_path / "made", ())
    assert manifest["formats"] == ["stablehlo"]
    assert "digamma" in manifest["left_out"]["numpy"]


def test_an_export_that_differs_is_not_kept(tmp_path, monkeypatch):
    from weft.runtimes.policies.exported import primitives

    policy, source = policy_of("ppo", "weft:Pendulum-v1")
    text = Path(primitives.__file__).read_text()
    original = Path.read_text
    broken = text.replace('"neg": np.negative', '"neg": np.negative, "tanh": np.sin')
    monkeypatch.setattr(
        Path, "read_text", lambda self, *a, **k: broken if self.name == "primitives.py" else original(self, *a, **k)
    )
    with pytest.raises(RunError, match=r"numpy export is off by .* on a random observation: nothing was exported"):
        exported(policy, source, tmp_path / "made", ("numpy",))
    assert list(tmp_path.iterdir()) == []


def test_folders_and_formats(tmp_path):
    policy, source = policy_of("ppo", "weft:CartPole-v1")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="not empty, and no export"):
        exported(policy, source, tmp_path / "mine")
    with pytest.raises(UnknownName, match="Did you mean 'numpy'"):
        exported(policy, source, tmp_path / "made", ("nunpy",))
    exported(policy, source, tmp_path / "made", ("numpy",))
    exported(policy, source, tmp_path / "made", ("numpy",))  # its own is replaced


def test_a_run_exports_itself(tmp_path):
    algorithm = weft.PPO(**SMALL)
    run = weft.train(algorithm, "weft:CartPole-v1", steps=64, envs=4, root=tmp_path, run="r", quiet=True)
    assert run.export(formats=["numpy"])["run"] == "r"
    policy = load_exported(tmp_path / "r" / "export")(tmp_path / "r" / "export")
    seen = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    assert np.array_equal(policy(seen), run.policy(seen))
    assert policy(seen[0]) == run.policy(seen[0])
    with pytest.raises(ValueError, match=r"got an observation of shape \[\[3\]\], expected \[\[4\]\]"):
        policy(np.zeros(3))
