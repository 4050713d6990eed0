"""Request observers, which are notified of connections and requests."""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from klamm.api.context import Address, ConnectionContext, RequestContext
from klamm.api.part import ListenerPart


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
    """The times at which a request passed each stage, in nanoseconds of the monotonic clock. Names follow KIP-673.

    The fields are in the order of the stages. A stage that the request skipped begins and ends at the same time. The
    stages add up to the total, as in Kafka's `RequestChannel.Request.updateRequestMetrics`.
    """

    received_ns: int
    handler_start_ns: int
    local_end_ns: int
    completed_ns: int
    dequeued_ns: int
    end_ns: int

    @property
    def request_queue_ns(self) -> int:
        """Return the time from the request's receipt until a handler, or the processor, starts to execute it."""
        return self.handler_start_ns - self.received_ns

    @property
    def local_ns(self) -> int:
        """Return the time in the handler."""
        return self.local_end_ns - self.handler_start_ns

    @property
    def remote_ns(self) -> int:
        """Return the time after the handler returned: the wait for data, group members or another server."""
        return self.completed_ns - self.local_end_ns

    @property
    def response_queue_ns(self) -> int:
        """Return the time from the response until the processor takes it."""
        return self.dequeued_ns - self.completed_ns

    @property
    def send_ns(self) -> int:
        """Return the time from when the processor took the response until the last byte was handed to the socket."""
        return self.end_ns - self.dequeued_ns

    @property
    def total_ns(self) -> int:
        """Return the time from the request's receipt to its end."""
        return self.end_ns - self.received_ns


class RequestEvent(NamedTuple):
    """A request that has ended.

    - `request` is the decoded message after all filters, None if the body was not read. `response` is the answer, None
      if there is none. Records sent from a file, or streamed from another server, have only `size_bytes`.
    - If a filter changes names (`RequestFilter.topic_name`), request and response have the handler set's names, not the
      client's.
    - Request and response may hold views of large frames. An observer that keeps events must soon set both to None
      (`event._replace(request=None, response=None)`).
    - `error_code` is the first error in the answer sent to the client, 0 for none. `response_bytes` is the size of the
      response's body. Sizes, throttle time and authorization decisions are in `context`.
    - `upstream_node_id` is the node of the other cluster that got the request, if the handler set forwards requests
      (`klamm.forwarding.note_upstream_node`). `times.remote_ns` is then the time that the network and that node took,
      and `times.local_ns` the time that the handler set took. If such a request is FAILED or LOST_DURING, it is unknown
      whether the node executed it.
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
    """A part that is notified of connections, authentications and requests.

    Methods are called on processor threads, with two exceptions: `starting` is called on a handler thread, and
    `connection_refused` also on the acceptor's thread. Only `starting` may block.

    An observer does not change requests. It refuses a request only if it must record the request and cannot; see
    `starting`. For any other purpose use a `RequestFilter`.
    """

    @property
    def announced_api_keys(self) -> Collection[int]:
        """Return the APIs for whose requests `starting` is called; none by default. Read once, after `open`."""
        return ()

    def starting(self, message: Any, context: RequestContext) -> None:
        """Called before a request of `announced_api_keys` goes to its handler, after every filter has passed it.

        Called on a handler thread, so it may wait for a disk. Raise KafkaError to answer the request with that error;
        the request then ends as REFUSED. Any other exception is logged, and the request continues.
        """

    def connection_refused(self, address: Address, reason: str, detail: str) -> None:
        """Called when a gate refused a connection, or closed it after a delay; `reason` is one of a few fixed words."""

    def authenticated(self, connection: ConnectionContext, reauthentication: bool) -> None:
        """Called when a client has authenticated, for the first time or again (KIP-368).

        Not called on a listener without an authenticator.
        """

    def authentication_failed(self, connection: ConnectionContext, reason: str, reauthentication: bool) -> None:
        """Called when authentication has failed; the connection will be closed."""

    def session_expired(self, connection: ConnectionContext) -> None:
        """Called when the client has not authenticated again in time; the connection will be closed (KIP-368)."""

    def connection_opened(self, connection: ConnectionContext) -> None:
        """Called when a connection has become READY: requests may follow."""

    def connection_closed(self, connection: ConnectionContext, reason: str) -> None:
        """Called when a connection, READY or not, has closed."""

    def completed(self, event: RequestEvent) -> None:
        """Called once when a request has ended; `event.outcome` is how it ended."""

    def completed_many(self, events: Sequence[RequestEvent]) -> None:
        """Called when several requests of one connection have ended together. By default calls `completed` for each."""
        for event in events:
            self.completed(event)
