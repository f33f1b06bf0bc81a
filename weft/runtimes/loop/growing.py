"""Following a cluster: where hosts join or are lost, a run has as many replicas as there is room for, within bounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from weft.core.errors import ConfigError, PlanError
from weft.plans.plan import Plan
from weft.plans.scale import Bounds, filled, read_bounds, rescaled
from weft.runtimes.prepare.config import Prepared, Settings
from weft.runtimes.prepare.replanned import replanned, stays

if TYPE_CHECKING:
    from weft.runtimes.cluster.cluster import Cluster
    from weft.runtimes.workers.layout.blueprint import Host

LOOK_SECONDS = 2.0
"""From one look at the cluster to the next."""

STEADY_SECONDS = 5.0
"""For how long the hosts must be the same before anything follows from it: nodes join one after another."""

AGAIN_SECONDS = 60.0
"""After so long what could not be had is tried again."""


class Growth:
    """Decides what plan a run should have; carries nothing out. ``clock`` gives seconds and never jumps.

    Raises UnknownName and PlanError for bounds of what the run does not have, or must not scale.
    """

    def __init__(
        self,
        bounds: Mapping[str, Bounds],
        prepared: Prepared,
        settings: Settings,
        cluster: Cluster,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bounds, self._settings, self._cluster, self._clock = bounds, settings, cluster, clock
        rescaled(prepared.plan, {name: bound.least for name, bound in bounds.items()})
        for name in bounds:
            if stays(prepared.plan.group_of(name), prepared.graph):
                raise PlanError(
                    f"--grow {name}: '{prepared.plan.group_of(name)}' has the same number of replicas throughout a "
                    "run. Let what steps, acts or maps grow."
                )
        cluster.must_fit = True
        self._seen: tuple[Host, ...] = ()
        self._since = clock()
        self._decided: tuple[Host, ...] | None = None
        self._next = 0.0
        self.warn: Callable[[str], None] = lambda text: None

    def wanted(self, prepared: Prepared) -> Plan | None:
        """The plan to go over to; None where the hosts are as they were, or change at this moment. Does not wait."""
        now = self._clock()
        if now < self._next:
            return None
        self._next = now + LOOK_SECONDS
        self._cluster.renew()
        hosts = tuple(replace(host, slots=0) for host in self._cluster.usable)  # a core each, and no more than that
        if hosts != self._seen:
            self._seen, self._since = hosts, now
        if hosts == self._decided or now - self._since < STEADY_SECONDS:
            return None
        self._decided = hosts
        plan = filled(prepared.plan, self._bounds, lambda plan: self._fits(plan, prepared, hosts))
        if plan is None:
            room = sum(host.cores for host in hosts)
            self.warn(f"--grow {self._settings.grow}: nothing within that fits {room} cores; the plan stays as it is")
        return None if plan == prepared.plan else plan

    def instead(self, prepared: Prepared) -> Plan | None:
        """A plan that the hosts that are left have room for, where that of now has none."""
        self._cluster.renew()
        hosts = tuple(self._cluster.usable)
        if self._fits(prepared.plan, prepared, hosts):
            return None
        self._decided = None
        return filled(prepared.plan, self._bounds, lambda plan: self._fits(plan, prepared, hosts))

    def failed(self) -> None:
        """What was wanted could not be had: it is looked at again, later."""
        self._decided, self._next = None, self._clock() + AGAIN_SECONDS

    def _fits(self, plan: Plan, prepared: Prepared, hosts: tuple[Host, ...]) -> bool:
        from weft.runtimes.workers.layout.draft import draft
        from weft.runtimes.workers.layout.placement import place

        if sum(group.replicas or 1 for group in plan.groups) > sum(host.room for host in hosts):
            return False
        how = self._settings
        try:
            after = replanned(prepared, plan, self._cluster.machine)
            drafted = draft(
                after.plan,
                after.graph,
                after.envs,
                after.machine,
                after.synchrony,
                ring=how.ring,
                channel=how.channel,
            )
            place(drafted, hosts)
        except (PlanError, ConfigError):
            return False
        return True


def growth_of(prepared: Prepared, settings: Settings, cluster: Cluster | None) -> Growth | None:
    """What follows the cluster, where that was asked for. Raises PlanError and ConfigError where it cannot."""
    bounds = read_bounds(settings.grow)
    if not bounds:
        return None
    if cluster is None:
        raise ConfigError(
            f"--grow {settings.grow} follows the hosts of a cluster: add --on ray or --on processes:N. On one machine "
            "`weft scale RUN` changes the replicas of a run."
        )
    return Growth(bounds, prepared, settings, cluster)
