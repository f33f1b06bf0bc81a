"""R2D2 (Kapturowski et al., ICLR 2019): DQN with memory, read top to bottom.

act     as DQN's, with a recurrent network; its carry is stored with the unroll
replay  draws whole unrolls, each with the one before it; a priority for each
learn   runs the network over the unroll before (*burn-in*), which makes a carry of today's params of the one that was
        stored, then over the unroll itself; n-step double Q-learning at every step of it

What a step led to is valued with the memory of that step: by one more look of the network from the carry after it. So a
truncated episode is valued at its final observation, and an unroll's last step at what followed it, like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from weft.algorithms.epsilon_greedy import EpsilonGreedy, allowed
from weft.algorithms.replayed import Replayed
from weft.core.errors import ConfigError
from weft.core.replicas import mean_over_replicas
from weft.core.specs import describe
from weft.core.types import Acted, Array, Earlier, Metrics, Priorities, Sequences, Timestep, TrainState, Tree
from weft.nets import Network, as_network, check_network, recurrent_q_network, reset_carry
from weft.ops import masked
from weft.ops.choosing import of_chosen
from weft.ops.optimizers import bounded_optimizer
from weft.ops.rescaling import rescaled, unrescaled
from weft.ops.schedules import linear
from weft.replay import SequenceReplay


class Learner(NamedTuple):
    """What learn remembers besides the params."""

    optimizer: Tree
    target: Tree  # params of some learn calls ago


@dataclass(frozen=True)
class R2D2(EpsilonGreedy, Replayed):
    """The hyper-parameters of learning; those of exploration and replay are its bases'."""

    unroll: int = 40  # steps of a sequence, T
    prioritised: bool = True
    batch: int = 32  # sequences in a batch, of ``unroll`` steps each
    n_step: int = 5
    burn_in: bool = True
    hidden: tuple[int, ...] = (64,)  # the layer before the memory; images go through a CNN instead
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = "relu"
    network: Any = None  # your own weft.Network with a carry; its logits are the actions' values
    recurrent: Literal["gru", "lstm"] = "gru"
    recurrent_size: int = 64
    dueling: bool = True
    rescale: bool = False  # values are of rewards of any scale: learned as their signed square roots, arXiv 1805.11593
    priority_mix: float = 0.9  # a sequence's priority: this share of its largest error, the rest of their mean
    learning_rate: float = 1e-3
    learning_rate_end: float | None = None  # reached linearly at the run's end; None: constant
    optimizer: Literal["adam", "rmsprop"] = "adam"
    target_period: int = 200  # learn calls between two copies of the params to the target network
    max_gradient_norm: float = 40.0

    @property
    def net(self) -> Network:
        """The values of all actions, as its logits."""
        if self.network is not None:
            return as_network(self.network)
        return recurrent_q_network(
            self.spec.environment.observation,
            self.choices,
            hidden=self.hidden,
            activation=self.activation,
            dueling=self.dueling,
            recurrent=self.recurrent,
            recurrent_size=self.recurrent_size,
        )

    @property
    def replay(self) -> SequenceReplay:
        """What unrolls are kept in."""
        return SequenceReplay(
            capacity=self.capacity,
            batch=self.batch,
            samples_per_insert=self.samples_per_insert,
            begin=self.learning_begins,
            reward_scale=self.reward_scale,
            reward_clip=self.reward_clip,
            alpha=self.priority_power if self.prioritised else 0.0,
            beta=self.importance_power,
            beta_draws=self.spec.learn_steps,
            burn_in=self.burn_in,
        )

    def rule(self, step: Array | int) -> optax.GradientTransformation:
        """The optimiser for learn call ``step``."""
        rate = linear(self.learning_rate, self.learning_rate_end, self.spec.learn_steps)(step)
        return bounded_optimizer(self.optimizer, rate, self.max_gradient_norm)

    def check(self) -> None:
        """Refuse what cannot work, before anything starts."""
        super().check()
        env = self.spec.environment
        if self.network is None:
            return
        check_network(type(self).__name__, self.net, env.observation, self.choices, describe(env.action))
        if not self.net.recurrent:
            raise ConfigError("R2D2.network has no carry, so it has no memory. Give it one, or use DQN.")

    def init(self, key: jax.Array) -> TrainState:
        """Fresh params, which are the target network's too."""
        net_key, learn_key = jax.random.split(key)
        params = self.net.init(net_key)
        target = jax.tree.map(jnp.copy, params)
        return TrainState(params, Learner(self.rule(0).init(params), target), jnp.zeros((), jnp.int32), learn_key)

    # ---- acting: one environment, one step --------------------------------------------------------------------------

    def initial_carry(self) -> Tree:
        """The network's own."""
        return self.net.carry

    def greedy(self, params: Tree, carry: Tree, timestep: Timestep) -> Acted:
        """The action of the highest value, and what is remembered."""
        output = self.net.apply(params, reset_carry(self.net, carry, timestep.first), timestep.observation)
        best = allowed(output.logits, timestep.action_mask).argmax(-1)
        return Acted(best.astype(self.spec.environment.action.dtype), output.carry)

    # ---- learning: one step of the optimiser for each batch ---------------------------------------------------------

    def learn_and_tell(self, state: TrainState, batch: Sequences) -> tuple[TrainState, Metrics, Tree]:
        """One learn call; and the priorities of the batch."""
        optimizer, target = state.optimizer
        gradient, (metrics, priority) = jax.grad(self.loss, has_aux=True)(state.params, target, batch)
        gradient, metrics = mean_over_replicas((gradient, metrics))
        changes, optimizer = self.rule(state.step).update(gradient, optimizer, state.params)
        params, step = optax.apply_updates(state.params, changes), state.step + 1
        renew = step % self.target_period == 0
        target = jax.tree.map(lambda new, old: jnp.where(renew, new, old), params, target)
        told = Priorities(batch.ids, priority) if self.prioritised else ()
        return TrainState(params, Learner(optimizer, target), step, state.key), metrics, told

    def loss(self, params: Tree, target: Tree, batch: Sequences) -> tuple[Array, tuple[Metrics, Array]]:
        """The loss of all steps of all sequences, weighted; with metrics and the sequences' priorities, ``[N]``."""
        values, following = self.look(params, batch)
        value = of_chosen(values, batch.action)
        chosen = allowed(following, batch.following_mask).argmax(-1)
        valued = of_chosen(self.look(target, batch)[1], chosen)
        aim, usable = self.aim(batch, jax.lax.stop_gradient(valued))
        error = jnp.where(usable, value - aim, 0.0)
        loss = masked.mean(batch.weight[None] * optax.losses.l2_loss(error), usable)
        size, steps = jnp.abs(error), jnp.maximum(usable.sum(0), 1)
        priority = self.priority_mix * size.max(0) + (1.0 - self.priority_mix) * size.sum(0) / steps
        return loss, ({"loss": loss, "value": masked.mean(value, usable)}, priority)

    def look(self, params: Tree, batch: Sequences) -> tuple[jax.Array, jax.Array]:
        """``[T, N, actions]``: the values at each step, and those of what it led to, after the burn-in."""
        net, carry = self.net, batch.carry
        if batch.earlier is not None:
            carry = self.warmed_up(params, batch.earlier, carry)

        def one(carry: Tree, first: Array, seen: Tree, led_to: Tree) -> tuple[Tree, tuple[Array, Array]]:
            now = net.apply(params, reset_carry(net, carry, first), seen)
            return now.carry, (now.logits, net.apply(params, now.carry, led_to).logits)

        def step(carry: Tree, x: tuple[Array, Tree, Tree]) -> tuple[Tree, tuple[Array, Array]]:
            return jax.vmap(one)(carry, *x)

        return jax.lax.scan(step, carry, (batch.first, batch.observation, batch.following))[1]  # type: ignore[return-value]

    def warmed_up(self, params: Tree, earlier: Earlier, stored: Tree) -> Tree:
        """``[N, ...]``: the carry that these params have after the unroll before, or what was stored where none is."""
        net = self.net

        def step(carry: Tree, x: tuple[Array, Tree]) -> tuple[Tree, None]:
            first, seen = x
            start = jax.vmap(lambda c, f: reset_carry(net, c, f))(carry, first)
            return jax.vmap(lambda c, o: net.apply(params, c, o).carry)(start, seen), None

        found = jax.lax.scan(step, earlier.carry, (earlier.first, earlier.observation))[0]

        def choose(new: Array, old: Array) -> Array:
            joined = earlier.joined.reshape((-1, *[1] * (new.ndim - 1)))
            return jnp.where(joined, new, old)

        return jax.lax.stop_gradient(jax.tree.map(choose, found, stored))

    def aim(self, batch: Sequences, following: Array) -> tuple[jax.Array, jax.Array]:
        """What values are moved towards, and where, ``[T, N]``: n-step returns, and the value of what they led to.

        ``following`` (``[T, N]``) is the value of what each step led to. A return ends with an episode, before a record
        that is not valid, and with the sequence.
        """
        length = batch.reward.shape[0]
        ended = batch.terminated | batch.truncated
        reward, gain, last = jnp.zeros_like(batch.reward), jnp.ones_like(batch.reward), jnp.arange(length)[:, None]
        last = jnp.broadcast_to(last, batch.reward.shape)
        going = jnp.ones_like(ended)
        for k in range(min(self.n_step, length)):
            at = jnp.minimum(jnp.arange(length) + k, length - 1)
            going = going & (jnp.arange(length) + k < length)[:, None]
            if k:
                going = going & batch.valid[at] & ~ended[at - 1]
            reward = reward + jnp.where(going, gain * batch.reward[at], 0.0)
            gain = jnp.where(going, gain * self.discount, gain)
            last = jnp.where(going, at[:, None], last)

        def there(x: Array) -> jax.Array:
            return jnp.take_along_axis(x, last, axis=0)

        value = unrescaled(following) if self.rescale else following
        aim = reward + jnp.where(there(batch.terminated), 0.0, gain * there(value))
        return rescaled(aim) if self.rescale else aim, jnp.asarray(batch.valid & there(batch.known))
