"""From a frame to a response: headers, routes, and the answers to everything that goes wrong.

One `RequestDispatcher` per listener, made when the listener is built, and a copy of it for each processor, which keeps
answers of its own; it holds no state of a request, so processors and handlers use it at once.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any, Final

from klamm.api.api_set import LATER, NO_RESPONSE, ApiHandler, Pending
from klamm.api.context import ConnectionContext, RequestContext, Responder
from klamm.api.throttles import Throttle
from klamm.api.transport import Buffer
from klamm.logs.escaping import in_one_line
from klamm.logs.rate_limited import RateLimitedLog
from klamm.metrics.requests import AnyVersion, RequestCount, RequestRecorder
from klamm.network.send import Chunk, close_chunks, flatten_small, total_bytes
from klamm.requests.observers import RequestObservers
from klamm.requests.response_cache import ResponseCache
from klamm.runtime.clock import Clock
from klamm.runtime.rates import MAX_THROTTLE_TIME_MS
from klamm.server.api_versions import unsupported_version_response
from klamm.wire.api_keys import ApiKey, spec_of
from klamm.wire.error_counts import error_counter, has_only_own_code
from klamm.wire.error_responses import error_response
from klamm.wire.errors import ErrorCode, KafkaError
from klamm.wire.headers import decode_request_header
from klamm.wire.primitives import WireError
from klamm.wire.response_errors import first_error, has_errors_inside

log = logging.getLogger("klamm.requests")

_HEADER_V0: Final = Struct(">ii")
_HEADER_V1: Final = Struct(">iiB")
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
_TELLS_SOFTWARE: Final = 3
"""The first version of ApiVersions that says who the client is (KIP-511)."""


class InvalidRequestError(Exception):
    """What cannot be answered: Kafka closes the connection, and so does klamm. The message is the log line's reason."""


class Route:
    """One API of a listener, with everything a request needs looked up."""

    __slots__ = (
        "count_errors",
        "counts",
        "decode",
        "flexible_from",
        "handle",
        "has_errors_inside",
        "has_records",
        "inline_max_bytes",
        "max_version",
        "min_version",
        "name",
        "only_own_code",
        "unchanged_while",
    )

    def __init__(self, handler: ApiHandler, mode: str) -> None:
        spec = spec_of(handler.api_key)
        self.name = handler.name
        self.decode: Callable[..., Any] = handler.module.__dict__[f"{handler.name}Request"].decode
        self.handle = handler.handle
        self.unchanged_while = handler.unchanged_while
        self.min_version = handler.min_version
        self.max_version = handler.max_version
        response_class = handler.module.__dict__[f"{handler.name}Response"]
        self.has_records = hasattr(response_class, "encode_chunks")
        self.count_errors = error_counter(response_class)
        self.only_own_code = has_only_own_code(response_class)
        self.counts: Sequence[RequestCount] = ()
        self.has_errors_inside = has_errors_inside(response_class)
        # ApiVersions is answered with header v0 at every version: its asker does not know yet what the server speaks.
        self.flexible_from = 1 << 15 if handler.api_key == _API_VERSIONS else spec.flexible_from
        if mode == "pool":
            self.inline_max_bytes = -1
        elif mode == "inline" or not handler.blocking:
            self.inline_max_bytes = 1 << 31
        else:
            self.inline_max_bytes = handler.inline_max_bytes or -1


