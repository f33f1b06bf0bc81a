"""An exported policy: observations in, actions out, in the environment's own units.

    from policy import Policy
    policy = Policy()                # of the folder that this file lies in; NumPy only
    action = policy(observation)     # or for a batch of them, one more axis in front
    policy.reset()                   # before each episode, where the policy has a memory

``Policy(format="stablehlo")`` runs the same policy in JAX (it imports jax, which needs flatbuffers for it). Nothing in
the folder is executed but this file: weights are plain arrays, and a program is a list of operations.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.runtimes.policies.exported.primitives import KNOWN


class Program:
    """A list of operations, run one after another in NumPy."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._inputs: list[int] = document["inputs"]
        self._outputs: list[Any] = [_operand(x) for x in document["outputs"]]
        self._steps = [self._step(*each) for each in document["equations"]]

    @staticmethod
    def _step(name: str, taken: list[Any], given: list[int], how: dict[str, Any]) -> tuple[Any, ...]:
        nested = {k: Program(v) for k, v in how.items() if k in ("body", "condition")}
        if "branches" in how:
            nested["branches"] = [Program(each) for each in how["branches"]]  # type: ignore[assignment]
        return name, [_operand(x) for x in taken], given, {**how, **nested}, _changes(how)

    def __call__(self, inputs: Sequence[Any], batch: int, random: np.random.Generator) -> list[Any]:
        """The outputs for ``batch`` environments; what is drawn at random is drawn from ``random``."""
        known: dict[int, Any] = dict(zip(self._inputs, inputs, strict=True))

        def value(operand: Any) -> Any:
            return known[operand] if isinstance(operand, int) else operand

        for name, taken, given, how, changes in self._steps:
            arrays = [value(x) for x in taken]
            sized = _sized(how, batch) if changes else how
            found = _run(name, arrays, sized, batch, random)
            if len(given) == 1 and not isinstance(found, list):
                known[given[0]] = found
            else:
                known.update(zip(given, found, strict=True))
        return [value(x) for x in self._outputs]


def _run(name: str, arrays: list[Any], how: dict[str, Any], batch: int, random: np.random.Generator) -> Any:
    if name in KNOWN:
        return KNOWN[name](*arrays, **how)
    if name == "random_bits":
        return random.integers(0, 2 ** how["bit_width"], how["shape"], np.dtype(f"uint{how['bit_width']}"))
    if name.startswith("random_"):  # keys: their bits are never looked at, every draw is a new one
        return np.zeros(how["shape"], np.uint32)
    if name == "while":
        tested, used = how["constants"]
        outside, kept, state = arrays[:tested], arrays[tested : tested + used], arrays[tested + used :]
        while bool(how["condition"]([*outside, *state], batch, random)[0]):
            state = how["body"]([*kept, *state], batch, random)
        return list(state)
    if name == "cond":
        branch = how["branches"][int(np.clip(arrays[0], 0, len(how["branches"]) - 1))]
        return list(branch(arrays[1:], batch, random))
    if name == "scan":
        fixed, carried = how["counts"]
        state, rows = arrays[fixed : fixed + carried], arrays[fixed + carried :]
        order = range(how["length"])
        made: list[Any] = []
        for at in reversed(order) if how["reverse"] else order:
            out = how["body"]([*arrays[:fixed], *state, *(x[at] for x in rows)], batch, random)
            state = out[:carried]
            made.append(out[carried:])
        stacks = zip(*(reversed(made) if how["reverse"] else made), strict=True)
        return [*state, *(np.stack(each) for each in stacks)]
    raise ValueError(f"this program needs {name!r}, which this policy.py does not have: it is of another version")


def _operand(x: Any) -> Any:
    """The number of a value, or a literal as an array."""
    return x if isinstance(x, int) else np.asarray(float(x[1]) if isinstance(x[1], str) else x[1], x[0])


def _changes(x: Any) -> bool:
    """Whether sizes in it depend on how many environments there are."""
    if isinstance(x, dict):
        return "times" in x or any(_changes(v) for k, v in x.items() if k not in ("body", "condition", "branches"))
    return isinstance(x, list) and any(map(_changes, x))


def _sized(x: Any, batch: int) -> Any:
    if isinstance(x, dict):
        return x["times"] * batch + x["plus"] if "times" in x else {k: _sized(v, batch) for k, v in x.items()}
    return [_sized(v, batch) for v in x] if isinstance(x, list) and not isinstance(x, Program) else x


