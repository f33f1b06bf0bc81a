"""A dataflow of your own: a reward model between act and learn, which is neither in JAX nor compiled.

The model is PyTorch's where it is installed (pip install torch), and otherwise the same model with the same weights in
NumPy. Learn does not see the environment's rewards; the returns that a run reports are the environment's own.

python examples/reward_model.py
weft show examples.reward_model:JudgedPPO weft:CartPole-v1 --plan "(env+act)*2 | judge*2 | learn"
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

import weft

PLAN = "(env+act)*2 | judge*2 | learn"

# Two layers, as if they had been trained: how far the cart is from the middle, and how far the pole leans.
INTO = np.array([[1 / 2.4, 0, 0, 0], [-1 / 2.4, 0, 0, 0], [0, 0, 5, 0], [0, 0, -5, 0]], np.float32)
OUT, BIAS = np.array([[-0.5, -0.5, -0.5, -0.5]], np.float32), np.array([1.0], np.float32)


def numpy_model() -> Callable[[np.ndarray], np.ndarray]:
    """A function from observations [..., 4] to rewards [...]."""
    return lambda observation: (np.maximum(observation @ INTO.T, 0.0) @ OUT.T + BIAS)[..., 0]


def torch_model() -> Callable[[np.ndarray], np.ndarray]:
    """The same in PyTorch."""
    import torch

    torch.set_num_threads(1)  # a worker has a core, and another may have the next
    first, second = torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 1)
    first.load_state_dict({"weight": torch.tensor(INTO)})
    second.load_state_dict({"weight": torch.tensor(OUT), "bias": torch.tensor(BIAS)})
    model = torch.nn.Sequential(first, torch.nn.ReLU(), second).eval()

    def judge(observation: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return model(torch.tensor(observation))[..., 0].numpy()

    return judge


@cache
def model(kind: str) -> Callable[[np.ndarray], np.ndarray]:
    """Made once in each process that asks for it: an algorithm is plain data, and sent to workers as such."""
    return torch_model() if kind == "torch" else numpy_model()


@dataclass(frozen=True)
class JudgedPPO(weft.PPO):
    """PPO that learns from a model's rewards; learn may find them in the extras, too."""

    unroll: int = 32
    learning_rate: float = 2e-3
    discount: float = 0.98
    model: str = "torch" if find_spec("torch") else "numpy"
    share: float = 1.0  # of the model in what learn sees; the rest is the environment's reward

    def graph(self) -> weft.Graph:
        return super().graph().insert("judge", self.judge, on="unroll", host=True, gives=self.judged)

    def judged(self, unroll: weft.Unroll) -> weft.Unroll:
        """What judge gives, as shapes and dtypes: what it takes, and one more number for each step."""
        return unroll._replace(extras={**unroll.extras, "judged": unroll.reward})

    def judge(self, state: Any, unroll: weft.Unroll) -> tuple[Any, weft.Unroll]:
        """Any Python. Its arrays are NumPy's, and not to be written to: it makes others."""
        judged = model(self.model)(unroll.observation)
        reward = (1 - self.share) * unroll.reward + self.share * judged
        return state, unroll._replace(reward=reward, extras={**unroll.extras, "judged": judged})


def main(steps: int = 200_000, plan: str = PLAN, **settings: Any) -> weft.Run:
    ppo = JudgedPPO()
    run = weft.train(ppo, "weft:CartPole-v1", plan=plan, envs=32, steps=steps, run="reward-model", **settings)
    print(f"return {run.summary['return_mean']:.1f} by a model in {ppo.model}, kept in {run.folder}")
    return run


if __name__ == "__main__":
    main()
