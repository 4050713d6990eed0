"""Request observers: what happened to connections and requests."""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm.api.part import ListenerPart

if TYPE_CHECKING:
    from klamm.api.context import Address, ConnectionContext, RequestContext


class RequestOutcome(enum.Enum):
    """The end of a request. Each request whose header was read ends once.

    ```
    header read ─┬─► REFUSED                        a filter or an observer did not let it through to the handler
                 ├─► LOST_BEFORE                    connection lost; the handler never ran
                 └─► handler ─┬─► ANSWERED          the last byte of the answer was handed to the socket
                              ├─► NO_ANSWER         the request wants none (Produce with acks=0)
                              ├─► FAILED            it cannot be parsed, is not served here, or its handler failed
                              ├─► LOST_DURING       connection lost before the handler answered; the handler did run
                              └─► LOST_AFTER        connection lost before the last byte of the answer left
    ```
    A response with an error code, e.g. TOPIC_AUTHORIZATION_FAILED, counts as ANSWERED. REFUSED and FAILED do not say
    whether the error response reached the client.
    """

    __hash__ = object.__hash__

    ANSWERED = "answered"
    NO_ANSWER = "no_answer"
    REFUSED = "refused"
    FAILED = "failed"
    LOST_BEFORE = "lost_before"
    LOST_DURING = "lost_during"
    LOST_AFTER = "lost_after"


class StageTimes(NamedTuple):
    """Times at which a request passed each stage, on the monotonic clock in nanoseconds, in this order. Names follow
    KIP-673.

    A stage that the request did not enter begins and ends at once. All stages together are the total, as in Kafka's
    `RequestChannel.Request.updateRequestMetrics`.
    """

    received_ns: int
    handler_start_ns: int
    local_end_ns: int
    completed_ns: int
    dequeued_ns: int
    end_ns: int

    @property
    def request_queue_ns(self) -> int:
        """From its receipt until a handler, or the processor, starts to execute it."""
        return self.handler_start_ns - self.received_ns

    @property
    def local_ns(self) -> int:
        """In the handler."""
        return self.local_end_ns - self.handler_start_ns

    @property
    def remote_ns(self) -> int:
        """After the handler returned: waiting for data, group members or another server."""
        return self.completed_ns - self.local_end_ns

    @property
    def response_queue_ns(self) -> int:
        """From the response until the processor takes it up."""
        return self.dequeued_ns - self.completed_ns

    @property
    def send_ns(self) -> int:
        """From then until the last byte was handed to the socket."""
        return self.end_ns - self.dequeued_ns

    @property
    def total_ns(self) -> int:
        """From reading the request to its end."""
        return self.end_ns - self.received_ns


class RequestEvent(NamedTuple):
    """A request that has ended.

    `request` is the decoded message as filters have left it, None where the body was not read; `response` is the
    answer, None if nothing. Where a filter changes names (`RequestFilter.topic_name`), both have those of the handler
    set. Both may hold views of large frames: an observer that keeps an event drops them soon (`_replace`). Of
    records that were sent from a file, or as they arrived from another server, only `size_bytes` can be read.
    `error_code` is the first error in what the client gets, 0 for none. `response_bytes` is the body's size. Sizes,
    throttle time and authorization decisions are in `context`. `upstream_node_id` is the node of another cluster that
    it was sent to, where the handler set forwards requests (`klamm.forwarding.note_upstream_node`): `times.remote_ns`
    is then that node's time with the network in between, `times.local_ns` the handler set's own. If such a request is
    FAILED or LOST_DURING, it is unknown whether the node executed it.
    """

    context: RequestContext
    outcome: RequestOutcome
    error_code: int
    request: Any
    response: Any
    response_bytes: int
    times: StageTimes
    upstream_node_id: int | None = None


class RequestObserver(ListenerPart):
    """Notified of connections, authentications and requests. Calls must not block, except `starting`.

    They come from processor threads, refusals of connections from the acceptor's.

    An observer changes nothing, and refuses only requests that it must record and cannot; see `starting`. For all else
    there is a `RequestFilter`.
    """

    @property
    def announced_api_keys(self) -> Collection[int]:
        """The APIs whose requests `starting` is called for; none by default. Read once, after `open`."""
        return ()

    def starting(self, message: Any, context: RequestContext) -> None:
        """A request of `announced_api_keys` is about to go to its handler: every filter has let it through.

        May wait for a disk: these APIs run on handler threads. Raises KafkaError to have the request answered with it
        instead; it then ends as REFUSED. Anything else that it raises is logged, and the request goes on.
        """

    def connection_refused(self, address: Address, reason: str, detail: str) -> None:
        """A gate refused a connection, or had it closed after a delay; `reason` is one of a few fixed words."""

    def authenticated(self, connection: ConnectionContext, reauthentication: bool) -> None:
        """A client has authenticated, for the first time or again (KIP-368). Not called without an authenticator."""

    def authentication_failed(self, connection: ConnectionContext, reason: str, reauthentication: bool) -> None:
        """Authentication failed; the connection is going to be closed."""

    def session_expired(self, connection: ConnectionContext) -> None:
        """The client did not authenticate again in time; the connection is going to be closed (KIP-368)."""

    def connection_opened(self, connection: ConnectionContext) -> None:
        """A connection became READY: requests may come."""

    def connection_closed(self, connection: ConnectionContext, reason: str) -> None:
        """A connection, READY or not, is closed."""

    def completed(self, event: RequestEvent) -> None:
        """A request has ended; `event.outcome` says how. Once for each request."""

    def completed_many(self, events: Sequence[RequestEvent]) -> None:
        """Requests of one connection have ended together; calls `completed` for each by default."""
        for event in events:
            self.completed(event)
