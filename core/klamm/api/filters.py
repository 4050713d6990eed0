"""Request filters, which may inspect, change, answer or refuse requests, and inspect or change their responses."""

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
        # Protects both fields, so that the message continues only once.
        self._lock = threading.Lock()
        self._released = False
        self._go_on: Callable[[], object] | None = None

    def release(self) -> None:
        """Let the message continue now. Does nothing if the message has already continued."""
        with self._lock:
            go_on, self._go_on, self._released = self._go_on, None, True
        if go_on is not None:
            go_on()

    def when_released(self, go_on: Callable[[], object]) -> None:
        """Set the function that `release` calls once. Only klamm itself calls this."""
        with self._lock:
            self._go_on = go_on
            released = self._released
        if released:
            self.release()


@dataclass(frozen=True, slots=True)
class Hold:
    """A result of a filter: `message`, a request or a response, continues after `delay_ms` milliseconds.

    With `until`, the message continues when `until.release` is called, or after `delay_ms` if that is earlier. No
    thread waits meanwhile. Further requests of the connection wait for the answer, as always. A held request continues
    in the queue of the request handlers.
    """

    message: Any
    delay_ms: float
    until: Release | None = None


class Disconnect(Exception):
    """Raised by a filter or a handler to close the connection instead of answering; `reason` goes to the log.

    Before the close, klamm sends `last_bytes` unchanged, as many of them as the socket accepts at once.
    """

    def __init__(self, reason: str, last_bytes: bytes = b"") -> None:
        super().__init__(reason)
        self.last_bytes = last_bytes


class EncodedResponse:
    """A response whose `body` is these bytes, valid or not; klamm adds size and header.

    The filters before this one do not see the response.
    """

    def __init__(self, body: bytes) -> None:
        self.body = body

    def encode(self, version: int) -> bytes:
        """Return the body."""
        return self.body

    def encode_chunks(self, version: int) -> list[bytes]:
        """Return the body."""
        return [self.body]


class RequestFilter(ListenerPart):
    """A part between a listener's clients and its handler set; a listener names its filters in order.

    ```
    request   ──► filter 1 ──► filter 2 ──► handler
    response  ◄── filter 1 ◄── filter 2 ◄──────┘
    ```
    If a filter answers or refuses a request, the response passes only the filters before it. A filter sees only the
    APIs that it names; other APIs cost no call. A filter may change a message in place until it returns the message.
    Processor and handler threads call a filter concurrently. If a filter raises an exception other than KafkaError, the
    exception is logged, the client gets UNKNOWN_SERVER_ERROR, and the handler does not run.

    `on_request` and `on_response` may return or raise three further results from `klamm.filters`: `Hold` delays a
    message, `Disconnect` closes the connection, `EncodedResponse` is a response in bytes.
    """

    @property
    def api_keys(self) -> Collection[int] | None:
        """Return the APIs whose messages this filter sees; None for all. Read once, after `open`."""
        return None

    @property
    def blocking(self) -> bool:
        """Return True if the filter may wait for a disk, a lock or a peer. Read once.

        The requests that the filter sees then run on handler threads.
        """
        return False

    def on_request(self, message: Any, context: RequestContext) -> Any:
        """Return the message for the next filter, changed or not, or an `Answer`.

        Raise KafkaError to refuse the request with that error.
        """
        return message

    def topic_name(self, topic_id: bytes, context: RequestContext, behind: TopicNames) -> str | None:
        """Return the name of a topic id; None if the id is not known.

        `topic_id` and the result are the id and the name that the filters before this one see. `behind(topic_id,
        context)` returns the name of an id as the filters after this one see both. A filter that changes names or ids
        of topics overrides this method.
        """
        return behind(topic_id, context)

    def on_response(self, response: Any, context: RequestContext) -> Any:
        """Return the response for the previous filter, changed or not. Raise KafkaError to answer with that error."""
        return response
