"""Telling observers what became of connections and requests; nothing at all where nobody observes."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from klamm.clock import Clock
from klamm.context import ConnectionContext, RequestContext
from klamm.contracts import RequestEvent, RequestObserver

log = logging.getLogger("klamm.observers")


class Observation:
    """The observers of one listener. One that raises is logged and costs the others nothing."""

    def __init__(self, observers: tuple[RequestObserver, ...], clock: Clock) -> None:
        self._observers = observers
        self._clock = clock

    def opened(self, connection: ConnectionContext) -> None:
        """A channel became READY."""
        for observer in self._observers:
            try:
                observer.connection_opened(connection)
            except Exception:
                log.exception("observer %r failed", observer)

    def closed(self, connection: ConnectionContext, reason: str) -> None:
        """A channel is gone."""
        for observer in self._observers:
            try:
                observer.connection_closed(connection, reason)
            except Exception:
                log.exception("observer %r failed", observer)

    def completed(self, requests: Iterable[RequestContext]) -> None:
        """The answers of these requests have gone out whole, or they need none."""
        end_ns = self._clock.monotonic_ns()
        for request in requests:
            event = RequestEvent(
                context=request,
                error_code=request.error_code,
                response_bytes=request.response_bytes,
                request_queue_time_ns=max(0, request.handler_start_ns - request.received_ns),
                local_time_ns=max(0, request.local_end_ns - request.handler_start_ns),
                remote_time_ns=max(0, request.completed_ns - request.local_end_ns),
                throttle_time_ms=request.throttle_time_ms,
                response_queue_time_ns=max(0, request.dequeued_ns - request.completed_ns) if request.dequeued_ns else 0,
                send_time_ns=max(0, end_ns - (request.dequeued_ns or request.completed_ns)),
                total_time_ns=max(0, end_ns - request.received_ns),
            )
            for observer in self._observers:
                try:
                    observer.completed(event)
                except Exception:
                    log.exception("observer %r failed", observer)