class Policy:
    """Acts for one environment, or for a batch of them, with a memory for each where the policy has one.

    ``format`` is "numpy" or "stablehlo": those that the folder has. ``seed`` is that of drawn actions.
    """

    def __init__(self, folder: str | Path | None = None, *, format: str = "", seed: int = 0) -> None:
        self.folder = Path(__file__).parent if folder is None else Path(folder)
        self.description: dict[str, Any] = json.loads((self.folder / "policy.json").read_text())
        formats: list[str] = self.description["formats"]
        self.format = format or formats[0]
        if self.format not in formats:
            raise ValueError(f"format {format!r} was not exported into {self.folder}: {', '.join(formats)}")
        with np.load(self.folder / "weights.npz", allow_pickle=False) as stored:
            self._arrays: dict[str, Any] = {name: stored[name] for name in stored.files}
        self._programs: dict[str, Any] = {}
        self._random = np.random.default_rng(seed)
        self._carry: list[Any] | None = None

    def reset(self) -> None:
        """Forget: the next call begins an episode everywhere."""
        self._carry = None

    def __call__(self, observation: Any, action_mask: Any = None, *, first: Any = None, greedy: bool = True) -> Any:
        """The action for an observation, or for ``[B, ...]`` of them.

        ``action_mask`` says which choices are allowed, where the environment has masks; ``first`` (``[B]`` bool) in
        which rows an episode begins, for batches whose episodes end at different times. Without ``greedy`` the action
        is drawn from the policy instead of being the likeliest.
        """
        told = self.description
        leaves = [np.asarray(x) for x in _leaves(told["observation"], observation)]
        shapes = [leaf["shape"] for leaf in told["leaves"]]
        single = all(list(x.shape) == shape for x, shape in zip(leaves, shapes, strict=True))
        rows = [x[None] if single else x for x in leaves]
        counts = {x.shape[0] for x in rows if x.ndim}
        if len(counts) != 1 or any(list(x.shape[1:]) != shape for x, shape in zip(rows, shapes, strict=True)):
            got = [list(x.shape) for x in leaves]
            raise ValueError(f"got an observation of shape {got}, expected {shapes}, or one more axis in front of each")
        count = counts.pop()
        inputs = [x.astype(leaf["dtype"], copy=False) for x, leaf in zip(rows, told["leaves"], strict=True)]
        if told["mask"] is not None:
            mask = np.ones(told["mask"], np.bool_) if action_mask is None else np.asarray(action_mask, np.bool_)
            inputs.append(np.broadcast_to(mask, (count, told["mask"])))
        inputs.append(np.zeros(count, np.bool_) if first is None else np.broadcast_to(first, count))
        if self._carry is None or any(len(x) != count for x in self._carry):
            begun = [self._arrays[name] for name in told["carry"]]
            self._carry = [np.broadcast_to(x, (count, *x.shape)) for x in begun]
        mode = "greedy" if greedy and "greedy" in told["modes"] else "sample"
        action, *self._carry = self._act(mode, [*self._carry, *inputs], count)
        action = action.astype(told["action_dtype"], copy=False)
        return action[0] if single else action

    def _act(self, mode: str, inputs: list[Any], count: int) -> list[Any]:
        """Action and carry; a row at a time where the policy was exported so."""
        weights = [self._arrays[name] for name in self.description["modes"][mode]]
        run = self._program(mode)
        with np.errstate(all="ignore"):  # infinities and so on are as harmless here as they are in JAX
            if self.description["rows"] == "any":
                return list(run(weights, inputs, count))
            each = [run(weights, [x[row : row + 1] for x in inputs], 1) for row in range(count)]
        return [np.concatenate(parts) for parts in zip(*each, strict=True)]

    def _program(self, mode: str) -> Any:
        if mode not in self._programs:
            make = {"numpy": self._in_numpy, "stablehlo": self._in_jax}[self.format]
            self._programs[mode] = make(mode)
        return self._programs[mode]

    def _in_numpy(self, mode: str) -> Any:
        program = Program(json.loads((self.folder / f"{mode}.json").read_text()))
        key = [np.zeros(2, np.uint32)] if mode == "sample" else []  # whose bits are never looked at
        return lambda weights, inputs, count: program([*weights, *inputs, *key], count, self._random)

    def _in_jax(self, mode: str) -> Any:
        import jax
        from jax import export

        call = jax.jit(export.deserialize(bytearray((self.folder / f"{mode}.stablehlo").read_bytes())).call)

        def run(weights: list[Any], inputs: list[Any], count: int) -> list[Any]:
            key = [self._random.integers(0, 2**32, 2, np.uint32)] if mode == "sample" else []
            return [np.asarray(x) for x in call(*weights, *inputs, *key)]

        return run


def _leaves(structure: Any, tree: Any) -> list[Any]:
    """The arrays of an observation, in the order of the program: a dict's by its keys, a tuple's by position."""
    if structure is None:
        return [tree]
    if isinstance(structure, dict):
        return [leaf for key, inner in structure.items() for leaf in _leaves(inner, tree[key])]
    return [leaf for inner, part in zip(structure, tree, strict=True) for leaf in _leaves(inner, part)]
