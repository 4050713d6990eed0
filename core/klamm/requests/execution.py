"""The execution of one request: decode, filters, the handler, filters again, quota charges, encode.

The functions share no state except the request, so processor and handler threads call them concurrently.

mypyc compiles this module: see "Compiled" in docs/design.md before a change.
"""

from __future__ import annotations

import copy
import logging
from struct import Struct
from typing import Any, Final

from klamm.api.filters import Answer, Disconnect, EncodedResponse, Hold
from klamm.api.forwarding import OpaqueResponse
from klamm.api.observer import RequestOutcome
from klamm.api.part_failures import WrongTypeError, name_of, unfit
from klamm.api.pending import LATER, NO_RESPONSE, AnswerTooLargeError, NotInlineError, Pending
from klamm.logs.escaping import clipped, escape_control_characters
from klamm.requests.api_versions import unsupported_version_response
from klamm.requests.listener_parts import RequestParts
from klamm.requests.pending import InvalidRequestError, PendingRequest
from klamm.requests.routes import Route
from klamm.runtime.rates import MAX_THROTTLE_TIME_MS
from klamm.wire.chunks import Chunk, close_chunks, flatten_small, total_bytes
from klamm.wire.error_responses import error_response
from klamm.wire.errors import ErrorCode, KafkaError
from klamm.wire.primitives import UNCOUNTED_BYTES, TooManyElementsError, WireError, decode_limited
from klamm.wire.response_errors import first_error
from klamm.wire.struct_base import WireStruct, copy_message

log = logging.getLogger("klamm.requests")

_HELD: Final = Answer(LATER)
_HEADER_V0: Final = Struct(">ii")
_HEADER_V1: Final = Struct(">iiB")


def execute(request: PendingRequest, parts: RequestParts) -> list[Chunk] | Pending:
    """Run the handler and return the whole frame to send, LATER or NO_RESPONSE.

    Raises InvalidRequestError for a body that cannot be parsed and for a failure that cannot be answered. Raises
    NotInlineError if the request is too much work for the processor's thread; the caller then moves it to a handler
    thread, which calls this function again.
    """
    route, context = request.route, request.context
    timed = request.received_ns
    if timed:
        request.handler_start_ns = parts.clock.monotonic_ns()
    message = request.message
    if message is None:
        try:
            if len(request.frame) <= UNCOUNTED_BYTES or route.opaque:
                message = route.decode(context.api_version, request.frame, request.body_offset)
            else:
                message = _decode_large(request, route)
        except WireError as malformed:
            return _refuse(request, parts, malformed)
        if not route.keeps_frame:
            # From now on only the views in the message keep the frame in memory.
            request.frame = b""
        request.message = message
    passed = len(route.on_request)
    response: Any
    try:
        if passed:
            message, answer, passed = _filter_request(request, route, message)
            response = route.handle(message, context) if answer is None else answer.response
        else:
            response = route.handle(message, context)
    except NotInlineError:
        request.next_filter = passed
        raise
    except Exception as error:
        response = error
    if timed:
        request.local_end_ns = parts.clock.monotonic_ns()
    if request.large:
        request.response = response
    if isinstance(response, Pending) and response is LATER:
        return response
    if not timed and not passed and not isinstance(response, (Exception, Pending)):
        # The short path of most requests: a request that is not timed has no observers and no throttles.
        try:
            return _encode(request, route, response)
        except Exception as error:
            response = _explained(route, response, error)
    return finish(request, parts, response, passed)


def _decode_large(request: PendingRequest, route: Route) -> Any:
    limit = route.max_elements if request.large else route.inline_max_elements
    try:
        return decode_limited(route.decode, request.context.api_version, request.frame, request.body_offset, limit)
    except TooManyElementsError:
        if limit < route.max_elements:
            raise NotInlineError(large=True) from None
        raise


