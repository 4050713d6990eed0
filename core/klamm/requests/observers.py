"""Telling observers what became of connections and requests; nothing at all where nobody observes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from klamm.api.context import Address, ConnectionContext, RequestContext
from klamm.api.observer import RequestObserver
from klamm.runtime.clock import Clock
from klamm.wire.errors import KafkaError

log = logging.getLogger("klamm.observers")


class RequestObservers:
    """The observers of one listener. One that raises is logged and costs the others nothing.

    `repeats_after` is what suits all of them. `refusals` are the questions of those that may refuse.
    """

    def __init__(self, observers: Sequence[RequestObserver], clock: Clock) -> None:
        self._observers = tuple(observers)
        self._monotonic_ns = clock.monotonic_ns
        self._completed_many = tuple(observer.completed_many for observer in observers)
        wanted = [observer.repeats_after for observer in observers]
        numbers = [number for number in wanted if number is not None]
        self.repeats_after = max(numbers) if len(numbers) == len(wanted) else None
        self.refusals: tuple[Callable[[RequestContext], KafkaError | None], ...] = tuple(
            observer.refuse for observer in observers if type(observer).refuse is not RequestObserver.refuse
        )

    def _tell(self, event: str, *arguments: Any) -> None:
        for observer in self._observers:
            try:
                getattr(observer, event)(*arguments)
            except Exception:
                log.exception("observer %r failed in %s", observer, event)

    def refused(self, address: Address, reason: str, detail: str) -> None:
        """The gates did not let a connection in."""
        self._tell("connection_refused", address, reason, detail)

    def authenticated(self, connection: ConnectionContext, *, again: bool) -> None:
        """A client has proved who it is."""
        self._tell("authenticated", connection, again)

    def authentication_failed(self, connection: ConnectionContext, reason: str, *, again: bool) -> None:
        """A client could not prove who it is."""
        self._tell("authentication_failed", connection, reason, again)

    def session_expired(self, connection: ConnectionContext) -> None:
        """A client did not authenticate again in time."""
        self._tell("session_expired", connection)

    def opened(self, connection: ConnectionContext) -> None:
        """A channel became READY."""
        self._tell("connection_opened", connection)

    def closed(self, connection: ConnectionContext, reason: str) -> None:
        """A channel is gone."""
        self._tell("connection_closed", connection, reason)

    def completed(self, requests: Sequence[RequestContext]) -> None:
        """The answers of these requests have gone out whole, or they need none."""
        end_ns = self._monotonic_ns()
        for completed_many in self._completed_many:
            try:
                completed_many(requests, end_ns)
            except Exception:
                log.exception("observer %r failed", completed_many)

    def may_repeat(self, api_key: int) -> bool:
        """Whether all observers take requests of an API in a lump; one that raises is told of each."""
        try:
            return all(observer.may_repeat(api_key) for observer in self._observers)
        except Exception:
            log.exception("an observer failed in may_repeat")
            return False

    def repeated(
        self, request: RequestContext, count: int, request_bytes: int, response_bytes: int, last_ns: int
    ) -> None:
        """`count` requests like this one have been answered by `last_ns`."""
        self._tell("repeated", request, count, request_bytes, response_bytes, last_ns)
