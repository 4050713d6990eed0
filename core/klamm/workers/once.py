"""`OnceParts`: the extensions that run only in the parent, with the metrics of all workers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from klamm.api.context import ServerServices
from klamm.api.extension import ServerExtension
from klamm.config.differences import differences_of_part
from klamm.config.plan import ServerPlan
from klamm.runtime.clock import Clock
from klamm.server.parts import ServerParts
from klamm.server.serving import at_next_start, describe, is_applied
from klamm.workers.calls import WorkerCalls
from klamm.workers.connections import Ask, WorkerConnections
from klamm.workers.joined_metrics import JoinedMetrics, JoinedRegistry, register_supervision
from klamm.workers.listener_facts import listener_of
from klamm.workers.supervisor import Supervisor

log = logging.getLogger("klamm.workers")


class OnceParts:
    """The extensions that run in the parent. The parent's loop calls the methods.

    They are opened before the first worker starts, and closed when all workers have ended.
    """

    def __init__(
        self, plan: ServerPlan, clock: Clock, supervisor: Supervisor, refresh: Callable[[], None], ask: Ask
    ) -> None:
        self._plans = [part for part in plan.extensions if part.found.provider.workers == "parent"]
        self.extensions: list[ServerExtension] = []
        self.joined = JoinedMetrics()
        self._services = ServerServices(clock)
        self._services.metrics = JoinedRegistry(self.joined, refresh)
        self._services.connections = WorkerConnections(ask)
        self._services.workers = WorkerCalls(ask)
        self._parts = ServerParts(self._services)
        register_supervision(self._services.metrics, supervisor)

    def open(self) -> None:
        """Open all extensions. Raises StartError."""
        if self._plans:
            self._services.scheduler.start()
        for plan in self._plans:
            extension: ServerExtension = plan.build()
            self._parts.open(f"extension {plan.name}", plan.name, plan, extension, self._services)
            self.extensions.append(extension)

    def set_listeners(self, facts: Iterable[Mapping[str, Any]]) -> None:
        """Let the extensions see the listeners that a worker has reported."""
        listeners = [listener_of(each, self._services) for each in facts]
        self._services.listeners.change({each.name: each for each in listeners}, dict(self._services.listeners))

    def ready(self) -> None:
        """Notify the extensions that all workers serve clients."""
        for extension in self.extensions:
            self._parts.attempt(extension, extension.ready)

    def stopping(self) -> None:
        """Notify the extensions that the server begins to stop."""
        for extension in self.extensions:
            self._parts.attempt(extension, extension.stopping)

    def described(self) -> dict[str, str]:
        """Return each part's description of itself for the start message, by name."""
        pairs = zip(self._plans, self.extensions, strict=True)
        return {plan.name: describe(extension) for plan, extension in pairs}

    def reconfigure(self, plan: ServerPlan) -> list[str]:
        """Apply a new plan's settings to the extensions, and make them read their files again; return a report."""
        changed, taken, problems = self._parts.reconfigure(plan.counterpart)
        for old, new in changed:
            self._plans[self._plans.index(old)] = new
        left = [
            one
            for part in self._plans
            if (wanted := plan.counterpart(part)) is not None
            for one in differences_of_part(part.name, part, wanted)
        ]
        problems += self._parts.reload()
        applied = [*map(is_applied, taken), *(at_next_start(str(one), one.why_left) for one in left)]
        return [*applied, *(f"reload: {problem}" for problem in problems)]

    def close(self) -> None:
        """Close all extensions."""
        self._parts.close(lambda part: True)
        if self._plans:
            self._services.scheduler.stop()