def _refuse(request: PendingRequest, parts: RequestParts, error: WireError) -> list[Chunk] | Pending:
    """Return the answer to a request with too many elements.

    Raises InvalidRequestError for any other invalid body, and if the API's answer cannot carry the error.
    """
    route, context = request.route, request.context
    request.outcome = RequestOutcome.FAILED
    request.error_code = int(ErrorCode.INVALID_REQUEST)
    if not isinstance(error, TooManyElementsError):
        raise InvalidRequestError(f"malformed {route.name} v{context.api_version} request: {error}") from error
    parts.limits.counts.count("request_elements")
    reason = (
        f"{route.name} v{context.api_version} request has more than {route.max_elements} elements "
        "(request_max_elements)"
    )
    # The answer has no elements, which could carry errors. So an answer is possible only if it has a top-level error.
    answer = error_response(route.request_class(), context.api_version, ErrorCode.INVALID_REQUEST, reason)
    if answer is None or not _carries_error(route, context.api_version, answer):
        raise InvalidRequestError(reason)
    parts.failures.log(
        (route.name, TooManyElementsError),
        logging.WARNING,
        "listener=%s connection_id=%s principal=%s: refused: %s",
        context.listener.name,
        context.connection.connection_id,
        escape_control_characters(str(context.principal)),
        reason,
    )
    request.frame = b""
    return finish(request, parts, answer, 0)


def _carries_error(route: Route, version: int, answer: Any) -> bool:
    """Return True if the client can see the error: early versions of some answers have no field for it."""
    try:
        read = route.response_class.decode(version, answer.encode(version))
    except WireError:
        return False
    return bool(getattr(read, "error_code", 0))


def _filter_request(request: PendingRequest, route: Route, message: Any) -> tuple[Any, Answer | None, int]:
    """Return the message for the handler, a filter's answer or None, and the number of filters for the response."""
    for number, on_request in enumerate(route.on_request):
        if number < request.next_filter:
            continue
        held = None
        try:
            message = on_request(message, request.context)
            if isinstance(message, Hold):
                held, message = message, message.message
            if type(message) is not route.request_class:
                _check_filtered(route, message)
        except Exception as error:
            request.outcome = RequestOutcome.REFUSED
            request.failed_step = on_request
            return None, Answer(error), number
        if isinstance(message, Answer):
            return None, message, number
        request.message = message
        if held is not None:
            request.next_filter = number + 1
            request.owner.hold_request(request, held)
            return None, _HELD, number
    return message, None, len(route.on_request)


def _check_filtered(route: Route, message: Any) -> None:
    """Raise WrongTypeError for a result of `on_request` that has a wrong type."""
    if isinstance(message, Answer):
        if message.response is None or message.response is LATER:
            raise unfit(message.response, f"an Answer with a {route.name}Response")
    elif not isinstance(message, route.request_class):
        raise unfit(message, f"a {route.name}Request", "an Answer")


def finish(
    request: PendingRequest, parts: RequestParts, response: Any, passed: int | None = None
) -> list[Chunk] | Pending:
    """Turn the answer of a handler or a filter into a frame, NO_RESPONSE or LATER.

    The response passes the first `passed` filters in reverse order, or all filters if `passed` is None. The result is
    LATER if a filter holds the response. An exception becomes an error response of the request's API and version.
    Raises InvalidRequestError if there is no such response.
    """
    route, context = request.route, request.context
    if request.received_ns:
        request.completed_ns = parts.clock.monotonic_ns()
    if isinstance(response, Exception):
        response = _error_response(request, parts, response)
    try:
        if route.on_response:
            response = _filter_response(request, parts, response, passed)
            if isinstance(response, Pending) and response is LATER:
                return response
        throttles = context.listener.throttles
        observed = parts.observers is not None
        seen = response.message if type(response) is OpaqueResponse else response
        if observed:
            named = seen if request.named is None else request.named
            request.response = None if response is NO_RESPONSE else named
        if (observed or throttles) and response is not NO_RESPONSE:
            request.error_code = getattr(seen, "error_code", 0)
            if route.has_errors_inside and not request.error_code:
                request.error_code = first_error(seen)
        if throttles:
            response = _charge(request, response)
        return NO_RESPONSE if response is NO_RESPONSE else _encode(request, route, response)
    except Exception as error:
        if isinstance(error, InvalidRequestError):
            raise
        too_large = isinstance(error, AnswerTooLargeError)
        request.error_code = int(ErrorCode.INVALID_REQUEST if too_large else ErrorCode.UNKNOWN_SERVER_ERROR)
        return _encode(request, route, _error_response(request, parts, _explained(route, response, error)))


