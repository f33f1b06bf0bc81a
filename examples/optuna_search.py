"""Optuna chooses the values, Weft trains: trials that fall behind are ended early.

python examples/optuna_search.py

A trial is a run. Every record of it is told to Optuna (`on_record`), which may end it (`stop_when`): such a run is
saved like any other, with `exit` `stopped`. The best run comes back. It needs `pip install optuna`.
"""

from __future__ import annotations

from typing import Any

import optuna

import weft


def main(steps: int = 40_000, trials: int = 4, **settings: Any) -> weft.Run:
    runs: dict[int, weft.Run] = {}

    def objective(trial: optuna.Trial) -> float:
        rate = trial.suggest_float("learning_rate", 1e-4, 1e-2, log=True)
        entropy = trial.suggest_float("entropy_cost", 0.0, 0.02)

        def told(record: dict[str, Any]) -> None:
            if "return_mean" in record:
                trial.report(record["return_mean"], record["env_steps"])

        algorithm = weft.PPO(learning_rate=rate, entropy_cost=entropy)
        name = f"trial-{trial.number}"
        run = weft.train(
            algorithm,
            "weft:CartPole-v1",
            steps=steps,
            run=name,
            on_record=told,
            stop_when=lambda record: trial.should_prune(),
            **settings,
        )
        runs[trial.number] = run
        if run.summary["exit"] == "stopped":
            raise optuna.TrialPruned
        return float(run.summary["return_mean"])

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler, pruner = optuna.samplers.TPESampler(seed=1), optuna.pruners.MedianPruner(n_startup_trials=2)
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
    study.optimize(objective, n_trials=trials)
    best = runs[study.best_trial.number]
    print(f"return {study.best_value:.1f} with {study.best_params}, kept in {best.folder}")
    return best


if __name__ == "__main__":
    main()
