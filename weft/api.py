"""The Python API: what ``import weft`` offers as functions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.core.errors import ConfigError, RunError
from weft.core.identity import REACHED
from weft.core.keywords import split, takes
from weft.core.recipe import refuse_while_importing
from weft.core.types import TrainState
from weft.data.dataset import Dataset
from weft.envs.protocol import EnvLike
from weft.graph.algorithm import Algorithm
from weft.plans.plan import Plan
from weft.runtimes.policies.against import Match
from weft.runtimes.policies.evaluate import Evaluation
from weft.runtimes.policies.run import Run
from weft.runtimes.prepare.config import Prepared, RunConfig, Settings, prepare
from weft.runtimes.prepare.jax_setup import set_up
from weft.runtimes.prepare.stored import Opening, imports_of, stored_config
from weft.services.config_json import differences, to_json


@takes(RunConfig, Settings)
def train(
    algorithm: Algorithm | str,
    environment: EnvLike,
    *,
    on_record: Callable[[Mapping[str, Any]], Any] | None = None,
    stop_when: Callable[[Mapping[str, Any]], Any] | None = None,
    **fields: Any,
) -> Run:
    """Train, or go on with a run that exists; blocks until it ends.

    ``algorithm`` is an object, used as it is, or a name (``"ppo"``), which takes the settings tuned for the
    environment; ``fields`` change its hyper-parameters. ``environment`` is a name, a JAX environment, or a function
    that makes a Gymnasium one. Where the plan has several groups they run in worker processes.

    ``on_record`` is called with each record as it is made, a dict of numbers by name as ``metrics.jsonl`` has them;
    ``stop_when`` too, and ends the run, saved, once it says something true: ``weft.reached(475)``,
    ``weft.no_progress(100_000)``, or any function. Both are called in this process, between learn calls: keep them
    quick. What they raise ends the run as failed.
    """
    from weft.runtimes.loop.hooks import hooks_of
    from weft.runtimes.loop.train import train as train_locally

    refuse_while_importing("weft.train")
    (asked, how), fields = split(fields, RunConfig, Settings)
    set_up(cache=False)
    settings = Settings(**how)
    hooks = hooks_of(settings, on_record, stop_when)
    return train_locally(RunConfig(algorithm, environment, fields=fields, **asked), settings, hooks=hooks)


def load(
    run: str | Path,
    *,
    root: str | Path = Settings.root,
    checkpoint: str | int = "latest",
    environment: EnvLike | None = None,
    algorithm: Algorithm | type[Algorithm] | str | None = None,
    trust: bool = False,
    policy_only: bool = False,
    **objects: Any,
) -> Run:
    """A run from its folder: its newest whole checkpoint.

    ``checkpoint`` is another one: "best", of the highest return in evaluation (``eval_every``) or else in training,
    that of a learn step, ``step-N`` of so many env steps, or a tag of yours (``tag``).
    ``environment``, ``algorithm`` and ``objects`` (fields of the algorithm, such as ``network=``) take the place of
    what the folder names; they must be given where it cannot hold them, as a lambda. What is left is imported where
    this user made the run; for any other, ``trust=True`` allows it, and Untrusted says what it would be. With
    ``policy_only`` no environment is made: the run can act, and not be evaluated.
    """
    refuse_while_importing("weft.load")
    opening = Opening(environment, algorithm, objects, trust, policy_only)
    return open_run_folder(run, root, opening=opening, checkpoint=checkpoint)[0]


def evaluate(
    run: Run | str | Path,
    *,
    episodes: int = 20,
    root: str | Path = Settings.root,
    greedy: bool = True,
    seed: int = 0,
    policy: str = "",
    trust: bool = False,
) -> Evaluation:
    """Play whole episodes with a run's policy: mean, deviation, and each return.

    Of a run with several seeds one plays, ``seed``, counted from 0 as in ``run.policy``; the others are played by
    giving theirs. All meet the same episodes, those of ``weft eval``. Raises ConfigError where the run has not so many.
    Of several policies all play with each other, and ``policy`` names the one whose returns are counted.
    ``root`` and ``trust`` are ``load``'s, for a run that is given by its name or folder.
    """
    from weft.runtimes.policies.evaluate import evaluate_policy

    opened = run if isinstance(run, Run) else load(run, root=root, trust=trust)
    assert opened.source is not None
    how = {"episodes": episodes, "seed": opened.summary["seed"]}
    if not opened.teams:
        return evaluate_policy(opened.policy_for(seed, greedy=greedy, policy=policy), opened.source, **how)
    if policy not in opened.teams:
        raise ConfigError(f"run {opened.folder.name!r} has several policies: policy= names {', '.join(opened.teams)}")
    return evaluate_policy(opened.together(greedy=greedy), opened.source, team=opened.teams[policy], **how)


def evaluate_against(
    run: Run | str | Path,
    opponent: Run | Algorithm | str,
    *,
    root: str | Path = Settings.root,
    checkpoint: str | int = "latest",
    policy: str = "",
    episodes: int = 20,
    greedy: bool = True,
    seed: int | None = None,
    trust: bool = False,
    warn: Callable[[str], None] = warnings.warn,
) -> tuple[Path, Match]:
    """Play a run against an opponent: the run's folder, and what came of it (``policies/against.py``).

    ``opponent`` is a run, an algorithm that does not learn, or words: "random", a run's name or folder, with a
    checkpoint as ``RUN@CHECKPOINT``, or a rule, ``package.module:rule``.
    """
    from weft.algorithms.by_rule import Random, Scripted
    from weft.envs.importing import import_for
    from weft.runtimes.policies.against import play_against

    def opened(name: str | Path, which: str | int) -> Run:
        return open_run_folder(name, root, warn, Opening(trust=trust), which)[0]

    one = run if isinstance(run, Run) else opened(run, checkpoint)
    other: Run | Algorithm
    if not isinstance(opponent, str):
        other = opponent
    elif opponent == "random":
        other = Random()
    elif ":" in opponent:
        module, _, name = opponent.partition(":")
        rule = getattr(import_for(opponent, module), name, None)
        if not callable(rule):
            raise ConfigError(f"opponent {opponent!r}: module {module!r} has no function {name!r}")
        other = Scripted(rule=rule)
    else:
        name, _, which = opponent.partition("@")
        other = opened(name, which or "latest")
    at = int(one.summary["seed"]) if seed is None else seed
    return one.folder, play_against(one, other, policy=policy, episodes=episodes, seed=at, greedy=greedy)


def tag(
    run: Run | str | Path, name: str, *, checkpoint: str | int = "latest", root: str | Path = Settings.root
) -> Path:
    """Give one of a run's checkpoints a name, under which it stays and is loaded; returns the tag's file.

    ``checkpoint`` is ``load``'s. Another of that name gives way. The run may be training meanwhile. Raises ConfigError
    for what cannot be a tag, as the run's own (``latest``, ``best``, ``step-N``), and CheckpointError where there
    is no such checkpoint.
    """
    from weft.services.checkpoints import put_tag_on
    from weft.services.run_folder import read_run

    folder = read_run(Path(root), str(run.folder if isinstance(run, Run) else run))
    return put_tag_on(folder.checkpoints, name, checkpoint, folder.id)


def record(
    run: Run | str | Path,
    folder: str | Path,
    *,
    steps: int = 10_000,
    explore: bool = False,
    seed: int | None = None,
    root: str | Path = Settings.root,
    trust: bool = False,
) -> Dataset:
    """Play with a run's policy in fresh environments, and write what happened as a data set into a new folder.

    At least ``steps`` steps are played, greedily, or with ``explore`` as the policy explored at its run's end. ``seed``
    is that of the episodes. ``root`` and ``trust`` are ``load``'s, for a run that is given by its name or folder.
    """
    opened = run if isinstance(run, Run) else load(run, root=root, trust=trust)
    recorded: Dataset = opened.record(folder, steps=steps, explore=explore, seed=seed)
    return recorded


def make(run: Run | str | Path, *, root: str | Path = Settings.root, render: bool = False, trust: bool = False) -> Any:
    """One ``gymnasium.Env`` as the run's policy saw it in training, with the same options and preprocessing.

    ``run.policy`` takes its observations, and its actions are ``run.policy``'s. With ``render``, its ``render()`` gives
    the screen. The caller closes it. ``root`` and ``trust`` are ``load``'s. Raises ConfigError where there is no such
    form, or the run was loaded without its environment.
    """
    opened = run if isinstance(run, Run) else load(run, root=root, trust=trust)
    source = opened.source
    if source is None:
        raise ConfigError(f"run {opened.folder.name!r} was loaded for its policy only: load it with its environment")
    if source.single is None:
        kind = "is in JAX" if source.pure is not None else "comes in whole batches"
        raise ConfigError(
            f"environment {source.name!r} {kind}: it cannot be made as one gymnasium.Env. weft.evaluate(run) plays it."
        )
    return source.single(render)


def show(
    algorithm: Algorithm | str,
    environment: EnvLike,
    *,
    plan: str | Plan = RunConfig.plan,
    envs: int | None = RunConfig.envs,
    ring: int = Settings.ring,
    mermaid: bool = False,
) -> str:
    """A drawing of what a plan makes of an algorithm: groups, fragments, streams with their shapes and sizes.

    ``envs`` and ``ring`` are ``train``'s: they decide how large the messages between workers are.
    """
    from weft.runtimes.prepare.drawing import draw

    prepared = prepare(RunConfig(algorithm, environment, plan=plan, envs=envs), must_run=False)
    return draw(prepared, Settings(ring=ring), mermaid=mermaid)


def draw_run_folder(run: str | Path, root: str | Path, *, mermaid: bool = False) -> str:
    """A run as it was laid out last, with what was measured between its workers: ``weft show RUN``.

    Imports nothing that the folder names. A run of an earlier version, which did not record its graph, is drawn only
    where its environment and its algorithm have built-in names.
    """
    from weft.runtimes.prepare.drawing import draw_run, laid_out
    from weft.services.run_folder import read_run

    folder = read_run(Path(root), str(run))
    stored, summary = folder.plan(), folder.summary()
    if "graph" not in stored:
        opening = Opening()
        if named := imports_of(folder, folder.origin(), opening):
            raise RunError(
                f"run {folder.name!r} did not record what it looks like, as runs of this version do, and drawing it "
                f"would import {', '.join(named)}. If you trust that, draw it as new: weft show ALGO ENV --plan PLAN."
            )
        prepared = prepare(stored_config(folder, opening))
        whole = replace(prepared, plan=Plan.from_dict(stored))
        stored = laid_out(whole)
    return draw_run(stored, summary, mermaid=mermaid)


def open_run_folder(
    run: str | Path,
    root: str | Path,
    warn: Callable[[str], None] = warnings.warn,
    opening: Opening | None = None,
    checkpoint: str | int = "latest",
) -> tuple[Run, Prepared]:
    """A run as its folder describes it, with the params of its newest whole checkpoint, on whatever devices there are.

    ``opening`` has what is given in place of the folder's words, and whether these are trusted. ``warn`` is told where
    code is another than that trained with, and of checkpoints that are damaged and were passed over. ``checkpoint`` is
    ``load``'s; where it is not the latest, the summary tells its steps.
    """
    import jax

    from weft.runtimes.actors import publishers_of
    from weft.runtimes.loop.engine import Trained, params_of
    from weft.runtimes.loop.engines import make_engine
    from weft.services import checkpoints
    from weft.services.run_folder import read_run

    folder = read_run(Path(root), str(run))
    asked = stored_config(folder, opening or Opening())
    assert isinstance(asked.algorithm, Algorithm)
    acting = asked.algorithm.with_fields(**asked.fields).to_act()
    prepared = prepare(replace(asked, algorithm=acting, fields={}))
    _check_objects(folder.name, folder.config, prepared, warn)
    states = make_engine(prepared).template().fragments
    names = publishers_of(prepared.graph)
    wanted = Trained({n: TrainState(states[n].params, None, None, None) for n in names})  # type: ignore[arg-type]
    restored = checkpoints.load_latest(folder.checkpoints, wanted, warn, run=folder.id, part=True, which=checkpoint)
    if restored is None:
        raise RunError(f"run {folder.name!r} has no checkpoint in {folder.checkpoints}; train it first")
    params = jax.device_get(params_of(restored[0].fragments))
    summary = folder.summary() or {"seed": prepared.seed}
    if checkpoint != "latest":
        summary |= {name: restored[1]["counters"][name] for name in ("learn_steps", "env_steps")}
    return Run(folder.path, prepared.algorithm, params, summary, prepared.seeds, prepared.source), prepared


def _check_objects(run: str, config: Mapping[str, Any], prepared: Prepared, warn: Callable[[str], None]) -> None:
    """Refuse to open a run without the objects that its algorithm had; warn where they are others."""
    trained, now = (each.get("code", {}).get("algo", {}) for each in (config, to_json(prepared.config())))
    missing = [name for name in trained if name not in now]
    if missing:
        given = ", ".join(f"{name}=..." for name in missing)
        raise RunError(
            f"run {run!r} was trained with an object for {', '.join(missing)}, which its folder cannot hold. Give it "
            f"again, weft.load({run!r}, {given}); or make it the default of an algorithm class of your own and train "
            "that, which the command line finds by its name."
        )
    changed = [name for name in trained if _differs(trained[name], now[name])]
    parts = (each.get("code", {}) for each in (config, to_json(prepared.config())))
    before, after = ({n: c for n, c in part.items() if n != "algo" and c is not None} for part in parts)
    changed += [name for name in before if name in after and _differs(before[name], after[name])]
    for name in changed:
        warn(f"run {run!r}: {name} is not what it was trained with, or its code has changed since")


def _differs(trained: Any, now: Any) -> bool:
    """Whether two identities differ; what an earlier version did not look at is no difference."""
    found = differences({"": trained}, {"": now})
    return any(not (d.added and d.field.endswith(f".{REACHED}")) for d in found)
