"""Request filters: parts that may inspect, change, answer or refuse a request, and inspect or change its response."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from klamm.api.context import RequestContext, TopicNames
from klamm.api.part import ListenerPart


@dataclass(frozen=True, slots=True)
class Answer:
    """A result of `RequestFilter.on_request` that answers the request; `response` is a response message."""

    response: Any


class Release:
    """Ends a `Hold` early. `release` may be called from any thread, before or after the filter has returned."""

    def __init__(self) -> None:
        # Protects both fields: a message continues only once.
        self._lock = threading.Lock()
        self._released = False
        self._go_on: Callable[[], object] | None = None

    def release(self) -> None:
        """Let the message continue now, unless it already has."""
        with self._lock:
            go_on, self._go_on, self._released = self._go_on, None, True
        if go_on is not None:
            go_on()

    def when_released(self, go_on: Callable[[], object]) -> None:
        """Set the function that `release` calls once. For klamm itself."""
        with self._lock:
            self._go_on = go_on
            released = self._released
        if released:
            self.release()


@dataclass(frozen=True, slots=True)
class Hold:
    """Returned by a filter to let `message`, a request or a response, continue after `delay_ms` milliseconds.

    With `until`, the message continues at its release, or after `delay_ms` if that is earlier. No thread waits
    meanwhile; further requests of the connection wait for the answer, as always. A held request continues in the queue
    of the request handlers.
    """

    message: Any
    delay_ms: float
    until: Release | None = None


class Disconnect(Exception):
    """Raised by a filter or a handler: closes the connection instead of answering; the text goes to the log.

    `last_bytes` are sent unchanged before the close, as far as the socket accepts them at once.
    """

    def __init__(self, reason: str, last_bytes: bytes = b"") -> None:
        super().__init__(reason)
        self.last_bytes = last_bytes


class EncodedResponse:
    """A response with these bytes as its body, valid or not; klamm adds size and header. Earlier filters do not see
    it.
    """

    def __init__(self, body: bytes) -> None:
        self.body = body

    def encode(self, version: int) -> bytes:
        """The body."""
        return self.body

    def encode_chunks(self, version: int) -> list[bytes]:
        """The body."""
        return [self.body]


class RequestFilter(ListenerPart):
    """Stands between a listener's clients and its handler set; a listener names its filters in order.

    ```
    request   ──► filter 1 ──► filter 2 ──► handler
    response  ◄── filter 1 ◄── filter 2 ◄──────┘
    ```
    A request that a filter answers or refuses goes back through the filters before it only. A filter sees only the
    APIs that it names: all others cost it nothing. Messages are the filter's own until it returns them: it may change
    them in place, and the next filter does so too. Calls come from processor and handler threads at once. A filter
    fails closed: one that raises anything but KafkaError is logged, the client gets UNKNOWN_SERVER_ERROR, and the
    handler does not run.

    `klamm.filters` has what both methods may return or raise beside messages and KafkaError: `Hold` has a message go on
    later, `Disconnect` closes the connection, `EncodedResponse` is a response in bytes.
    """

    @property
    def api_keys(self) -> Collection[int] | None:
        """Return the APIs whose messages this filter wants; None for all. Read once, after `open`."""
        return None

    @property
    def blocking(self) -> bool:
        """Return True if a call may wait for a disk, a lock or a peer: the filter's APIs then run on handler threads.
        Read once.
        """
        return False

    def on_request(self, message: Any, context: RequestContext) -> Any:
        """Return the message that goes on, changed or not, or an `Answer`. Raise KafkaError to refuse the request with
        that error.
        """
        return message

    def topic_name(self, topic_id: bytes, context: RequestContext, behind: TopicNames) -> str | None:
        """Return the name of a topic id, both as filters before this one see them; None if the id is not known.

        `behind` does the same for the position behind this filter. A filter that changes names or ids of topics
        overrides this.
        """
        return behind(topic_id, context)

    def on_response(self, response: Any, context: RequestContext) -> Any:
        """Return the response that goes on, changed or not. Raise KafkaError to answer with that error instead."""
        return response
