"""Names: which adapter each belongs to, and what is said of those that belong to none."""

import importlib.util
import pickle
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

from weft.core.buffers import timestep_buffers
from weft.core.errors import ConfigError, MissingExtra, UnknownName
from weft.core.specs import Discrete, EnvSpec
from weft.envs.fake import ScriptedEnv
from weft.envs.native import NativeVector
from weft.envs.protocol import EnvSource
from weft.envs.registry import open_environment
from weft.envs.vectoriser import Vectoriser


def made(source, num_envs=2, **options):
    env = source.host(num_envs, 0, **options)
    env.close()
    return env


def test_a_gymnasium_id_is_native_where_it_can_be():
    assert isinstance(made(open_environment("CartPole-v1")), NativeVector)
    assert isinstance(made(open_environment("CartPole-v1", sutton_barto_reward=True)), NativeVector)
    assert isinstance(made(open_environment("CartPole-v1", vector="each")), Vectoriser)
    assert isinstance(made(open_environment("Pendulum-v1")), Vectoriser)
    # gym.make has this option and the native environment has not
    assert isinstance(made(open_environment("CartPole-v1", disable_env_checker=True)), Vectoriser)


def test_options_reach_the_environment():
    source = open_environment("FrozenLake-v1", map_name="8x8")
    assert source.spec.observation == Discrete(64)
    assert open_environment("Pendulum-v1", max_episode_steps=17).spec.max_episode_steps == 17
    native = open_environment("CartPole-v1", sutton_barto_reward=True)
    env, out = native.host(2, 0), timestep_buffers(native.spec, (2,))
    env.reset(out)
    env.step(np.zeros(2, np.int32), out)
    assert out.reward.tolist() == [0, 0]


def test_native_is_refused_where_there_is_none():
    with pytest.raises(ConfigError, match=r"'Pendulum-v1': it registers no native vector environment.*vector='each'"):
        open_environment("Pendulum-v1", vector="native")
    with pytest.raises(ConfigError, match=r"does not take disable_env_checker"):
        open_environment("CartPole-v1", vector="native", disable_env_checker=True)
    with pytest.raises(UnknownName, match=r"unknown vector mode 'nativ'. Did you mean 'native'"):
        open_environment("CartPole-v1", vector="nativ")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("CartPol-v1", "CartPole-v1"),
        ("CartPole", "CartPole-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("Catch-v0", "weft:Catch-v0"),
        ("weft:Catch", "weft:Catch-v0"),
        ("wefft:Catch-v0", "weft"),
        ("gymnx:CartPole-v1", "gymnax"),
    ],
)
def test_unknown_names_are_answered_with_near_ones(name, meant):
    with pytest.raises(UnknownName, match=f"Did you mean.*'{meant}'"):
        open_environment(name)


def test_what_is_missing_is_named_with_its_extra(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "ale_py" else real(name, *a))
    for name in ("ALE/Pong-v5", "PongNoFrameskip-v4"):
        monkeypatch.delitem(gym.registry, name, raising=False)  # which Gymnasium loads by itself
        with pytest.raises(MissingExtra, match=r"needs 'ale-py'.*weft\[atari\]"):
            open_environment(name)


def raising(error):
    def make(**_):
        raise error

    return make


@pytest.fixture
def register():
    """Register environments for one test."""
    before = set(gym.registry)
    yield gym.register
    for name in set(gym.registry) - before:
        del gym.registry[name]


def test_a_missing_dependency_is_said_in_our_words(register):
    register("Robot-v0", raising(gym.error.DependencyNotInstalled("MuJoCo is not installed, run `pip ...`")))
    with pytest.raises(MissingExtra, match=r"'Robot-v0' needs 'mujoco'.*weft\[mujoco\]"):
        open_environment("Robot-v0")
    register("Lander-v0", raising(gym.error.DependencyNotInstalled('run `pip install "gymnasium[box2d]"`')))
    with pytest.raises(ConfigError, match=r"'Lander-v0' needs a package.*gymnasium\[box2d\]"):
        open_environment("Lander-v0")
    register("Moved-v0", raising(ImportError("moved to gymnasium-robotics")))
    with pytest.raises(ConfigError, match=r"'Moved-v0' cannot be made: moved to gymnasium-robotics"):
        open_environment("Moved-v0")


def test_unknown_options_are_named():
    with pytest.raises(ConfigError, match=r"does not take these options .*gravitas"):
        open_environment("CartPole-v1", gravitas=1)


