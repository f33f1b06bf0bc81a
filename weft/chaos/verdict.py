"""What became of a run under faults, as a table and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft.chaos.inject import Injected


@dataclass(frozen=True)
class Measured:
    """One run, with or without faults."""

    rate: float  # environment steps trained on a second, from the first record to the end
    samples: dict[str, Any]  # the ledger
    restarts: int
    exit: int | None  # None: it had to be killed
    leaks: list[str]
    raised: int = 0  # steps and resets of environments that raised

    @property
    def missing(self) -> int:
        """Samples that the ledger does not account for."""
        dropped = sum(self.samples["dropped"].values())
        return int(self.samples["produced"] - self.samples["trained"] - dropped - self.samples["in_flight"])


@dataclass(frozen=True)
class Verdict:
    """The run with faults beside the one without."""

    faults: Sequence[Injected]
    calm: Measured
    stormy: Measured

    @property
    def share(self) -> float:
        """The throughput as a share of that without faults."""
        return self.stormy.rate / self.calm.rate if self.calm.rate else float("nan")

    @property
    def problems(self) -> list[str]:
        """What must not be; empty where all is well."""
        found = []
        if self.stormy.missing:
            found.append(f"{self.stormy.missing} samples are unaccounted for")
        if self.stormy.exit != 130:  # it was interrupted at the end, as Ctrl-C does
            found.append(f"the run ended with {self.stormy.exit} instead of 130 (interrupted)")
        if not self.stormy.samples["trained"]:
            found.append("nothing was trained on")
        found += [f"left behind: {leak}" for leak in self.stormy.leaks]
        return found

    def table(self) -> str:
        """For people."""
        lines = [f"{'fault':<7}{'target':<22}{'times':>6}  seconds until it learned again: median (longest)"]
        for kind, role in sorted({(fault.kind, fault.role) for fault in self.faults}):
            group = [fault for fault in self.faults if (fault.kind, fault.role) == (kind, role)]
            took = [fault.recovery for fault in group if fault.recovery is not None]
            late = len(group) - len(took)
            words = f"{statistics.median(took):.1f} ({max(took):.1f})" if took else "–"
            lines.append(
                f"{kind:<7}{role:<22}{len(group):>6}  {words}" + (f", {late} not before the next" if late else "")
            )
        samples = self.stormy.samples
        dropped = ", ".join(f"{reason} {count:,}" for reason, count in samples["dropped"].items()) or "none"
        lines += [
            "",
            f"throughput  {self.stormy.rate:,.0f} trained steps/s, without faults {self.calm.rate:,.0f}: "
            f"{self.share:.0%}",
            f"ledger      produced {samples['produced']:,} = trained {samples['trained']:,} + dropped ({dropped}) "
            f"+ in flight {samples['in_flight']:,}; missing {self.stormy.missing}",
            f"restarts    {self.stormy.restarts}",
        ]
        if self.stormy.raised:
            lines.append(f"raised      {self.stormy.raised:,} steps and resets of environments")
        problems = self.problems
        lines.append("verdict     " + ("survived" if not problems else "; ".join(problems)))
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "survived": not self.problems,
            "problems": self.problems,
            "throughput_share": self.share,
            "rate": self.stormy.rate,
            "rate_without_faults": self.calm.rate,
            "samples": self.stormy.samples,
            "restarts": self.stormy.restarts,
            "raised": self.stormy.raised,
            "faults": [{**fault._asdict(), "role": fault.role} for fault in self.faults],
        }
