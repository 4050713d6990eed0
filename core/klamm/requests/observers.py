"""`RequestObservers`, which notifies the observers of one listener. The acceptor and the processors call it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from klamm.api.context import Address, ConnectionContext, RequestContext
from klamm.api.observer import RequestEvent, RequestObserver
from klamm.api.part_failures import PartFailures
from klamm.requests.routes import RequestStep, StartCalls
from klamm.wire.errors import KafkaError

log = logging.getLogger("klamm.observers")


class RequestObservers:
    """The observers of one listener. A listener without observers has None instead.

    If an observer raises, the exception is logged once a minute for each method, and the other observers are called.
    """

    def __init__(self, observers: Sequence[RequestObserver], failures: PartFailures) -> None:
        self._observers = tuple(observers)
        self._failures = failures
        self._completed_many = tuple(observer.completed_many for observer in observers)

    def _notify(self, event: str, *arguments: Any) -> None:
        for observer in self._observers:
            try:
                getattr(observer, event)(*arguments)
            except Exception as error:
                self._failures.log(log, observer, event, error)

    def refused(self, address: Address, reason: str, detail: str) -> None:
        """Notify observers that a gate has refused a connection."""
        self._notify("connection_refused", address, reason, detail)

    def authenticated(self, connection: ConnectionContext, *, again: bool) -> None:
        """Notify observers that a client has authenticated."""
        self._notify("authenticated", connection, again)

    def authentication_failed(self, connection: ConnectionContext, reason: str, *, again: bool) -> None:
        """Notify observers that a client has failed to authenticate."""
        self._notify("authentication_failed", connection, reason, again)

    def session_expired(self, connection: ConnectionContext) -> None:
        """Notify observers that a client has not authenticated again in time."""
        self._notify("session_expired", connection)

    def opened(self, connection: ConnectionContext) -> None:
        """Notify observers that a channel has become READY."""
        self._notify("connection_opened", connection)

    def closed(self, connection: ConnectionContext, reason: str) -> None:
        """Notify observers that a channel has closed."""
        self._notify("connection_closed", connection, reason)

    def completed(self, events: Sequence[RequestEvent]) -> None:
        """Notify observers that requests of one connection have ended."""
        for completed_many in self._completed_many:
            try:
                completed_many(events)
            except Exception as error:
                self._failures.log(log, getattr(completed_many, "__self__", completed_many), "completed", error)

    def start_calls(self, needed: Callable[[RequestObserver], AbstractContextManager[None]]) -> list[StartCalls]:
        """Return the APIs and calls of the observers that are notified before a handler runs.

        `needed(observer)` turns an exception of the observer into an error of the start.
        """
        calls = []
        for observer in self._observers:
            with needed(observer):
                api_keys = frozenset(observer.announced_api_keys)
            if api_keys:
                calls.append(StartCalls(api_keys, self._start_step(observer)))
        return calls

    def _start_step(self, observer: RequestObserver) -> RequestStep:
        def start(message: Any, context: RequestContext) -> Any:
            try:
                observer.starting(message, context)
            except KafkaError:
                raise
            except Exception as error:
                self._failures.log(log, observer, "starting", error)
            return message

        return start