def _explained(route: Route, response: Any, error: Exception) -> Exception:
    """Return `error`, raised for this response; or a WrongTypeError if the response is not of the API's type."""
    if isinstance(response, route.response_class) or isinstance(error, (WrongTypeError, AnswerTooLargeError)):
        return error
    return unfit(response, f"a {route.name}Response")


def _filter_response(request: PendingRequest, parts: RequestParts, response: Any, passed: int | None) -> Any:
    on_response = request.route.on_response
    # `passed` may exceed the number of filters, because `on_request` ends with calls for the authorizer and observers.
    count = len(on_response)
    # A handler may return the same object for several requests. So the response is copied before the first filter that
    # may change it.
    own = None
    for number in reversed(range(count if passed is None else min(passed, count))):
        if response is NO_RESPONSE or isinstance(response, EncodedResponse):
            return response
        if number == request.route.renamed_by and parts.observers is not None:
            # Observers get the response as it is now, with the names that the handler knows.
            request.named, own = response, None
        step = on_response[number]
        if step is None:
            continue
        if response is not own:
            response = own = copy_message(response)
        try:
            response = step(response, request.context)
            held = response if isinstance(response, Hold) else None
            if held is not None:
                response = held.message
            if response is None:
                raise unfit(response, f"a {request.route.name}Response")
        except Exception as error:
            request.failed_step = step
            response = _error_response(request, parts, error)
            if number <= request.route.renamed_by:
                response = _renamed(request, response)
        else:
            if held is not None:
                request.response, request.next_filter = response, number
                request.owner.hold_response(request, held)
                return LATER
    return response


def _renamed(request: PendingRequest, response: Any) -> Any:
    """Return an error response with the names that the client knows; `response` has the names that the handler knows.

    Raises InvalidRequestError if the names cannot be rewritten, so that the client never sees other names.
    """
    rename = request.route.on_response[request.route.renamed_by]
    try:
        return response if rename is None else rename(response, request.context)
    except Exception as error:
        raise InvalidRequestError(f"the names in an error response cannot be rewritten: {error!r}") from error


def _error_response(request: PendingRequest, parts: RequestParts, error: Exception) -> Any:
    route, context = request.route, request.context
    if isinstance(error, Disconnect):
        request.failed = True
        raise InvalidRequestError(str(error), error.last_bytes)
    if isinstance(error, KafkaError):
        code, message = error.error_code, error.message
    elif isinstance(error, AnswerTooLargeError):
        parts.limits.counts.count("response_bytes")
        code, message = ErrorCode.INVALID_REQUEST, str(error)
    else:
        code, message = ErrorCode.UNKNOWN_SERVER_ERROR, None
        if request.outcome is None:
            request.outcome = RequestOutcome.FAILED
        parts.failures.log(
            # Failures with the same API and exception count as equal, and share a line.
            (route.name, type(error)),
            logging.ERROR,
            "listener=%s connection_id=%s principal=%s api=%s version=%d correlation_id=%d: %s",
            context.listener.name,
            context.connection.connection_id,
            clipped(escape_control_characters(str(context.principal))),
            route.name,
            context.api_version,
            context.correlation_id,
            _what_failed(request, parts),
            error=error,
        )
    request.failed = True
    # The traceback's frames refer to the exception and to the request's messages. Only the garbage collector would find
    # this cycle.
    error.__traceback__ = None
    response = error_response(request.message, context.api_version, code, message)
    if response is None:
        # The connection closes, as in Kafka, because a producer with acks=0 would not notice the error otherwise.
        request.error_code = int(code)
        raise InvalidRequestError(f"{route.name} without a response failed: {code.name}")
    return response


def _what_failed(request: PendingRequest, parts: RequestParts) -> str:
    step = request.failed_step
    if step is not None:
        return f"filter failed in {step.__name__}: {name_of(getattr(step, '__self__', step))}"
    handle = getattr(request.route.handle, "func", request.route.handle)
    name = f"{getattr(handle, '__module__', '')}.{getattr(handle, '__qualname__', handle)}"
    return f"handler failed: {name} of the {parts.api_set}" if parts.api_set else f"handler failed: {name}"


