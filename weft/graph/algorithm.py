"""What an algorithm is: a frozen dataclass of hyper-parameters with pure functions. The only thing a researcher writes.

    init       key                                -> TrainState
    act        params, carry, timestep, key       -> Acted            for one environment; Weft batches it
    bootstrap  params, carry, observation         -> value            of what would have followed a cut episode
    learn      state, unroll                      -> TrainState, metrics

Two of them may be told more, and are then written in place of ``act`` and ``learn``:

    act_at          params, carry, timestep, key, step  -> Acted      the step of the run: exploration that changes
    learn_and_tell  state, batch                        -> TrainState, metrics, feedback for a store

An algorithm that makes one update for each batch may write ``learn`` as its two halves, and a plan may then part them:

    grad       params, unroll                     -> gradients, metrics
    apply      state, gradients                   -> TrainState

Algorithms and runtimes never import each other: this file is all that they agree on.
"""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from weft.core.errors import ConfigError, UnknownName
from weft.core.identity import is_plain
from weft.core.replicas import mean_over_replicas
from weft.core.specs import Spec
from weft.core.types import Acted, Array, Metrics, Timestep, TrainState, Tree, Unroll
from weft.graph.graph import Graph

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True)
class Algorithm:
    """Subclass this, add your hyper-parameters as fields with defaults, and write ``init``, ``act`` and ``learn``.

    Instead of ``learn``, its halves ``grad`` and ``apply`` will do.
    """

    unroll: int = 128  # steps of each environment in one unroll, T

    acts_for_group: ClassVar[bool] = False  # of several agents, it sees all and acts for all; else for each by itself
    one_group: ClassVar[bool] = False  # of several teams, it takes all agents as one group
    central_critic: ClassVar[bool] = False  # of several agents: observations are {own, state}, state for values alone

    @property
    def spec(self) -> Spec:
        """The environment's spaces and the run's sizes; known once the algorithm is bound to a run."""
        spec: Spec | None = self.__dict__.get("_spec")
        if spec is None:
            raise ConfigError(f"{type(self).__name__} is not bound to a run yet: call .bind(spec) first")
        return spec

    def bind(self, spec: Spec) -> Self:
        """A copy that knows its run; ``check`` is called on it. Hyper-parameters stay what they are."""
        bound = self.with_spec(spec)
        bound.check()
        return bound

    def with_spec(self, spec: Spec) -> Self:
        """As ``bind``, without the check: for shapes of other sizes than the run's."""
        bound = copy.copy(self)
        object.__setattr__(bound, "_spec", spec)
        return bound

    def graph_for(self, envs: int) -> Graph:
        """The graph of a bound algorithm for another number of environments: a lane's, a replica's."""
        return self.with_spec(dataclasses.replace(self.spec, envs=envs)).whole_graph()

    def whole_graph(self) -> Graph:
        """``graph``, with what the run sets beside it to look on (``spec.watch``)."""
        graph = self.graph()
        for name, code in self.spec.watch:
            graph = graph.watch(name, code)
        return graph

    def check(self) -> None:
        """Raise ConfigError where hyper-parameters and spec do not fit together. Called when bound."""
        if self.unroll < 1:
            raise ConfigError(f"{type(self).__name__}.unroll must be at least 1, got {self.unroll}")

    def to_act(self) -> Self:
        """A copy for a trained policy that only acts, without what only learning needs: a data set that may be gone.

        Its params have the same shapes. Unless overridden: itself.
        """
        return self

    def init(self, key: jax.Array) -> TrainState:
        """Fresh params and optimiser state."""
        raise ConfigError(f"{type(self).__name__} must define init(self, key) -> TrainState")

    def initial_carry(self) -> Tree:
        """Act's carry at the start of a run, for one environment; ``()`` where nothing is remembered."""
        return ()

    def act(self, params: Tree, carry: Tree, timestep: Timestep, key: jax.Array) -> Acted:
        """Choose one environment's action. Where ``timestep.first`` is set, the carry must start anew."""
        raise ConfigError(f"{type(self).__name__} must define act(self, params, carry, timestep, key) -> Acted")

    def act_at(self, params: Tree, carry: Tree, timestep: Timestep, key: jax.Array, step: Array) -> Acted:
        """As ``act``, told how many steps the environment has made before this one in the run (``[]`` int32).

        Override this instead of ``act`` where exploration changes over a run; ``spec.steps`` is where it ends. What
        depends on the key and the step alone is computed ahead, for a whole unroll. Unless overridden: ``act``.
        """
        return self.act(params, carry, timestep, key)

    def greedy(self, params: Tree, carry: Tree, timestep: Timestep) -> Acted:
        """The action for evaluation, without exploration. Where it is not overridden, policies draw from ``act``."""
        import jax

        return self.act(params, carry, timestep, jax.random.key(0))

    def bootstrap(self, params: Tree, carry: Tree, observation: Tree) -> Array:
        """The value of an observation that no action will follow, for one environment.

        Asked for the final observation of truncated episodes, and for what follows an unroll's last step. Unless
        overridden: 0.
        """
        import jax.numpy as jnp

        return jnp.zeros((), jnp.float32)

    def learn(self, state: TrainState, batch: Any) -> tuple[TrainState, Metrics]:
        """One learn call: new state, and scalars by name. Average gradients with ``weft.mean_over_replicas``.

        ``batch`` is an ``Unroll``, or what the graph's last fragment before learn gives: a store's ``Transitions``.
        Unless overridden: ``grad``, the mean over replicas, ``apply``.
        """
        if not self.splits:
            halves = [name for name in ("grad", "apply") if getattr(type(self), name) is not getattr(Algorithm, name)]
            has = f"; it has {halves[0]} without the other half" if halves else ""
            raise ConfigError(
                f"{type(self).__name__} must define learn(self, state, batch) -> (state, metrics), or both "
                f"grad(self, params, batch) -> (gradients, metrics) and apply(self, state, gradients) -> state{has}"
            )
        gradients, metrics = mean_over_replicas(self.grad(state.params, batch))
        return self.apply(state, gradients), metrics

    def learn_and_tell(self, state: TrainState, batch: Tree) -> tuple[TrainState, Metrics, Tree]:
        """As ``learn``, with what a store is told of the batch besides: its ``feedback``, such as priorities.

        Override this instead of ``learn`` where the graph has a store that wants to be told. Unless overridden:
        ``learn``, and nothing to tell.
        """
        state, metrics = self.learn(state, batch)
        return state, metrics, ()

    @property
    def splits(self) -> bool:
        """Whether learn is ``grad`` and then ``apply``, so that a plan may run the two in different places.

        False where ``learn`` itself is overridden: nothing would say that the halves still do the same.
        """
        cls = type(self)
        halves = cls.grad is not Algorithm.grad and cls.apply is not Algorithm.apply
        return halves and cls.learn is Algorithm.learn

    def grad(self, params: Tree, batch: Unroll) -> tuple[Tree, Metrics]:
        """The first half of learn: gradients for one ``[T, B]`` batch, and scalars by name.

        ``params`` is what ``act`` gets, with no optimiser state beside it. Gradients are whatever tree ``apply`` wants,
        of the same structure, shapes and dtypes for every batch. They will be averaged, over replicas and perhaps over
        batches, so each leaf must be such that its mean is right: do not average here.
        """
        raise ConfigError(f"{type(self).__name__} must define grad(self, params, batch) -> (gradients, metrics)")

    def apply(self, state: TrainState, gradients: Tree) -> TrainState:
        """The second half of learn: the state after one update, its ``step`` one higher.

        ``gradients`` has the structure that ``grad`` gives. They may have been computed with older params than
        ``state.params``.
        """
        raise ConfigError(f"{type(self).__name__} must define apply(self, state, gradients) -> state")

    def graph(self) -> Graph:
        """The loop cut into fragments; ``on_policy`` unless overridden. Called on a bound algorithm."""
        from weft.graph.loops import on_policy

        return on_policy(self)

    def config(self) -> dict[str, Any]:
        """The hyper-parameters that are plain values, by name: what ``config.json`` records."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items() if is_plain(v)}

    def with_fields(self, **changes: Any) -> Self:
        """A copy with other hyper-parameters; an unknown name is refused with the nearest known one."""
        known = {f.name for f in dataclasses.fields(self)}
        for name in changes:
            if name not in known:
                raise UnknownName(f"field of {type(self).__name__}", name, known)
        return dataclasses.replace(self, **changes)
