"""Requests and responses in bytes, and a connection's loop, for handler sets that forward requests to other servers.

Such a handler set uses `ApiSet.pipelined` and `ApiHandler.opaque`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from struct import Struct
from typing import Any, Final, NoReturn

from klamm.wire.api_keys import find_spec, load
from klamm.wire.chunks import Buffer, Chunk, total_bytes
from klamm.wire.primitives import WireError

STREAMED_FROM_BYTES: Final = 64 * 1024
"""A `ResponseStream` carries more bytes than this; a smaller response is sent whole."""
_THROTTLE_TIME: Final = Struct(">i")


class OpaqueRequest:
    """A request that is not decoded. `frame` is the frame without its size field; its body begins at `body_offset`."""

    __slots__ = ("body_offset", "frame")

    def __init__(self, frame: Buffer, body_offset: int) -> None:
        self.frame = frame
        self.body_offset = body_offset

    @classmethod
    def decode(cls, version: int, frame: Buffer, body_offset: int) -> OpaqueRequest:
        """Return the frame as a request, without decoding it."""
        return cls(frame, body_offset)


class ResponseStream:
    """The rest of a response, `size_bytes` in total, that goes to the client while it still arrives from a server.

    An `OpaqueResponse` carries the stream to the client. Call all methods on the thread of the connection's loop. Call
    `put` with the bytes in order; `remaining` is the number of bytes that are still to come. `abort` closes the
    client's connection, because a response cannot end early. Before the response is sent, `arrived` has the bytes that
    came. While the response is sent, klamm counts the sent bytes in `position`. `read`, `fileno` and `read_into` raise
    TypeError.
    """

    __slots__ = ("_abort", "_fill", "_send", "arrived", "position", "remaining", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        if size_bytes <= STREAMED_FROM_BYTES:
            raise ValueError(f"a response of {size_bytes} bytes is sent whole, not as a stream")
        self.size_bytes = self.remaining = size_bytes
        self.position = 0
        self.arrived: list[Buffer] = []
        self._send: Callable[[Chunk], None] | None = None
        self._fill: Callable[[int, int], Chunk] | None = None
        self._abort: str | Callable[[str], None] = ""

    def put(self, data: Buffer) -> None:
        """Send these bytes after the earlier ones. Raises ValueError for more than `size_bytes` in total.

        The caller may reuse the buffer if `ConnectionLink.can_send` is True after the call, because its bytes were then
        sent or copied.
        """
        self.remaining -= len(data)
        if self.remaining < 0:
            raise ValueError(f"{-self.remaining} bytes were put beyond the {self.size_bytes} declared")
        if self._send is None:
            self.arrived.append(bytes(data))
        else:
            self._send(data)

    @property
    def takes_sockets(self) -> bool:
        """Return True if `put_from` may be called.

        It may not be called while earlier responses are still being sent, nor for clients whose transport changes the
        bytes, e.g. with TLS.
        """
        return self._fill is not None

    def put_from(self, descriptor: int, most_bytes: int) -> int:
        """Send up to `most_bytes` bytes directly from a socket; return their number, 0 if the socket's peer has closed.

        The bytes do not pass through this process's memory. Raises BlockingIOError if no bytes have arrived, and
        OSError.
        """
        assert self._fill is not None
        assert self._send is not None
        part = self._fill(descriptor, min(most_bytes, self.remaining))
        count = total_bytes([part])
        self.remaining -= count
        if count:
            self._send(part)
        return count

    def abort(self, reason: str) -> None:
        """Close the client's connection, because the rest of the response will not arrive; `reason` goes to the log."""
        if callable(self._abort):
            self._abort(reason)
        else:
            self._abort = reason

    def attach(
        self,
        send: Callable[[Chunk], None],
        abort: Callable[[str], None],
        fill: Callable[[int, int], Chunk] | None = None,
    ) -> None:
        """Send the bytes that have arrived, and the others when they arrive.

        The network layer calls this when earlier responses have been sent. `fill` takes up to a number of bytes from a
        socket.
        """
        arrived, self.arrived, self._send, self._fill = self.arrived, [], send, fill
        if arrived:
            send(b"".join(arrived))
        reason, self._abort = self._abort, abort
        if isinstance(reason, str) and reason:
            abort(reason)

    def read(self, position: int, size_bytes: int) -> NoReturn:
        """Raise TypeError: a stream is not a region of a file."""
        raise TypeError("a stream cannot be read")

    fileno = read_into = read

    def close(self) -> None:
        """Drop the stream because the connection has closed; see `ApiSet.connection_closed`."""
        self.arrived = []
        self._send, self._fill = _dropped, None


def _dropped(data: Chunk) -> None:
    """Ignore the bytes of a stream whose connection has closed."""