class RequestDispatcher:
    """See the module. `mode` is `hybrid`, `inline` or `pool`; `authorized` says that answers depend on who asks."""

    def __init__(
        self,
        handlers: Iterable[ApiHandler],
        *,
        mode: str,
        clock: Clock,
        throttles: tuple[Throttle, ...] = (),
        observation: RequestObservers | None = None,
        authorized: bool = False,
        failures: RateLimitedLog,
    ) -> None:
        self._failures = failures
        self._recorded = False
        self._unsupported: Route | None = None
        self._routes: list[Route | None] = [None] * 128
        self._monotonic_ns = clock.monotonic_ns
        self._observed = observation is not None
        self._refusals = observation.refusals if observation is not None else ()
        # Whoever observes, charges or authorizes requests must see each of them.
        observed = observation is not None and observation.repeats_after is None
        self.kept = ResponseCache()
        for handler in handlers:
            route = self._routes[handler.api_key] = Route(handler, mode)
            if observed or authorized:
                route.unchanged_while = None
        self.charge_to(throttles)

    def charge_to(self, throttles: tuple[Throttle, ...]) -> None:
        """Charge requests to these from now on; no answers are kept while there are any. From any thread."""
        self._throttles = throttles
        self.charged = bool(throttles)
        self.timed = self._observed or self.charged
        self.kept.allow(not throttles)

    def for_processor(self, recorder: RequestRecorder | None) -> RequestDispatcher:
        """The same, for one processor, whose requests are recorded there."""
        dispatcher = copy.copy(self)
        dispatcher.kept = ResponseCache()
        dispatcher.charge_to(self._throttles)
        if recorder is not None:
            dispatcher._recorded = True
            dispatcher._routes = [copy.copy(route) for route in self._routes]
            for api_key, api in recorder.apis.items():
                route = dispatcher._routes[api_key]
                assert route is not None
                route.counts = api.by_version
                if api_key == _API_VERSIONS:
                    dispatcher._unsupported = copy.copy(route)
                    dispatcher._unsupported.counts = AnyVersion(api.unknown)
        return dispatcher

    @property
    def served(self) -> list[tuple[int, range]]:
        """API keys and versions."""
        return [
            (api_key, range(route.min_version, route.max_version + 1))
            for api_key, route in enumerate(self._routes)
            if route is not None
        ]

    def parse(self, frame: Buffer, connection: ConnectionContext, responder: Responder) -> RequestContext:
        """The request in a frame, with its route. Raises InvalidRequestError."""
        try:
            api_key, api_version, correlation_id, client_id, body_offset = decode_request_header(frame)
        except WireError as error:
            raise InvalidRequestError(f"malformed request header: {error}") from error
        request = RequestContext(connection, responder, api_key, api_version, correlation_id, client_id, len(frame))
        route = self._routes[api_key] if 0 <= api_key < 128 else None
        if route is None:
            raise InvalidRequestError(f"API key {api_key} is not served by this listener")
        if not route.min_version <= api_version <= route.max_version:
            if api_key != _API_VERSIONS:
                raise InvalidRequestError(
                    f"{route.name} version {api_version} is not served, only {route.min_version} to {route.max_version}"
                )
            frame = b""
            route = self._unsupported or route
        request.handler = route
        request.frame = frame
        request.body_offset = body_offset
        return request

    def execute(self, request: RequestContext) -> list[Chunk] | Pending:
        """Run the handler: the whole frame to send, LATER or NO_RESPONSE.

        Raises InvalidRequestError for a body that cannot be parsed and for a failure that has no answer.
        """
        route: Route = request.handler
        if request.received_ns:
            request.handler_start_ns = self._monotonic_ns()
        frame = request.frame
        if not frame:
            return self._encode_unsupported(request, route)
        if route.unchanged_while is not None:
            return self._execute_unchanged(request, route, route.unchanged_while)
        return self._handle(request, route, frame)

    def _execute_unchanged(
        self, request: RequestContext, route: Route, unchanged_while: Callable[[], object]
    ) -> list[Chunk] | Pending:
        token = unchanged_while()
        frame = request.frame
        connection = request.connection
        known_name = connection.client_software_name
        chunks = self._handle(request, route, frame)
        software: tuple[str, str] | None = None
        if request.api_key == _API_VERSIONS:
            # Most clients ask once: only who asks again is worth an entry.
            if request.api_version < _TELLS_SOFTWARE or connection.client_software_name is not known_name:
                return chunks
            software = connection.client_software_name, connection.client_software_version
        # One with errors is not kept: it could not be counted by them.
        # One that was throttled tells so, and others are not.
        good = not (request.failed or request.errors or request.error_code or request.throttle_time_ms)
        if good and isinstance(chunks, list) and len(chunks) == 1 and isinstance(chunks[0], bytes):
            self.kept.keep(frame, unchanged_while, token, chunks[0], request, software)
        return chunks

    def _handle(self, request: RequestContext, route: Route, frame: Buffer) -> list[Chunk] | Pending:
        try:
            message = route.decode(request.api_version, frame, request.body_offset)
        except WireError as error:
            raise InvalidRequestError(f"malformed {route.name} v{request.api_version} request: {error}") from error
        # The frame lives on only in the views that the message holds.
        request.frame = message
        try:
            if self._refusals:
                self._maybe_refuse(request)
            response = route.handle(message, request)
        except Exception as error:
            response = error
        if request.received_ns:
            request.local_end_ns = request.completed_ns = self._monotonic_ns()
        return LATER if response is LATER else self._finish(request, response)

    def _maybe_refuse(self, request: RequestContext) -> None:
        if request.api_key == _API_VERSIONS:
            return
        for refuse in self._refusals:
            error = refuse(request)
            if error is not None:
                request.refused = True
                raise error

    def complete(self, request: RequestContext, response: Any) -> list[Chunk] | Pending:
        """Turn what a handler answered later into a frame, or NO_RESPONSE."""
        if request.received_ns:
            request.completed_ns = self._monotonic_ns()
        return self._finish(request, response)

    def _finish(self, request: RequestContext, response: Any) -> list[Chunk] | Pending:
        route: Route = request.handler
        if isinstance(response, Exception):
            response = self._error_response(request, route, response)
        try:
            if self.timed:
                request.response = response
                # What is recorded and has no other code is left to `_encode`, but throttles may look before that.
                if response is not NO_RESPONSE and (self.charged or not self._recorded or not route.only_own_code):
                    request.error_code = getattr(response, "error_code", 0)
                    if route.has_errors_inside and not request.error_code:
                        request.error_code = first_error(response)
                if self.charged:
                    response = self._charge(request, response)
            return NO_RESPONSE if response is NO_RESPONSE else self._encode(request, route, response)
        except Exception as error:
            request.error_code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
            return self._encode(request, route, self._error_response(request, route, error))

    def _error_response(self, request: RequestContext, route: Route, error: Exception) -> Any:
        if isinstance(error, KafkaError):
            code, message = error.error_code, error.message
        else:
            code, message = ErrorCode.UNKNOWN_SERVER_ERROR, None
            self._failures.log(
                # Equal failures are one kind: the same API, the same exception.
                (route.name, type(error)),
                logging.ERROR,
                "listener=%s connection_id=%s principal=%s api=%s version=%d correlation_id=%d: handler failed",
                request.listener.name,
                request.connection.connection_id,
                in_one_line(str(request.principal)),
                route.name,
                request.api_version,
                request.correlation_id,
                error=error,
            )
        request.failed = True
        response = error_response(request.frame, request.api_version, code, message)
        if response is None:
            # Kafka's way to tell a producer with acks=0 that something is wrong.
            raise InvalidRequestError(f"{route.name} without a response failed: {code.name}")
        return response

    def _charge(self, request: RequestContext, response: Any) -> Any:
        seconds = 0.0
        if response is not NO_RESPONSE:
            seconds = (request.local_end_ns - request.handler_start_ns + request.network_ns) / 1e9
        for throttle in self._throttles:
            try:
                throttle_time_ms = throttle.charge(request, request.size_bytes, seconds)
            except Exception:
                log.exception("listener=%s: throttle %r failed", request.listener.name, throttle)
                continue
            if throttle_time_ms > request.throttle_time_ms:
                request.throttle_time_ms = min(throttle_time_ms, MAX_THROTTLE_TIME_MS)
        if request.throttle_time_ms and hasattr(response, "throttle_time_ms"):
            # The handler may give the same object to others too.
            response = copy.copy(response)
            response.throttle_time_ms = request.throttle_time_ms
        return response

    def _encode(self, request: RequestContext, route: Route, response: Any) -> list[Chunk]:
        version = request.api_version
        if self._recorded:
            try:
                if not route.only_own_code:
                    request.errors = route.count_errors(response)
                elif response.error_code:
                    request.error_code = response.error_code
                    request.errors = {response.error_code: 1}
            except AttributeError:
                # Whatever can encode itself is a response.
                request.errors = None
        if not route.has_records:
            body = response.encode(version)
            size_bytes = request.response_bytes = len(body)
            if version >= route.flexible_from:
                return [_HEADER_V1.pack(size_bytes + 5, request.correlation_id, 0) + body]
            return [_HEADER_V0.pack(size_bytes + 4, request.correlation_id) + body]
        chunks: list[Chunk] = response.encode_chunks(version)
        size_bytes = total_bytes(chunks)
        request.response_bytes = size_bytes
        if version >= route.flexible_from:
            head = _HEADER_V1.pack(size_bytes + 5, request.correlation_id, 0)
        else:
            head = _HEADER_V0.pack(size_bytes + 4, request.correlation_id)
        try:
            chunks = flatten_small(chunks)
        except Exception:
            close_chunks(chunks)
            raise
        if all(type(chunk) is bytes for chunk in chunks):
            return [head + b"".join(chunks)]  # type: ignore[arg-type]
        return [head, *chunks]

    def _encode_unsupported(self, request: RequestContext, route: Route) -> list[Chunk]:
        request.local_end_ns = request.completed_ns = request.handler_start_ns
        request.error_code = int(ErrorCode.UNSUPPORTED_VERSION)
        body = unsupported_version_response(route.min_version, route.max_version).encode(0)
        request.response_bytes = len(body)
        return [_HEADER_V0.pack(len(body) + 4, request.correlation_id) + body]