def test_wrappers_of_a_registration_are_kept_by_not_being_native(register):
    spec = gym.spec("CartPole-v1")
    wrapper = gym.wrappers.TimeAwareObservation.wrapper_spec()
    register(
        "Aware-v0",
        spec.entry_point,
        max_episode_steps=9,
        additional_wrappers=(wrapper,),
        vector_entry_point=spec.vector_entry_point,
    )
    source = open_environment("Aware-v0")
    assert source.spec.observation.shape == (5,)
    assert isinstance(made(source), Vectoriser)


def test_a_module_that_registers_an_id(tmp_path, monkeypatch, register):
    (tmp_path / "my_levels.py").write_text(
        "import gymnasium\ngymnasium.register('Level-v3', 'weft.envs.fake:ScriptedEnv', kwargs={'length': 2})\n"
    )
    monkeypatch.chdir(tmp_path)
    source = open_environment("my_levels:Level-v3")
    assert source.name == "my_levels:Level-v3"
    assert isinstance(made(source), Vectoriser)
    with pytest.raises(UnknownName, match=r"Level-v4"):
        open_environment("my_levels:Level-v4")


@pytest.mark.parametrize("name", ["brax:ant", "envpool:Pong-v5"])
def test_adapters_to_come_say_so(name):
    with pytest.raises(ConfigError, match=r"not yet supported"):
        open_environment(name)


class Pure:
    spec = EnvSpec("pure", Discrete(2), Discrete(2), pure=True)

    def reset(self, key):
        return (), 0

    def step(self, state, action, key):
        raise AssertionError("opening an environment does not step it")


def test_objects_are_opened_too():
    env = Pure()
    source = open_environment(env)
    assert (source.pure, source.host, source.name) == (env, None, "pure")
    assert open_environment(source) is source
    assert open_environment(Pure).pure is not None  # a class that makes one
    assert isinstance(made(open_environment(ScriptedEnv, length=3)), Vectoriser)
    assert open_environment(ScriptedEnv).name == "weft.envs.fake:ScriptedEnv"
    with pytest.raises(ConfigError, match=r"takes no options, got speed"):
        open_environment(env, speed=2)
    with pytest.raises(ConfigError, match=r"not an environment.*already made cannot be used"):
        open_environment(ScriptedEnv())
    with pytest.raises(ConfigError, match=r"not an environment: 3"):
        open_environment(3)


def test_jax_environments_by_name():
    source = open_environment("weft:CartPole-v1")
    assert source.pure is not None
    assert (source.spec.pure, source.name, source.host) == (True, "weft:CartPole-v1", None)
    gymnax = open_environment("gymnax:CartPole-v1")
    assert gymnax.pure is not None
    assert gymnax.spec.pure


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "weft.envs.fake:ScriptedEnv"])
def test_host_sources_can_be_sent_to_another_process(name):
    source: EnvSource = pickle.loads(pickle.dumps(open_environment(name)))
    out = timestep_buffers(source.spec, (2,))
    env = source.host(2, 0)
    env.reset(out)
    env.step(np.zeros((2, *source.spec.action.shape), source.spec.action.dtype), out)
    env.close()


def test_a_host_environment_never_loads_jax():
    code = (
        "import sys\n"
        "import numpy as np\n"
        "from weft.envs.registry import open_environment\n"
        "from weft.core.buffers import timestep_buffers\n"
        "names = ('CartPole-v1', 'each'), ('CartPole-v1', 'native'), ('weft.envs.fake:ScriptedEnv', 'auto')\n"
        "for name, vector in names:\n"
        "    source = open_environment(name, vector=vector)\n"
        "    env, out = source.host(2, 0), timestep_buffers(source.spec, (2,))\n"
        "    env.reset(out)\n"
        "    env.step(np.zeros(2, np.int32), out)\n"
        "    env.close()\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('jax', 'jaxlib', 'flax', 'optax')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


@pytest.mark.parametrize("name", ["MiniGrid-Empty-5x5-v0", "BabyAI-GoToObj-v0"])
def test_an_id_of_a_package_that_is_not_imported_says_how_to_write_it(name, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.delitem(gym.registry, name, raising=False)
    for here, install in ((object(), ""), (None, r" \(pip install minigrid\)")):
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda n, *a, here=here: here if n == "minigrid" else real(n, *a)
        )
        with pytest.raises(UnknownName, match=f"once it is imported{install}: 'minigrid:{name}'"):
            open_environment(name)
