"""Another algorithm: REINFORCE (Williams, 1992) with the return-to-go and no value function.

python examples/reinforce.py
weft train examples.reinforce:Reinforce CartPole-v1 --envs 32 --steps 300_000 --algo.learning_rate 0.01
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

import weft


@dataclass(frozen=True)
class Reinforce(weft.Algorithm):
    """The log-probability of each action, weighted by how much better its return was than that of its neighbours."""

    unroll: int = 128  # steps of each environment in a batch; also as far as returns look ahead
    learning_rate: float = 0.01  # sinks to 0 at the run's end
    discount: float = 0.99
    hidden: int = 64  # units of the policy's one layer

    def check(self) -> None:
        super().check()
        env = self.spec.environment
        if not isinstance(env.action, weft.Discrete) or env.action_mask or not isinstance(env.observation, weft.Box):
            raise weft.ConfigError(f"Reinforce needs one discrete action, no mask, and a vector; not {env.name!r}")

    def init(self, key: jax.Array) -> weft.TrainState:
        into, out, learn_key = jax.random.split(key, 3)
        space = self.spec.environment.observation
        orthogonal = jax.nn.initializers.orthogonal
        params = {
            "into": orthogonal(2**0.5)(into, (space.shape[0], self.hidden)),
            "bias": jnp.zeros(self.hidden),
            "out": orthogonal(0.01)(out, (self.hidden, self.spec.environment.action.n)),
        }
        return weft.TrainState(params, self.optimizer.init(params), jnp.int32(0), learn_key)

    def act(self, params: Any, carry: Any, timestep: weft.Timestep, key: jax.Array) -> weft.Acted:
        return weft.Acted(jax.random.categorical(key, self.logits(params, timestep.observation)))

    def greedy(self, params: Any, carry: Any, timestep: weft.Timestep) -> weft.Acted:
        return weft.Acted(jnp.argmax(self.logits(params, timestep.observation)).astype(jnp.int32))

    def learn(self, state: weft.TrainState, batch: weft.Unroll) -> tuple[weft.TrainState, dict[str, jax.Array]]:
        returns = self.returns(batch)
        better = returns - returns.mean(axis=1, keepdims=True)  # than the other environments at the same step
        weight = better / (returns.std() + 1e-6)
        if batch.valid is not None:  # a step that only resets was nobody's choice
            weight = jnp.where(batch.valid, weight, 0.0)

        def loss(params: Any) -> jax.Array:
            log_probs = jax.nn.log_softmax(self.logits(params, batch.observation))
            chosen = jnp.take_along_axis(log_probs, batch.action[..., None], axis=-1)[..., 0]
            return -(chosen * weight).mean()

        value, gradients = weft.mean_over_replicas(jax.value_and_grad(loss)(state.params))
        changes, optimizer = self.optimizer.update(gradients, state.optimizer, state.params)
        params = optax.apply_updates(state.params, changes)
        return weft.TrainState(params, optimizer, state.step + 1, state.key), {"loss": value}

    @property
    def optimizer(self) -> optax.GradientTransformation:
        return optax.adam(optax.linear_schedule(self.learning_rate, 0.0, self.spec.learn_steps))

    def logits(self, params: Any, observation: jax.Array) -> jax.Array:
        return jnp.tanh(observation @ params["into"] + params["bias"]) @ params["out"]

    def returns(self, batch: weft.Unroll) -> jax.Array:
        """[T, B]: the discounted rewards from each step to its episode's end, or to the unroll's."""
        ended = batch.terminated | batch.truncated

        def step(later: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            reward, ended = now
            total = reward + self.discount * jnp.where(ended, 0.0, later)
            return total, total

        return jax.lax.scan(step, jnp.zeros_like(batch.reward[0]), (batch.reward, ended), reverse=True)[1]


def main(steps: int = 300_000, **settings: Any) -> weft.Run:
    run = weft.train(Reinforce(), "weft:CartPole-v1", envs=32, steps=steps, run="reinforce", **settings)
    print(f"return {run.summary['return_mean']:.1f}, kept in {run.folder}")
    return run


if __name__ == "__main__":
    main()
