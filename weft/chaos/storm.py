"""One training without faults and one with them, for the same time; the verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from weft.chaos.inject import Injected, inject, recovered
from weft.chaos.schedule import Fault
from weft.chaos.verdict import Measured, Verdict
from weft.chaos.victim import Victim
from weft.core.errors import RunError

FOREVER = 10**10  # steps: the run is interrupted long before
FAULTY = "weft.chaos.faulty:faulty"


def storm(
    arguments: Sequence[str],
    faults: Sequence[Fault],
    seconds: float,
    root: Path,
    *,
    raises: float = 0.0,
    calm_seconds: float | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Verdict:
    """Train for ``calm_seconds`` (``seconds``) without faults, then ``seconds`` with ``faults``; blocks for both.

    ``arguments`` are ``weft train``'s, the algorithm and the environment first. ``raises`` is the share of the
    environments' steps that raise. Raises RunError where the run does not even begin.
    """
    tell("without faults")
    calm, _ = _train([*arguments], [], calm_seconds or seconds, root, "calm", tell)
    tell("with faults")
    stormy, injected = _train(_raising(arguments, raises), faults, seconds, root, "stormy", tell)
    return Verdict(injected, calm, stormy)


def _raising(arguments: Sequence[str], rate: float) -> list[str]:
    algorithm, environment, *rest = arguments
    if not rate:
        return [algorithm, environment, *rest]
    return [algorithm, FAULTY, "--env.inner", environment, "--env.rate", str(rate), *rest]


def _train(
    arguments: list[str],
    faults: Sequence[Fault],
    seconds: float,
    root: Path,
    name: str,
    tell: Callable[[str], None],
) -> tuple[Measured, list[Injected]]:
    victim = Victim(root, name, [*arguments, "--steps", str(FOREVER)])
    try:
        if not victim.wait_for_learning():
            raise RunError(f"the run {'ended' if victim.ended else 'did not begin to learn'}:\n{victim.said.strip()}")
        began = time.time()
        injected = _suffer(victim, faults, began, seconds, tell)
        while time.time() < began + seconds and not victim.ended:
            time.sleep(0.1)
        took = time.time() - began
        code = victim.process.returncode if victim.ended else victim.end()
        summary = victim.summary
        if summary is None or summary.get("samples") is None:
            raise RunError(f"the run left no summary (exit code {code}):\n{victim.said.strip()}")
        samples: dict[str, Any] = summary["samples"]
        rate = samples["trained"] / took
        restarts, raised = (int(summary.get(name, 0)) for name in ("restarts", "env_errors"))
        return Measured(rate, samples, restarts, code, victim.leaks(), raised), injected
    finally:
        victim.close()


def _suffer(
    victim: Victim, faults: Sequence[Fault], began: float, seconds: float, tell: Callable[[str], None]
) -> list[Injected]:
    injected: list[Injected] = []
    for k, fault in enumerate(faults):
        while time.time() < began + fault.at and not victim.ended:
            time.sleep(0.02)
        if victim.ended:
            break
        at = time.time()
        hit = inject(victim, fault)
        until = began + (faults[k + 1].at if k + 1 < len(faults) else seconds)
        recovery = recovered(victim, hit, until)
        injected.append(Injected(at - began, fault.kind, hit.target, recovery))
        took = "not yet" if recovery is None else f"after {recovery:.1f} s"
        tell(f"{at - began:6.1f} s  {fault.kind:<5} {hit.target:<20} learned again {took}")
    return injected