class StreamedRecords:
    """The records of a response that was sent as a stream: observers see only their `size_bytes`."""

    __slots__ = ("size_bytes",)

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes

    def __eq__(self, other: object) -> bool:
        return type(other) is StreamedRecords and other.size_bytes == self.size_bytes

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"StreamedRecords({self.size_bytes})"


class OpaqueResponse:
    """A response whose body is `body`, followed by the bytes of `stream`; klamm adds size and header.

    Filters do not see the contents. Observers and metrics see `message`, the decoded form, which is complete when the
    stream has ended. Only opaque handlers, and handlers whose responses carry records, may answer with a stream.
    """

    __slots__ = ("body", "message", "stream")

    def __init__(self, body: Buffer, stream: ResponseStream | None = None, message: Any = None) -> None:
        self.body = body
        self.stream = stream
        self.message = message

    def throttled(self, api_key: int, version: int, throttle_time_ms: int) -> Any:
        """Return the response with this throttle time, as a message or as bytes like the original.

        Return the response itself if its throttle time is at least as long, if its API has no throttle time or is not
        known, or if the response is malformed.
        """
        if self.stream is not None:
            return self._throttled_stream(version, throttle_time_ms)
        if self.message is None:
            return self._throttled_bytes(api_key, version, throttle_time_ms)
        if getattr(self.message, "throttle_time_ms", throttle_time_ms) >= throttle_time_ms:
            return self
        message = copy(self.message)
        message.throttle_time_ms = throttle_time_ms
        return message

    def _throttled_bytes(self, api_key: int, version: int, throttle_time_ms: int) -> OpaqueResponse:
        spec = find_spec(api_key)
        if spec is None:
            return self
        try:
            message = vars(load(api_key))[f"{spec.name}Response"].decode(version, self.body, 0)
        except WireError:
            return self
        if getattr(message, "throttle_time_ms", throttle_time_ms) >= throttle_time_ms:
            return self
        message.throttle_time_ms = throttle_time_ms
        return OpaqueResponse(message.encode(version))

    def _throttled_stream(self, version: int, throttle_time_ms: int) -> OpaqueResponse:
        # Responses with records begin with the throttle time: Fetch from version 1 on, and ShareFetch.
        if version < 1 or len(self.body) < _THROTTLE_TIME.size:
            return self
        (own_ms,) = _THROTTLE_TIME.unpack_from(self.body)
        if own_ms >= throttle_time_ms:
            return self
        body = _THROTTLE_TIME.pack(throttle_time_ms) + self.body[_THROTTLE_TIME.size :]
        return OpaqueResponse(body, self.stream, self.message)

    def encode(self, version: int) -> bytes:
        """Return the body. Raises TypeError if the response has a stream."""
        if self.stream is not None:
            raise TypeError("a response of this API cannot be a stream")
        return bytes(self.body)

    def encode_chunks(self, version: int) -> list[Chunk]:
        """Return the body, and the stream if there is one."""
        body = bytes(self.body)
        return [body] if self.stream is None else [body, self.stream]  # type: ignore[list-item]


class ConnectionLink(ABC):
    """A client's connection and the loop that serves it, for a `pipelined` handler set: `ConnectionContext.link`.

    Call all methods but `call_soon` on the loop's thread. Handlers that are not blocking run on that thread.
    """

    on_drained: Callable[[], None] | None = None
    """Called when `can_send` has become True again, if it has been read while it was False."""

    @property
    @abstractmethod
    def can_send(self) -> bool:
        """Return True if the client accepts further bytes, or the connection has room to keep them.

        While it is False, do not read bytes for this client.
        """

    @property
    @abstractmethod
    def on_loop(self) -> bool:
        """Return True if the caller runs on the loop's thread."""

    @abstractmethod
    def watch(self, descriptor: int, interest: int, ready: Callable[[int], None]) -> None:
        """Call `ready` with a mask of `Interest` whenever the descriptor is ready for `interest`, which may be 0.

        Errors and hang-ups are reported as READ and WRITE. A second call for a descriptor replaces the first. If
        `ready` raises, the exception is logged, and the descriptor is not watched any more.
        """

    @abstractmethod
    def forget(self, descriptor: int) -> None:
        """Stop watching a descriptor; call this before the descriptor is closed."""

    @abstractmethod
    def close(self, reason: str) -> None:
        """Close the client's connection; `reason` goes to the log."""

    @abstractmethod
    def login_failed(self, reason: str, *, again: bool) -> None:
        """Report to observers, gates, metrics and the log that the other server has refused the client's login.

        Before this call, set `ConnectionContext.attempted_principal` to the name that the client claimed. `again` is
        True if the client had logged in before. The connection stays open.
        """

    @abstractmethod
    def login_succeeded(self, *, again: bool) -> None:
        """Report to observers, gates and metrics that the other server has accepted the client's login.

        Set `ConnectionContext.principal` before this call. `again` is True if the client had logged in before.
        """

    @abstractmethod
    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop's thread, unless the connection has closed by then. Any thread may call this."""
