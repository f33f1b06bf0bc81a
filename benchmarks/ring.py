"""The environment ring: how many slices a worker of environments should hold, where a step takes time."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.distributed import SETTINGS, UNROLL, WINDOW, Steppers, add_weft, scratch
from benchmarks.measure import Case, Comparison
from benchmarks.options import Options
from benchmarks.weft_command import Measured

RINGS = (1, 2, 4, 8)
PLANS = {"env | act+learn": 1, "env*2 | act+learn": 2}  # plan: workers of environments


def cases(options: Options, stack: ExitStack) -> list[Case]:
    """A case for each environment and number of workers; shares of what as many workers reach by stepping alone."""
    root, made = scratch(stack), []
    steppers = Steppers(stack, options, max(PLANS.values()))
    for name in options.settings:
        setting = SETTINGS[name]
        if name == "cartpole":  # a step takes microseconds: there is nothing to hide behind it
            continue
        for plan, workers in PLANS.items():
            sizes = f"{workers} × {setting.envs} environments"
            case = Case(f"ring: {setting.title}, {plan}, {sizes}", "env steps/s", {}, notes=list(setting.notes))
            for ring in RINGS:
                measured = Measured(
                    setting.weft,
                    plan,
                    workers * setting.envs,
                    UNROLL,
                    WINDOW * options.seconds,
                    root,
                    ["--ring", str(ring)],
                )
                add_weft(case, options, f"Weft --ring {ring}", measured, setting.guess)
            limit = steppers.add(case, setting, setting.envs)[workers - 1]
            case.comparisons = [Comparison(f"Weft --ring {ring}", (limit,)) for ring in RINGS]
            made.append(case)
    return made
