"""`LiveListeners`: adds listeners to a running server and removes others, as a reload of the file asks for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from klamm.api.context import ServerServices
from klamm.config.differences import why_not_live
from klamm.config.plan import ListenerPlan, ServerPlan
from klamm.config.plugin_registry import PluginError
from klamm.config.problems import Problem
from klamm.config.setting import specs_of
from klamm.runtime.threads import Joinable
from klamm.server.listener import Listener
from klamm.server.listener_parts import PartError
from klamm.server.listening import BindError, ListeningSocket, prepare
from klamm.server.parts import StartError

log = logging.getLogger("klamm.server")

PARKED_GRACE_NS: Final = 250_000_000
"""How long a stop waits for parked requests, e.g. fetches without records."""


class ListenerChange(NamedTuple):
    """`added` are bound and open, and do not serve yet; `removed` still serve. `plan` is the one that asks for it."""

    plan: ServerPlan
    added: Sequence[Listener]
    removed: Sequence[Listener]
    warnings: Sequence[Problem]


class LiveListeners:
    """The listeners of one server, in the order of its plan, and the removed ones whose connections still end.

    `all` is one list for as long as the server lives; a change replaces its content in one step. The caller holds the
    server's lock of changes, unless a method says otherwise.
    """

    def __init__(self, services: ServerServices, changing: threading.Lock, is_inherited: bool) -> None:
        """`is_inherited` is True in a worker, which gets its listening sockets from its parent at its start."""
        self.all: list[Listener] = []
        self._services = services
        self._changing = changing
        self._is_inherited = is_inherited
        self._draining: dict[tuple[Listener, ...], Joinable] = {}

    def prepare(self, old: ServerPlan, new: ServerPlan, open_listener: Callable[[Listener], None]) -> ListenerChange:
        """Bind and open the listeners that only the new plan has. Raises ConfigError, and then nothing has changed."""
        here, wanted = {one.name for one in self.all}, {plan.name: plan for plan in new.listeners}
        if self._is_inherited or here == set(wanted):
            return ListenerChange(new, (), (), ())
        plans = [plan for name, plan in wanted.items() if name not in here and not why_not_live(old, new, plan)]
        gone = [one for one in self.all if one.name not in wanted and not why_not_live(old, new, one.plan)]
        names = {_table(plan) for plan in plans}
        warnings = new.checked(names) if new.checked is not None and names else ()
        added: list[Listener] = []
        try:
            for plan in plans:
                added.append(listener := Listener(self._with_shared_settings(plan), old.server.as_version))
                self._open(listener, new, gone, open_listener)
        except BaseException:
            for listener in added:
                listener.close()
                self._services.metrics.remove_listener(listener.name)
            raise
        return ListenerChange(new, added, gone, warnings)

    def _with_shared_settings(self, plan: ListenerPlan) -> ListenerPlan:
        """Return the plan with the settings in force of what all listeners share: a reload changes them on all."""
        for here in (part for listener in self.all for part in listener.plan.many):
            part, specs = plan.counterpart(here), specs_of(type(here.settings)).values() if here.settings else ()
            shared = {one.attribute: getattr(here.settings, one.attribute) for one in specs if one.per_server}
            if part is not None and shared:
                plan = plan.with_part(part, replace(part, settings=replace(part.settings, **shared)))
        return plan

    def _open(
        self, listener: Listener, new: ServerPlan, gone: Sequence[Listener], open_listener: Callable[[Listener], None]
    ) -> None:
        plan, more_ports = listener.plan, new.more_ports(listener.plan.api_set)
        # A port passes from one listener to the other without a moment in which it refuses connections.
        before = [one for one in gone if one.plan.bind == plan.bind and plan.bind[1] and one.more_ports == more_ports]
        sockets = before[0].duplicate_sockets() if before else ()
        try:
            listener.bind(self._services, more_ports, sockets)
            _listen_as(sockets, plan)
            open_listener(listener)
        except BindError as error:
            raise new.error(("listeners", _table(plan), "bind"), str(error)) from error
        except (PartError, PluginError, StartError) as error:
            raise new.error(("listeners", _table(plan)), str(error)) from error

    def apply(self, change: ListenerChange, deadline_ms: int) -> list[str]:
        """Start the added listeners, and end the removed ones within the deadline; return one line for each."""
        lines, added, removed = [], {one.name: one for one in change.added}, tuple(change.removed)
        # Clients of listeners that come together find one another's addresses from the first request on.
        self._services.listeners.change({name: one.context for name, one in added.items()}, {})
        kept = {one.name: one for one in self.all if one not in removed} | added
        order = [plan.name for plan in change.plan.listeners]
        self.all[:] = sorted(kept.values(), key=lambda one: order.index(one.name) if one.name in order else len(order))
        for listener in change.added:
            listener.start()
            lines.append(f"[listeners.{listener.name}] listens on {listener.context.bound}")
        for listener in removed:
            listener.stop_accepting()
            self._services.metrics.remove_listener(listener.name)
            lines.append(f"[listeners.{listener.name}] is removed; its connections end")
        if removed:
            self._drain(removed, deadline_ms)
        for warning in change.warnings:
            log.warning("%s", warning)
        return lines

    def _drain(self, removed: tuple[Listener, ...], deadline_ms: int) -> None:
        now_ns = self._services.clock.monotonic_ns()
        deadline_ns = now_ns + deadline_ms * 1_000_000
        for listener in removed:
            listener.drain(deadline_ns, min(deadline_ns, now_ns + PARKED_GRACE_NS))
        self._draining[removed] = self._services.threads.start(lambda: self._end(removed), "klamm-removed-listeners")

    def _end(self, removed: tuple[Listener, ...]) -> None:
        """Close listeners once their last connection has ended. Runs on a thread of its own."""
        for listener in removed:
            listener.join()
        with self._changing:
            del self._draining[removed]
            # Until now their connections could ask for the addresses of nodes; a successor of the same name stays.
            self._services.listeners.change({}, {one.name: one.context for one in removed})
            for listener in removed:
                listener.close()

    def stop(self, deadline_ns: int, grace_end_ns: int) -> None:
        """Wait until the removed listeners have ended, by the deadline. The caller does not hold the lock."""
        with self._changing:
            threads = list(self._draining.values())
            for removed in self._draining:
                for listener in removed:
                    listener.drain(deadline_ns, grace_end_ns)
        for thread in threads:
            thread.join()


def _listen_as(sockets: Sequence[ListeningSocket], plan: ListenerPlan) -> None:
    for one in sockets:
        try:
            prepare(one.socket, plan.settings)  # type: ignore[arg-type]
        except OSError as error:
            raise BindError(f"listener {plan.name}: {one.bound}: {error.strerror or error}") from error


def _table(plan: ListenerPlan) -> str:
    return plan.configured_as or plan.name
