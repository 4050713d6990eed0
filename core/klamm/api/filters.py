"""Request filters: what may look at, change, answer or refuse a request, and look at or change its response."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from klamm.api.part import ListenerPart
from klamm.dataclasses import dataclass

if TYPE_CHECKING:
    from klamm.api.context import RequestContext, TopicNames


@dataclass(frozen=True, slots=True)
class Answer:
    """A result of `RequestFilter.on_request` that answers the request; `response` is a response message."""

    response: Any


class Release:
    """Ends a `Hold` early. `release` may be called from any thread, before or after the filter has returned."""

    def __init__(self) -> None:
        # Protects both fields: a message goes on once.
        self._lock = threading.Lock()
        self._released = False
        self._go_on: Callable[[], object] | None = None

    def release(self) -> None:
        """Have the message go on now, if it has not yet."""
        with self._lock:
            go_on, self._go_on, self._released = self._go_on, None, True
        if go_on is not None:
            go_on()

    def when_released(self, go_on: Callable[[], object]) -> None:
        """For klamm itself: what `release` calls, once."""
        with self._lock:
            self._go_on = go_on
            released = self._released
        if released:
            self.release()


@dataclass(frozen=True, slots=True)
class Hold:
    """A result of a filter that lets `message`, a request or a response, go on after `delay_ms` milliseconds.

    With `until`, the message goes on at its release, or after `delay_ms` if that is earlier. No thread waits meanwhile;
    further requests of the connection wait, as always, for the answer. A held request continues in the queue of the
    request handlers.
    """

    message: Any
    delay_ms: float
    until: Release | None = None


class Disconnect(Exception):
    """Raised by a filter or a handler: the connection is closed in place of an answer; the text goes to the log.

    `last_bytes` go out before that as they are, as far as the socket takes them at once.
    """

    def __init__(self, reason: str, last_bytes: bytes = b"") -> None:
        super().__init__(reason)
        self.last_bytes = last_bytes


class EncodedResponse:
    """A response whose body is these bytes, right or wrong; size and header are added. Filters before do not see it."""

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
        """The APIs whose messages this filter wants; None for all. Read once, after `open`."""
        return None

    @property
    def blocking(self) -> bool:
        """Return True if a call may wait for a disk, a lock or a peer: the filter's APIs then run on handler threads.
        Read once.
        """
        return False

    def on_request(self, message: Any, context: RequestContext) -> Any:
        """The message that goes on, changed or not, or an `Answer`. Raises KafkaError to refuse the request with it."""
        return message

    def topic_name(self, topic_id: bytes, context: RequestContext, behind: TopicNames) -> str | None:
        """Return the name of a topic id as filters before this one see both; None for an id that is not known.

        `behind` does so for what is behind this filter. A filter that changes names or ids of topics overrides this.
        """
        return behind(topic_id, context)

    def on_response(self, response: Any, context: RequestContext) -> Any:
        """The response that goes on, changed or not. Raises KafkaError to answer with that error instead."""
        return response
