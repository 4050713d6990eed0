"""`ListenerParts`: makes, opens, reloads and closes the parts that the plan of a listener names."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from klamm.api.api_set import ApiHandler
from klamm.api.authentication import AuthenticatorFactory
from klamm.api.context import ListenerContext, RequestContext, TopicNames
from klamm.api.dispatch import ProcessorAssigner
from klamm.api.filters import RequestFilter
from klamm.api.gates import ConnectionGate
from klamm.api.observer import RequestObserver
from klamm.api.part import ListenerPart
from klamm.api.part_failures import name_of
from klamm.api.throttles import Throttle
from klamm.api.transport import Transport
from klamm.config.differences import differences_of_part
from klamm.config.plan import ListenerPlan, PartPlan
from klamm.logs.causes import cause
from klamm.requests.routes import FilterCalls

log = logging.getLogger("klamm.server")


class PartError(Exception):
    """Raised if a part of a listener cannot open; the message names listener, class and cause."""


class ListenerParts:
    """The parts of one listener. The listener calls it, on the thread that starts, reloads or stops the server.

    `plan` is the current plan. A part that cannot open stops the start (PartError).
    """

    def __init__(self, plan: ListenerPlan, context: ListenerContext) -> None:
        self.name = plan.name
        self.plan = plan
        self._context = context
        self.all: list[ListenerPart] = []
        self._plans: list[PartPlan] = []
        self._opened: list[ListenerPart] = []
        # Held while all throttles are checked, because another thread may report a change at the same time.
        self._throttles_lock = threading.Lock()
        context.authorizer = self._make(plan.authorizer) if plan.authorizer else None
        self.transport: Transport = self._make(plan.transport)
        self.authenticators: AuthenticatorFactory | None = (
            self._make(plan.authenticator) if plan.authenticator else None
        )
        self.gates: tuple[ConnectionGate, ...] = tuple(self._make(part) for part in plan.gates)
        self.filters: tuple[RequestFilter, ...] = tuple(self._make(part) for part in plan.filters)
        context.renames_topics = any(map(_renames_topics, self.filters))
        self._throttles: tuple[Throttle, ...] = tuple(self._make(part) for part in plan.throttles)
        self.observers: tuple[RequestObserver, ...] = tuple(self._make(part) for part in plan.observers)
        self.assigner: ProcessorAssigner = self._make(plan.assigner)
        prefix = self.authenticators.security_protocol if self.authenticators is not None else ""
        context.transport = plan.transport.name
        context.parts = tuple(part.describe() for part in plan.all_parts)
        context.settings_of_parts = self._settings_of_parts
        context.security_protocol = prefix + self.transport.security_protocol

    def _make(self, plan: Any) -> Any:
        part = plan.build()
        self.all.append(part)
        self._plans.append(plan)
        return part

    def _settings_of_parts(self) -> list[dict[str, Any]]:
        return [each.shown() for each in self.plan.all_parts]

    def find(self, name: str) -> ListenerPart | None:
        """Return the first part whose provider has this name, or None."""
        return next((part for plan, part in zip(self._plans, self.all, strict=True) if plan.name == name), None)

    def open(self, topic_names: Callable[[bytes], str | None] | None = None) -> None:
        """Open all parts in the order of the plan. `topic_names` comes from the handler set. Raises PartError."""
        self._name_topics(topic_names)
        for part in self.all:
            with self.needed(part):
                part.open(self._context)
            self._opened.append(part)
        self.refresh_throttles()

    def _name_topics(self, names: Callable[[bytes], str | None] | None) -> None:
        """Set the function that returns the names of topics for each filter.

        The names are the handler set's, changed by the filters after that filter. The authorizer gets the handler set's
        names.
        """
        if names is None:
            return
        lookup: TopicNames = partial(_of_handler_set, names)
        by_filter: dict[int, TopicNames] = {id(self._context.authorizer): lookup}
        for one in reversed(self.filters):
            by_filter[id(one)] = lookup
            if _renames_topics(one):
                lookup = partial(_through, one, lookup)
        self._context.topic_names = lambda part: by_filter.get(id(part))

    def filter_calls(self) -> list[FilterCalls]:
        """Return the APIs and methods of the filters, in the order of the plan. Raises PartError."""
        calls = []
        for one in self.filters:
            with self.needed(one):
                calls.append(FilterCalls.of(one))
        return calls

    def with_authenticator_handlers(self, handlers: Iterable[ApiHandler]) -> list[ApiHandler]:
        """Return the handlers of a set together with those that the authenticator adds. Raises PartError."""
        complete = list(handlers)
        if self.authenticators is not None:
            served = {handler.api_key for handler in complete}
            with self.needed(self.authenticators):
                complete += [one for one in self.authenticators.handlers() if one.api_key not in served]
        return complete

    @contextlib.contextmanager
    def needed(self, part: ListenerPart) -> Iterator[None]:
        """Turn an exception of a part in the block into a PartError that names the part."""
        try:
            yield
        except Exception as error:
            log.debug("listener=%s: %r cannot open", self.name, part, exc_info=True)
            text = f"{name_of(part)}: {cause(error)}"
            self._context.services.emit_admin_event("plugin_failed", text, listener=self.name, failed=True)
            raise PartError(f"listener {self.name}: {text}") from error

    def refresh_throttles(self) -> None:
        """Update the list of active throttles. Any thread may call this."""
        with self._throttles_lock:
            self._context.throttles = tuple(throttle for throttle in self._throttles if self._is_active(throttle))

    def _is_active(self, throttle: Throttle) -> bool:
        try:
            return throttle.active
        except Exception:
            log.exception("listener=%s: %s failed in active", self.name, name_of(throttle))
            return True

    def reload(self) -> list[str]:
        """Let every part read its files again; return one line for each part that failed."""
        problems = []
        for part in self._opened:
            try:
                part.reload()
            except Exception as error:
                log.exception("listener=%s: reload of %s failed", self.name, name_of(part))
                problems.append(f"listener {self.name}: {type(part).__name__}: {error}")
                self._context.services.emit_admin_event(
                    "config_reload_failed", f"{type(part).__name__}: {error}", listener=self.name, failed=True
                )
        return problems

    def reconfigure(self, plan: ListenerPlan) -> tuple[list[str], list[str]]:
        """Give parts their settings from a new plan; return the applied keys, and the problems.

        `self.plan` then has the settings in use. The other differences of the new plan take effect at the next start.
        """
        taken: list[str] = []
        problems = []
        for index, (old, part) in enumerate(zip(self._plans, self.all, strict=True)):
            new = plan.counterpart(old)
            if new is None:
                continue
            try:
                new = old.with_live(new, part.live_keys)
                parts = old.settings_of_parts(new)
                if new == old or parts is None:
                    continue
                if new.parts != old.parts:
                    applied = part.reconfigure_parts(new.settings, parts)
                else:
                    applied = part.reconfigure(new.settings)
                if not applied:
                    continue
            except Exception as error:
                log.exception("listener=%s: %s cannot take new settings", self.name, name_of(part))
                problems.append(f"[listeners.{self.name}.{old.name}] stays as it was: {error}")
                self._context.services.emit_admin_event(
                    "config_reload_failed", f"{old.name}: {error}", listener=self.name, failed=True
                )
                continue
            self._plans[index] = new
            self.plan = self.plan.with_part(old, new)
            taken += map(str, differences_of_part(f"listeners.{self.name}.{old.name}", old, new))
        return taken, problems

    def close(self) -> None:
        """Close the parts that were opened, the last one first."""
        for part in reversed(self._opened):
            try:
                part.close()
            except Exception:
                log.exception("listener=%s: closing %s failed", self.name, name_of(part))
        self._opened.clear()


def _renames_topics(one: RequestFilter) -> bool:
    return type(one).topic_name is not RequestFilter.topic_name


def _of_handler_set(names: Callable[[bytes], str | None], topic_id: bytes, context: RequestContext) -> str | None:  # noqa: ARG001
    return names(topic_id)


def _through(one: RequestFilter, behind: TopicNames, topic_id: bytes, context: RequestContext) -> str | None:
    return one.topic_name(topic_id, context, behind)
