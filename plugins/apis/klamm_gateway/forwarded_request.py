"""`ForwardedRequest`: a request that waits for a node's response, and handles the response.

The connection to the node calls it on the loop's thread. It answers small responses there, and passes large ones that
must be decoded to the gateway's `workers`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias

from klamm import RequestContext
from klamm.forwarding import (
    OpaqueResponse,
    ResponseStream,
    free_in_pieces,
    large_response,
    note_upstream_node,
)
from klamm.runtime import Workers
from klamm.wire.api_keys import ApiKey, load, spec_of
from klamm.wire.primitives import TooManyElementsError, WireError, decode_limited
from klamm_gateway.fetch_walk import FetchWalk

_CARRY_RECORDS: Final = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH})
_DECODED_AT_ONCE_BYTES: Final = 16 * 1024
"""Maximum size of a response that is decoded on the loop's thread, where other clients wait. Larger responses are
decoded by the gateway's `workers`. Bytes of records are not decoded, so they do not count.
"""
_DECODED_AT_ONCE_ELEMENTS: Final = 250
"""Maximum number of elements in a response that is decoded on the loop's thread. 16 KiB may have thousands of elements,
and decoding these takes milliseconds.
"""
_CHANGED_AT_ONCE_BYTES: Final = 4 * 1024
"""If changes apply to a response, it is decoded on the loop's thread only if its request had at most this size. A
change may add the refused parts of the request to the response, so a large request can make a small response large.
"""
_ANY_NUMBER: Final = 1 << 62

Change: TypeAlias = "Callable[[Any], Any]"
UNCHANGED: Final = object()
"""The result of a `Change` that leaves the response unchanged. The response's bytes are then forwarded."""


@cache
def _response_class(api_key: int) -> Any:
    return vars(load(api_key))[f"{spec_of(api_key).name}Response"]


class ForwardedRequest:
    """A request with its `changes`. A change gets the response as a message, and returns the response for the client,
    or UNCHANGED. The changes of a large response run on a thread of `workers`, the others on the loop's thread.

    If `streams` is True, the bytes of a large response may be sent to the client while they arrive.
    """

    __slots__ = ("_changes", "_context", "_message", "_workers", "api_key", "api_version", "correlation_id", "streams")

    def __init__(self, context: RequestContext, workers: Workers, changes: tuple[Change, ...] = ()) -> None:
        self._context = context
        self._workers = workers
        self._changes = changes
        self.api_key = context.api_key
        self.api_version = context.api_version
        self.correlation_id = context.correlation_id
        self._message: Any = None
        self.streams = not changes and context.api_key in _CARRY_RECORDS and self._may_stream()

    def _may_stream(self) -> bool:
        context = self._context
        if not context.response_wanted:
            return True
        return context.api_key == ApiKey.FETCH and not context.response_filtered

    def completed(self, body: bytes) -> None:
        """Handle the node's response."""
        context = self._context
        if self.api_key in _CARRY_RECORDS and context.listener.throttles:
            context.may_send_records(len(body))
        if not self._changes and not context.response_wanted:
            context.respond(OpaqueResponse(body))
            return
        # The decoded part of a response with records grows with the number of requested partitions.
        decoded_bytes = context.size_bytes if self.api_key in _CARRY_RECORDS else len(body)
        is_small = decoded_bytes <= _DECODED_AT_ONCE_BYTES
        if is_small and (not self._changes or context.size_bytes <= _CHANGED_AT_ONCE_BYTES):
            try:
                self._decode(body, _DECODED_AT_ONCE_ELEMENTS)
                return
            except TooManyElementsError:
                pass
        self._workers.submit(lambda: self._decode_large(body), context.connection.connection_id)

    def _decode_large(self, body: bytes) -> None:
        with large_response(self._context):
            # Only the list refers to the message, so that `free_in_pieces` can free it.
            decoded = [self._decode(body, _ANY_NUMBER)]
            if not self._context.response_wanted:
                free_in_pieces(decoded)

    def _decode(self, body: bytes, max_elements: int) -> Any:
        """Return the decoded message; None if the bytes are invalid. Raises TooManyElementsError."""
        context = self._context
        decode = _response_class(self.api_key).decode
        try:
            decoded = message = decode_limited(decode, self.api_version, body, 0, max_elements)
        except TooManyElementsError:
            raise
        except WireError as error:
            context.close_connection(f"malformed response of a node to {context.api_name}: {error}")
            return None
        as_it_came = not context.response_filtered
        try:
            for change in self._changes:
                changed = change(message)
                if changed is not UNCHANGED:
                    message, as_it_came = changed, False
        except Exception as error:
            # The error concerns only this request, and is answered and logged like an exception of a handler.
            context.respond(error)
            return decoded
        if as_it_came:
            context.respond(OpaqueResponse(body, None, message))
        elif context.response_wanted:
            context.respond(message)
        else:
            context.respond(OpaqueResponse(message.encode(self.api_version)))
        return decoded

    def walk(self, size_bytes: int) -> FetchWalk | None:
        """Return the walk that shows observers a streamed response."""
        if not self._context.response_wanted:
            return None
        # Imported here, because it is needed only with observers.
        from klamm_gateway.fetch_walk import FetchWalk

        walk = FetchWalk(self.api_version, size_bytes)
        self._message = walk.message
        return walk

    def began(self, body: bytes, stream: ResponseStream) -> None:
        """Start to send the node's response, whose rest arrives in a stream."""
        if self._context.listener.throttles:
            self._context.may_send_records(len(body) + stream.size_bytes)
        self._context.respond(OpaqueResponse(body, stream, self._message))

    def lose(self, reason: str, *, sent: bool) -> None:
        """Close the client's connection, because there will be no response. `sent` is True if a node may have the
        request.
        """
        if not sent:
            note_upstream_node(self._context, None)
        self._context.close_connection(reason)
