"""Other replicas for a run under way: asked for by ``weft scale`` or by growth, carried out between two dispatches.

resolved     the new plan, its launch spec, room for it on the cluster: what cannot be is refused, and nothing happens
saved        the state of all fragments, as for a checkpoint, and to one
ended        the workers of the old plan
begun        those of the new one, from that state; where they cannot, those of the old one again, from the same
told         with the first learn step after: what changed, and how long there was none
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import jax

from weft.core.errors import PlanError, RunError, WeftError, WorkerFailed
from weft.core.types import Tree
from weft.plans import Plan, diff
from weft.plans.scale import rescaled
from weft.runtimes.loop.counters import Counters
from weft.runtimes.loop.engine import Engine, Report, StateLost
from weft.runtimes.loop.engines import planned
from weft.runtimes.loop.growing import Growth
from weft.runtimes.loop.interrupt import Interrupt, Interrupted
from weft.runtimes.loop.live_state import title_of
from weft.runtimes.prepare.config import Prepared, Settings
from weft.runtimes.prepare.drawing import laid_out
from weft.runtimes.prepare.replanned import replanned
from weft.services.run_folder import RunFolder
from weft.services.scale_request import Became, ScaleAnswer, ScaleRequest, answer, next_request
from weft.telemetry.telemetry import Telemetry

if TYPE_CHECKING:
    from weft.runtimes.cluster.cluster import Cluster
    from weft.runtimes.workers.layout.launch_spec import LaunchSpec

MAX_BEGINNINGS = 3
"""How often workers of a new plan are begun, at most, if they die while they start."""

Kept = tuple[Tree, dict[str, Any]]


@runtime_checkable
class LaysOut(Protocol):
    """An engine whose workers can be others."""

    def lay_out(self, prepared: Prepared, launch: LaunchSpec) -> None:
        """Have workers by this launch spec from the next ``start`` or ``resume`` on; there are none now."""
        ...


@dataclass
class _Change:
    """What is asked for: by a command, or else by growth."""

    request: ScaleRequest | None
    plan: Plan | None = None
    began: float = 0.0  # by time.monotonic()
    words: str = ""  # what changed
    after: Plan | None = None

    def asked_of(self, plan: Plan) -> str | Plan:
        if self.request is None:
            assert self.plan is not None
            return self.plan
        return self.request.plan or rescaled(plan, self.request.counts)


class Scaling:
    """One change after another, of one execution. ``cluster``: the hosts of its workers, where they are not here."""

    def __init__(
        self, settings: Settings, folder: RunFolder, cluster: Cluster | None = None, growth: Growth | None = None
    ) -> None:
        self._settings, self._folder, self._cluster, self._growth = settings, folder, cluster, growth
        self.warn: Callable[[str], None] = lambda text: None  # what growth cannot do; the loop sets it
        if growth is not None:
            growth.warn = lambda text: self.warn(text)
        self._next: _Change | None = None
        self._carried: _Change | None = None  # and no learn step was made since

    def hosts(self) -> list[dict[str, Any]]:
        """The hosts of a cluster, for ``live.json``."""
        hosts = self._cluster.usable if self._cluster is not None else []
        return [{"name": host.name, "cores": host.cores, "room": host.room} for host in hosts]

    def is_due(self, prepared: Prepared, counters: Counters) -> bool:
        """Whether there is something to carry out, and it can be now. Does not wait."""
        if prepared.synchrony.still and not counters.learn_steps:
            return False  # workers that have just begun cannot be saved
        if self._next is None and self._carried is None:
            request = next_request(self._folder.path)
            if request is not None:
                self._next = _Change(request)
            elif self._growth is not None and (plan := self._growth.wanted(prepared)) is not None:
                self._next = _Change(None, plan)
        return self._next is not None

    def carry_out(
        self,
        engine: Engine,
        prepared: Prepared,
        save: Callable[[], Kept],
        telemetry: Telemetry,
        interrupt: Interrupt,
    ) -> Prepared:
        """Go over to what is due; nothing is under way. Gives what the run is from now on: as before where refused.

        ``save`` gives the engine's state, and keeps it. Raises StateLost where a worker took it: then it is due still;
        Interrupted where a signal came while workers began, and what else ends the run.
        """
        change = self._next
        assert change is not None
        change.began = time.monotonic()
        try:
            after, launch = self._resolved(change, prepared, engine)
        except (WeftError, OSError) as error:
            self._next = None
            return self._left(change, prepared, "refused", str(error), telemetry)
        if after.plan == prepared.plan:
            self._next = None
            return self._left(change, prepared, "as it was", f"the plan is '{prepared.plan}' already", telemetry)
        kept = save()
        self._next, change.after = None, after.plan
        change.words = "; ".join(diff(prepared.plan, after.plan))
        telemetry.note(f"scaling: {change.words}")
        assert isinstance(engine, LaysOut)
        engine.check = interrupt.check
        try:
            lost = self._begun(engine, after, launch, kept)
        except Interrupted:
            text = "interrupted while workers began: the run was saved, and ends"
            self._left(change, prepared, "failed", text, telemetry)
            raise
        except (WeftError, OSError) as error:
            self._left(change, prepared, "failed", f"{error} It goes on as before.", telemetry)
            self._go_back(engine, prepared, kept)
            return prepared
        finally:
            engine.check = lambda: None
        if lost and prepared.synchrony.still:
            telemetry.warn(f"it goes on, but not exactly: {', '.join(lost)} begin a fresh episode")
        self._carried = change
        self._record(after, launch, telemetry)
        return after

    def smaller(self, engine: Engine, prepared: Prepared, error: Exception, telemetry: Telemetry) -> Prepared:
        """Lay out a plan that the hosts that are left have room for, where the one of now has none; ends its workers.

        Raises ``error`` where that is not the reason, or the run does not follow its cluster.
        """
        plan = None if self._growth is None else self._growth.instead(prepared)
        if plan is None:
            raise error
        assert isinstance(engine, LaysOut)
        telemetry.warn(f"{error}")
        telemetry.note(f"scaling: {'; '.join(diff(prepared.plan, plan))}")
        engine.close()
        change = _Change(None, plan)
        after, launch = self._resolved(change, prepared, engine)
        engine.lay_out(after, launch)
        self._record(after, launch, telemetry)
        return after

    def learned(self, report: Report, counters: Counters) -> str:
        """Look at a report before it is counted: with the first learn step after a change, what to say of it."""
        change = self._carried
        if change is None or not report.learn_steps:
            return ""
        self._carried = None
        seconds = time.monotonic() - change.began
        counters.leave_out(seconds)
        text = f"{change.words}; {seconds:.1f} s without a learn step"
        self._answer(change, "scaled", text, str(change.after), seconds)
        return f"scaled: {text}"

    def close(self) -> None:
        """The run ends: tell commands that wait."""
        for change in (self._next, self._carried):
            if change is not None:
                self._answer(change, "failed", "the run ended before it had learned with them", "")
        self._next = self._carried = None

    def _resolved(self, change: _Change, prepared: Prepared, engine: Engine) -> tuple[Prepared, LaunchSpec]:
        """The run under the new plan, with room for its workers. Raises WeftError where that cannot be."""
        cluster = self._cluster
        if cluster is not None:
            cluster.renew()
        machine = prepared.machine if cluster is None else cluster.machine
        after = replanned(prepared, change.asked_of(prepared.plan), machine)
        launch = planned(after, self._settings, cluster)
        _same_state(engine, after, launch)
        if cluster is not None and after.plan != prepared.plan:
            self._secure(launch)
        return after, launch

    def _secure(self, launch: LaunchSpec) -> None:
        from weft.runtimes.cluster.launcher import shares
        from weft.runtimes.workers.layout.placement import place

        assert self._cluster is not None
        self._cluster.secure(shares(place(launch.blueprint, self._cluster.usable)))

    def _begun(self, engine: Engine, after: Prepared, launch: LaunchSpec, kept: Kept) -> list[str]:
        """End the workers of now, and begin others from what was kept; what could not be brought back exactly."""
        assert isinstance(engine, LaysOut)
        engine.close()
        engine.lay_out(after, launch)
        for _ in range(MAX_BEGINNINGS):
            try:
                return engine.resume(kept[0], kept[1]["engine"])
            except StateLost:
                engine.close()
        raise WorkerFailed(f"the workers of '{after.plan}' died while they started, {MAX_BEGINNINGS} times.")

    def _go_back(self, engine: Engine, prepared: Prepared, kept: Kept) -> None:
        """The old plan again, from the same state."""
        assert isinstance(engine, LaysOut)
        engine.close()
        launch = planned(prepared, self._settings, self._cluster)
        if self._cluster is not None:
            self._secure(launch)
        engine.lay_out(prepared, launch)
        engine.resume(kept[0], kept[1]["engine"])

    def _record(self, after: Prepared, launch: LaunchSpec, telemetry: Telemetry) -> None:
        if self._cluster is not None:
            from weft.runtimes.cluster.launcher import shares
            from weft.runtimes.workers.layout.placement import place

            self._cluster.provider.give_back(shares(place(launch.blueprint, self._cluster.usable)))
        telemetry.retitle(title_of(after))
        try:
            self._folder.lay_out(laid_out(after))
        except RunError as error:
            telemetry.warn(str(error))

    def _left(self, change: _Change, prepared: Prepared, became: Became, text: str, telemetry: Telemetry) -> Prepared:
        """It stays as it was: say so, and why."""
        if became != "as it was":
            telemetry.warn(f"not scaled: {text}")
            if change.request is None and self._growth is not None:
                self._growth.failed()
        self._answer(change, became, text, str(prepared.plan))
        return prepared

    def _answer(self, change: _Change, became: Became, text: str, plan: str, seconds: float = 0.0) -> None:
        if change.request is not None:
            answer(self._folder.path, change.request, ScaleAnswer(became, text, plan, round(seconds, 3)))


def _same_state(engine: Engine, after: Prepared, launch: LaunchSpec) -> None:
    """Refuse a plan whose workers keep other states than those of now: they could not begin from these."""
    from weft.runtimes.workers.saving import Saving

    now: object = jax.tree.structure(engine.template())
    if now != jax.tree.structure(Saving(after, launch.blueprint).template()):
        raise PlanError(
            f"plan '{after.plan}' keeps its state in other parts than the run under way, which cannot go on from "
            "them. Change the numbers of replicas alone."
        )
