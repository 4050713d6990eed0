"""A listener, connections and requests without sockets and threads. Tests pass them to the methods of parts."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

from klamm.api.api_set import ApiHandler
from klamm.api.context import Address, ConnectionContext, ListenerContext, RequestContext, ServerServices
from klamm.api.filters import RequestFilter
from klamm.api.observer import RequestObserver, RequestOutcome
from klamm.api.pending import LATER, NO_RESPONSE
from klamm.logs.rate_limited import RateLimitedLog
from klamm.requests.api_versions import ApiVersionsAnswerer, with_api_versions
from klamm.requests.ledger import RequestLedger
from klamm.requests.limits import request_limits
from klamm.requests.listener_parts import RequestParts
from klamm.requests.observers import RequestObservers
from klamm.requests.pending import GO_ON, CloseConnection, InvalidRequestError, PendingRequest
from klamm.requests.pipeline import RequestPipeline
from klamm.requests.routes import FilterCalls, Routes
from klamm.runtime.clock import ManualClock
from klamm.runtime.scheduler import Scheduler
from klamm.shared.principal import ANONYMOUS, KafkaPrincipal
from klamm.wire.api_keys import load
from klamm.wire.headers import encode_request_header, response_header_size
from klamm.wire.struct_base import Message

_SIZE_BYTES: Final = 4
_HERE: Final = Address("127.0.0.1", 9092)


class MemoryListener:
    """A listener without a socket.

    `context` is the argument of `open` for parts of a listener, `services` for parts of a server. `clock` is a
    `ManualClock`: `advance_ms` moves it and runs the timers that are due. By default each connection has another
    address.
    """

    def __init__(self, name: str = "memory", services: ServerServices | None = None) -> None:
        self.clock = ManualClock()
        self.services = services or ServerServices(self.clock, Scheduler(self.clock))
        self.context = ListenerContext(name, _HERE, _HERE, services=self.services)
        self.context.answer_api_versions = ApiVersionsAnswerer(with_api_versions([]))
        self.services.listeners[name] = self.context
        self._ports = itertools.count(50_000)

    def connection(
        self, principal: KafkaPrincipal = ANONYMOUS, address: Address | None = None, client_id: str | None = "memory"
    ) -> ConnectionContext:
        """Return a new connection of a client that has authenticated as `principal`."""
        peer = address or Address("127.0.0.1", next(self._ports))
        name = f"{self.context.bound}-{peer}-0-0"
        made = ConnectionContext(name, self.context, self.context.bound, peer, principal)
        made.client_id = client_id
        return made

    def request(
        self, message: Message, version: int, connection: ConnectionContext | None = None, client_id: str | None = None
    ) -> RequestContext:
        """Return the context of a request. Answers with `respond` are added to `context.responder.responses`."""
        connection = connection or self.connection()
        size_bytes = len(message.encode(version)) + 16
        client_id = connection.client_id if client_id is None else client_id
        return RequestContext(connection, MemoryResponder(), message.API_KEY, version, 1, client_id, size_bytes)

    def advance_ms(self, ms: float) -> None:
        """Move the time forward, and run the timers that are due at its end."""
        self.clock.advance_ms(ms)
        self.services.scheduler.run_due()


class MemoryResponder:
    """A responder that keeps the answers to requests, and the reasons why connections are closed."""

    def __init__(self) -> None:
        self.responses: list[Any] = []
        self.close_reasons: list[str] = []

    def respond(self, context: RequestContext, response: Any) -> None:
        """Keep an answer. Raises RuntimeError for a second answer, as the server does."""
        if self.responses or self.close_reasons:
            raise RuntimeError(f"correlation_id={context.correlation_id}: answered twice")
        self.responses.append(response)

    def close_connection(self, context: RequestContext, reason: str) -> None:
        """Keep the reason of a close. Has no effect after an answer."""
        if not self.responses:
            self.close_reasons.append(reason)


class MemoryChannel:
    """One connection whose requests pass filters and handlers as bytes, without a socket.

    All handlers run on the calling thread, even blocking ones. `call` returns the decoded response, or None for a
    request that gets no answer. `call` raises ConnectionError if a server would close the connection, and LookupError
    if the request is answered later; `answer` then returns the answer. `listener` and `connection` are the objects that
    were passed, or new ones.
    """

    def __init__(
        self,
        handlers: Iterable[ApiHandler],
        *,
        listener: MemoryListener | None = None,
        filters: Sequence[RequestFilter] = (),
        observers: Sequence[RequestObserver] = (),
        connection: ConnectionContext | None = None,
    ) -> None:
        self.listener = listener or MemoryListener()
        self.connection = connection or self.listener.connection()
        self._queue: deque[PendingRequest] = deque()
        self._delivered: deque[PendingRequest] = deque()
        self._ids = itertools.count(1)
        parts = _request_parts(self.listener, handlers, filters, observers)
        self._ledger = RequestLedger(parts.clock, self.listener.context, None, None, parts.observers)
        self._pipeline = RequestPipeline(parts, self._ledger, self._queue.append, self._delivered.append)

    def call(self, request: Message, version: int) -> Any:
        """Send a request and return its response; see the class."""
        header = encode_request_header(request.API_KEY, version, next(self._ids), self.connection.client_id)
        return self.send_frame(header + request.encode(version))

    def send_frame(self, frame: bytes) -> Any:
        """Send a frame, valid or not, without its size field; otherwise like `call`."""
        now_ns = self.listener.services.clock.monotonic_ns()
        try:
            request, result = self._pipeline.submit(frame, None, self.connection, now_ns)
        except InvalidRequestError as error:
            raise ConnectionError(f"the connection is closed: {error}") from error
        return self.answer() if result is LATER else self._decoded(request, result)

    def answer(self) -> Any:
        """Return the answer to the next request that is answered later. Raises LookupError if it has no answer yet."""
        while True:
            while self._queue:
                self._pipeline.run_queued(self._queue.popleft())
            if not self._delivered:
                raise LookupError("the request is not answered yet")
            request = self._delivered.popleft()
            if request.result is not GO_ON:
                return self._decoded(request, request.result)
            self._pipeline.go_on(request)

    def _decoded(self, request: PendingRequest, result: Any) -> Any:
        if isinstance(result, CloseConnection):
            self._ledger.end([request], RequestOutcome.FAILED)
            raise ConnectionError(f"the connection is closed: {result.reason}")
        if result is NO_RESPONSE:
            self._ledger.end([request], RequestOutcome.NO_ANSWER)
            return None
        frame = b"".join(_content(chunk) for chunk in result)
        self._ledger.end([request], RequestOutcome.ANSWERED)
        key, version = request.context.api_key, request.context.api_version
        module = load(key)
        response = vars(module)[f"{module.NAME}Response"]
        return response.decode(version, frame[_SIZE_BYTES:], response_header_size(key, version))


def _request_parts(
    listener: MemoryListener,
    handlers: Iterable[ApiHandler],
    filters: Sequence[RequestFilter],
    observers: Sequence[RequestObserver],
) -> RequestParts:
    context, limits = listener.context, request_limits()
    context.max_answer_bytes = limits.max_answer_bytes
    notified = RequestObservers(observers, context.failures) if observers else None
    starts = notified.start_calls(lambda observer: contextlib.nullcontext()) if notified is not None else ()
    calls = [FilterCalls.of(one) for one in filters]
    log = RateLimitedLog(logging.getLogger("klamm.requests"), context.services.scheduler.schedule)
    routes = Routes(with_api_versions(handlers), "hybrid", calls, limits, starts)
    return RequestParts(context, routes, context.services.clock, notified, None, log, limits)


def _content(chunk: Any) -> bytes:
    """Return the bytes of a chunk. A region of a file is read and closed."""
    if isinstance(chunk, (bytes, bytearray, memoryview)):
        return bytes(chunk)
    content: bytes = chunk.read(chunk.position, chunk.size_bytes)
    chunk.close()
    return content
