"""Request observers: what happened to connections and requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from klamm.api.part import ListenerPart

if TYPE_CHECKING:
    from klamm.api.context import Address, ConnectionContext, RequestContext
    from klamm.wire.errors import KafkaError


@dataclass(slots=True)
class RequestEvent:
    """A completed request, for observers; stage times are nanoseconds. Names after KIP-673.

    `repeat_count` above 1 stands for that many equal requests of a connection, see `RequestObserver.repeats_after`.
    """

    context: RequestContext
    error_code: int
    response_bytes: int
    request_queue_time_ns: int
    local_time_ns: int
    remote_time_ns: int
    throttle_time_ms: int
    response_queue_time_ns: int
    send_time_ns: int
    total_time_ns: int
    repeat_count: int = 1

    @staticmethod
    def of(request: RequestContext, end_ns: int) -> RequestEvent:
        """The event of a request whose answer was out at `end_ns`."""
        return RequestEvent(
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


class RequestObserver(ListenerPart):
    """Is told what happened. Calls must not block: they come from processor threads, refusals from the acceptor's.

    `repeats_after`    None: every request is told of by itself. A number: of one connection's requests of an API that
                       are answered at once and without an error, so many within a second are told of by themselves,
                       and then a sample, first every sixteenth and later fewer, down to every 256th; the others
                       together by `repeated`. Requests that are answered without a look at them, because equal ones
                       were, are told of likewise, but for the sample. Those that `repeated` tells of have one client
                       id; what comes under another in that second is told of by itself.

    The decoded request is in `RequestContext.frame` and what the handler answered in `response`. They may hold views of
    large frames: an observer that keeps a request drops them soon.
    """

    repeats_after: int | None = None

    def refuse(self, request: RequestContext) -> KafkaError | None:
        """Asked before the handler, if overridden: the error to answer the request with instead, or None.

        Comes from processor and handler threads. ApiVersions is never refused.
        """
        return None

    def connection_refused(self, address: Address, reason: str, detail: str) -> None:
        """A gate refused a connection, or had it closed after a delay; `reason` is one of few words."""

    def authenticated(self, connection: ConnectionContext, reauthentication: bool) -> None:
        """The client has proved who it is, or has again (KIP-368). Not told where nobody is asked."""

    def authentication_failed(self, connection: ConnectionContext, reason: str, reauthentication: bool) -> None:
        """It could not; the channel is going to be closed."""

    def session_expired(self, connection: ConnectionContext) -> None:
        """The client did not authenticate again in time; the channel is going to be closed (KIP-368)."""

    def connection_opened(self, connection: ConnectionContext) -> None:
        """A channel became READY."""

    def connection_closed(self, connection: ConnectionContext, reason: str) -> None:
        """A channel, READY or not, is gone."""

    def completed(self, event: RequestEvent) -> None:
        """A response has been handed to the socket whole, or the request needed none."""

    def completed_many(self, requests: Sequence[RequestContext], end_ns: int) -> None:
        """The same for requests of one connection whose answers left together at `end_ns`, as `completed` by default.

        To be overridden where an event object for each request would be too much. Nobody changes `requests` later.
        """
        for request in requests:
            self.completed(RequestEvent.of(request, end_ns))

    def may_repeat(self, api_key: int) -> bool:
        """Whether requests of an API may be told of by `repeated`; asked once, where `repeats_after` is a number."""
        return True

    def repeated(
        self, request: RequestContext, count: int, request_bytes: int, response_bytes: int, last_ns: int
    ) -> None:
        """`count` requests without an error, of which `request` was the first, were answered until `last_ns`.

        The bytes are sums. The request may be without times (`received_ns` 0), and without messages if they are large.
        """
        event = RequestEvent.of(request, request.completed_ns)
        event.repeat_count = count
        event.response_bytes = response_bytes
        self.completed(event)