def _charge(request: PendingRequest, response: Any) -> Any:
    context = request.context
    seconds = 0.0
    if response is not NO_RESPONSE and request.handler_start_ns:
        seconds = (request.local_end_ns - request.handler_start_ns + request.network_ns) / 1e9
    for throttle in context.listener.throttles:
        try:
            throttle_time_ms = throttle.charge(context, context.size_bytes, seconds)
        except Exception as error:
            context.listener.failures.log(log, throttle, "charge", error)
            continue
        if throttle_time_ms > context.throttle_time_ms:
            context.throttle_time_ms = min(throttle_time_ms, MAX_THROTTLE_TIME_MS)
    if not context.throttle_time_ms:
        return response
    if type(response) is OpaqueResponse:
        return response.throttled(context.api_key, context.api_version, context.throttle_time_ms)
    if getattr(response, "throttle_time_ms", context.throttle_time_ms) < context.throttle_time_ms:
        # A copy, because the handler may return the same object for several requests.
        response = copy.copy(response)
        response.throttle_time_ms = context.throttle_time_ms
    return response


def _check_response(route: Route, response: Any) -> None:
    """Raise WrongTypeError for a message of another API, and for an object that has no method `encode`."""
    if isinstance(response, WireStruct) and not isinstance(response, route.response_class):
        raise unfit(response, f"a {route.name}Response")


def _encode(request: PendingRequest, route: Route, response: Any) -> list[Chunk]:
    context = request.context
    version, correlation_id = context.api_version, context.correlation_id
    if route.opaque and type(response) is OpaqueResponse and response.stream is None:
        # The bytes are unchanged, so errors need not be counted again and the body need not be copied.
        body = response.body
        size_bytes = request.response_bytes = len(body)
        if version >= route.flexible_from:
            return [b"".join((_HEADER_V1.pack(size_bytes + 5, correlation_id, 0), body))]
        return [b"".join((_HEADER_V0.pack(size_bytes + 4, correlation_id), body))]
    counted = response
    if type(response) is not route.response_class:
        _check_response(route, response)
        if type(response) is OpaqueResponse:
            counted = response.message
            if response.stream is not None:
                request.streamed = counted
    try:
        if not route.only_own_code:
            request.errors = route.count_errors(counted)
        elif counted.error_code:
            request.error_code = counted.error_code
            request.errors = {counted.error_code: 1}
    except AttributeError:
        # Any object with a method `encode` is a response.
        request.errors = None
    if not route.has_records:
        body = response.encode(version)
        size_bytes = request.response_bytes = len(body)
        if size_bytes > route.max_answer_bytes and not request.failed:
            raise AnswerTooLargeError(route.max_answer_bytes)
        if version >= route.flexible_from:
            return [_HEADER_V1.pack(size_bytes + 5, correlation_id, 0) + body]
        return [_HEADER_V0.pack(size_bytes + 4, correlation_id) + body]
    chunks: list[Chunk] = response.encode_chunks(version)
    size_bytes = total_bytes(chunks)
    request.response_bytes = size_bytes
    if version >= route.flexible_from:
        head = _HEADER_V1.pack(size_bytes + 5, correlation_id, 0)
    else:
        head = _HEADER_V0.pack(size_bytes + 4, correlation_id)
    try:
        chunks = flatten_small(chunks)
    except Exception:
        close_chunks(chunks)
        raise
    if all(type(chunk) is bytes for chunk in chunks):
        return [head + b"".join(chunks)]  # type: ignore[arg-type]
    return [head, *chunks]


def encode_unsupported(request: PendingRequest) -> list[Chunk]:
    """Return the response to an ApiVersions request whose version is not served: the served versions, in version 0."""
    route, context = request.route, request.context
    request.handler_start_ns = request.local_end_ns = request.completed_ns = request.received_ns
    request.error_code = int(ErrorCode.UNSUPPORTED_VERSION)
    body = unsupported_version_response(route.min_version, route.max_version).encode(0)
    request.response_bytes = len(body)
    return [_HEADER_V0.pack(len(body) + 4, context.correlation_id) + body]
