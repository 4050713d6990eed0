"""`LiveListeners`, which adds listeners to a running server and removes others when a reload asks for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
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
"""The time for which a stop waits for parked requests, e.g. fetches without records."""


class ListenerChange(NamedTuple):
    """A change of listeners: `added` are bound and open, and do not serve yet; `removed` still serve.

    `plan` is the plan that requests the change. `shared` has the sockets that a removed and an added listener share.
    """

    plan: ServerPlan
    added: Sequence[Listener] = ()
    removed: Sequence[Listener] = ()
    warnings: Sequence[Problem] = ()
    shared: Mapping[Listener, Sequence[ListeningSocket]] = {}


class LiveListeners:
    """The listeners of one server, in the order of its plan, and the removed ones whose connections still end.

    Only `SocketServer` calls it, on the thread that reloads or stops the server. The caller holds the server's lock of
    changes, unless a method says otherwise. Other threads read `all`, which is the same list for the life of the
    server. A change replaces its content in one step.
    """

    def __init__(self, services: ServerServices, changing: threading.Lock, is_inherited: bool) -> None:
        """`is_inherited` is True in a worker, which gets its listening sockets from its parent at its start."""
        self.all: list[Listener] = []
        self._services = services
        self._changing = changing
        self._is_inherited = is_inherited
        # The value is None if no thread could be started to end them.
        self._draining: dict[tuple[Listener, ...], Joinable | None] = {}

    def prepare(self, old: ServerPlan, new: ServerPlan, open_listener: Callable[[Listener], None]) -> ListenerChange:
        """Bind and open the listeners that only the new plan has. Raises ConfigError, and then nothing has changed."""
        for removed in [each for each, thread in self._draining.items() if thread is None]:
            self._end_later(removed)
        here, wanted = {one.name for one in self.all}, {plan.name: plan for plan in new.listeners}
        if self._is_inherited or here == set(wanted):
            return ListenerChange(new)
        plans = [plan for name, plan in wanted.items() if name not in here and not why_not_live(old, new, plan)]
        gone = [one for one in self.all if one.name not in wanted and not why_not_live(old, new, one.plan)]
        names = {_table(plan) for plan in plans}
        warnings = new.checked(names) if new.checked is not None and names else ()
        added: list[Listener] = []
        shared: dict[Listener, Sequence[ListeningSocket]] = {}
        try:
            for plan in plans:
                added.append(listener := Listener(self._with_shared_settings(plan), old.server.as_version))
                shared[listener] = self._open(listener, new, gone, open_listener)
        except BaseException:
            self._close(added)
            raise
        return ListenerChange(new, added, gone, warnings, shared)

    def _close(self, added: Sequence[Listener]) -> None:
        for listener in added:
            listener.close()
            self._services.metrics.remove_listener(listener.name)

    def undo(self, change: ListenerChange) -> None:
        """End the listeners that a change has added, because the change is not applied, or `apply` has raised."""
        added = {one.name: one.context for one in change.added}
        # An earlier listener of the same name, whose connections still end, gets its name back.
        earlier = {one.name: one.context for gone in self._draining for one in gone if one.name in added}
        self._services.listeners.change(earlier, added)
        for listener in change.added:
            listener.stop_accepting()
            listener.drain(0, 0)
        for listener in change.added:
            listener.join()
        self._close(change.added)

    def _with_shared_settings(self, plan: ListenerPlan) -> ListenerPlan:
        """Return the plan with the present settings of parts that all listeners share: reloads change them for all."""
        for here in (part for listener in self.all for part in listener.plan.many):
            part, specs = plan.counterpart(here), specs_of(type(here.settings)).values() if here.settings else ()
            shared = {one.attribute: getattr(here.settings, one.attribute) for one in specs if one.per_server}
            if part is not None and shared:
                plan = plan.with_part(part, replace(part, settings=replace(part.settings, **shared)))
        return plan

    def _open(
        self, listener: Listener, new: ServerPlan, gone: Sequence[Listener], open_listener: Callable[[Listener], None]
    ) -> Sequence[ListeningSocket]:
        plan, more_ports = listener.plan, new.more_ports(listener.plan.api_set)
        # A port passes from one listener to the other without a moment in which it refuses connections.
        before = [one for one in gone if one.plan.bind == plan.bind and plan.bind[1] and one.more_ports == more_ports]
        sockets = before[0].duplicate_sockets() if before else ()
        try:
            listener.bind(self._services, more_ports, sockets)
            open_listener(listener)
        except BindError as error:
            raise new.error(("listeners", _table(plan), "bind"), str(error)) from error
        except (PartError, PluginError, StartError) as error:
            raise new.error(("listeners", _table(plan)), str(error)) from error
        return sockets

    def apply(self, change: ListenerChange, deadline_ms: int) -> list[str]:
        """Start the added listeners, and end the removed ones within the deadline; return one line for each.

        If a listener cannot start, this raises, and the caller calls `undo`.
        """
        removed = tuple(change.removed)
        self._start(change)
        kept = [*(one for one in self.all if one not in removed), *change.added]
        order = [plan.name for plan in change.plan.listeners]
        self.all[:] = sorted(kept, key=lambda one: order.index(one.name) if one.name in order else len(order))
        lines = [f"[listeners.{one.name}] listens on {one.context.bound}" for one in change.added]
        for listener in removed:
            listener.stop_accepting()
            self._services.metrics.remove_listener(listener.name)
            lines.append(f"[listeners.{listener.name}] is removed; its connections end")
        if removed:
            self._drain(removed, deadline_ms)
        for warning in change.warnings:
            log.warning("%s", warning)
        return lines

    def _start(self, change: ListenerChange) -> None:
        # All added listeners are known before the first one serves, because a client may ask it for the addresses of
        # all.
        self._services.listeners.change({one.name: one.context for one in change.added}, {})
        for listener in change.added:
            listener.start()
        # Only now, because the removed listeners keep these sockets if another listener cannot start.
        for listener, sockets in change.shared.items():
            _listen_as(sockets, listener.plan)
        for listener in change.added:
            node = listener.plan.api_set, listener.plan.node
            online = [one.is_online for one in self.all if (one.plan.api_set, one.plan.node) == node]
            if online and not any(online):
                # The node is stopped.
                listener.go_offline()

    def _drain(self, removed: tuple[Listener, ...], deadline_ms: int) -> None:
        now_ns = self._services.clock.monotonic_ns()
        deadline_ns = now_ns + deadline_ms * 1_000_000
        for listener in removed:
            listener.drain(deadline_ns, min(deadline_ns, now_ns + PARKED_GRACE_NS))
        self._end_later(removed)

    def _end_later(self, removed: tuple[Listener, ...]) -> None:
        self._draining[removed] = None
        try:
            thread = self._services.threads.start(lambda: self._end(removed), "klamm-removed-listeners")
        except RuntimeError as error:
            names = ", ".join(one.name for one in removed)
            log.error("removed listeners (%s) stay in memory until the next reload or the stop: %s", names, error)
        else:
            self._draining[removed] = thread

    def _end(self, removed: tuple[Listener, ...]) -> None:
        """Close listeners once their last connection has ended. The caller does not hold the lock."""
        for listener in removed:
            listener.join()
        with self._changing:
            del self._draining[removed]
            # Not earlier, because their connections could ask for the addresses of nodes. The context of a successor
            # stays.
            self._services.listeners.change({}, {one.name: one.context for one in removed})
            for listener in removed:
                listener.close()

    def stop(self, deadline_ns: int, grace_end_ns: int) -> None:
        """Wait until the removed listeners have ended, by the deadline. The caller does not hold the lock."""
        with self._changing:
            draining = dict(self._draining)
            for removed in draining:
                for listener in removed:
                    listener.drain(deadline_ns, grace_end_ns)
        for removed, thread in draining.items():
            if thread is None:
                self._end(removed)
            else:
                thread.join()


def _listen_as(sockets: Sequence[ListeningSocket], plan: ListenerPlan) -> None:
    for one in sockets:
        try:
            prepare(one.socket, plan.settings)  # type: ignore[arg-type]
        except OSError as error:
            raise BindError(f"listener {plan.name}: {one.bound}: {error.strerror or error}") from error


def _table(plan: ListenerPlan) -> str:
    return plan.configured_as or plan.name
