"""`UpstreamProtocol`: the bytes of one connection to a node: login, requests in order, responses. It does no I/O.

An `UpstreamConnection` uses it on its loop's thread, and a `Conversation` on a thread that may wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final, Protocol

from klamm.forwarding import STREAMED_FROM_BYTES, ResponseStream
from klamm.runtime import IllegalTransitionError
from klamm.sasl import SaslAccount, SaslExchange
from klamm.wire.chunks import Buffer
from klamm.wire.headers import encode_request_header, response_header_size
from klamm.wire.messages import sasl_authenticate, sasl_handshake
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from klamm.wire.primitives import WireError, skip_tagged_fields
from klamm_gateway.upstream.states import TRANSITIONS, UpstreamError, UpstreamState

_SIZE: Final = Struct(">i")
_HEAD: Final = Struct(">ii")
_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 1
_LOGIN_ID: Final = -1
_STREAM_RESPONSES_FROM_BYTES: Final = 96 * 1024
_BEGINNING_BYTES: Final = 9
"""Size of the correlation id, empty tagged fields and the throttle time. A response becomes a stream only after these
have arrived.
"""
# A system call costs less with one buffer than with several.
_JOIN_UP_TO_BYTES: Final = 32 * 1024
MAX_WHOLE_BYTES: Final = 100 * 1024 * 1024
"""Maximum size of a response that must be decoded, and of any response before the login is complete."""


class Walk(Protocol):
    """A parser that reads the bytes of a response while they pass. Methods raise WireError."""

    unread_bytes: int
    """Number of bytes that may be skipped."""

    def feed(self, data: Buffer) -> None:
        """Read the next bytes."""

    def passed(self, count: int) -> None:
        """Note that this many of the `unread_bytes` were skipped."""


class Exchange(Protocol):
    """A request that waits for its response."""

    api_key: int
    api_version: int
    correlation_id: int
    streams: bool

    def completed(self, body: bytes) -> None:
        """Handle the whole response, without its header."""

    def walk(self, size_bytes: int) -> Walk | None:
        """Return the parser for a body of this size that is about to be streamed, or None."""

    def began(self, body: bytes, stream: ResponseStream) -> None:
        """Handle the beginning of a response whose rest arrives in a stream. Only called if `streams` is True."""


class UpstreamProtocol:
    """One connection to a node. `outgoing` has the bytes to send, in order. `exchanges` are the requests that wait for
    a response, in order. `ready` is called once requests may be sent.

    If a method raises UpstreamError, the connection is unusable, and the caller must close it.
    """

    def __init__(self, account: SaslAccount | None, client_id: str, ready: Callable[[], None]) -> None:
        self.state = UpstreamState.CONNECTING
        self.outgoing: deque[Buffer] = deque()
        self.exchanges: deque[Exchange] = deque()
        self._account = account
        self._client_id = client_id
        self._ready = ready
        self._waiting: list[Buffer] = []
        self._sasl: SaslExchange | None = None
        self._shaken = False
        self._rest = bytearray()
        self._needed_bytes = 0
        self.stream: ResponseStream | None = None
        self._walk: Walk | None = None
        self.was_ready = False
        """True once requests could be sent."""

    def transition_to(self, state: UpstreamState) -> None:
        """Change the state. Raises IllegalTransitionError for a transition that is not in the table."""
        if state not in TRANSITIONS[self.state]:
            raise IllegalTransitionError(f"upstream connection: {self.state} to {state}")
        self.state = state

    def secured(self) -> None:
        """Start the login, because the connection is established, with TLS if configured."""
        if self._account is None:
            self._begin()
            return
        self.transition_to(UpstreamState.LOGIN)
        self._sasl = self._account.begin()
        request = SaslHandshakeRequest(self._account.mechanism)
        self._put_login(sasl_handshake.API_KEY, _HANDSHAKE_VERSION, request.encode(_HANDSHAKE_VERSION))

    def send(self, frame: list[Buffer], exchange: Exchange | None) -> None:
        """Queue a request, which is sent now or once the login is complete. Without an exchange, no response is
        expected.
        """
        size_bytes = sum(map(len, frame))
        parts: list[Buffer] = [_SIZE.pack(size_bytes), *frame]
        if size_bytes <= _JOIN_UP_TO_BYTES:
            parts = [b"".join(parts)]
        if exchange is not None:
            self.exchanges.append(exchange)
        if self.state is UpstreamState.READY:
            self.outgoing.extend(parts)
        else:
            self._waiting += parts

    @property
    def has_unsent(self) -> bool:
        """Return True if there are bytes of requests to be sent."""
        return bool(self.outgoing or self._waiting)

    @property
    def is_idle(self) -> bool:
        """Return True if no request and no response is in progress."""
        return not self.exchanges and not self.has_unsent and self.stream is None

    @property
    def may_stream(self) -> bool:
        """Return True if the next bytes are the beginning of a response that may be streamed."""
        return bool(self.exchanges) and self.exchanges[0].streams and not self._rest and self.stream is None

    @property
    def has_part(self) -> bool:
        """Return True if the connection keeps the beginning of a response until the rest arrives."""
        return bool(self._rest)

    def receive(self, data: memoryview) -> None:
        """Handle bytes that the node has sent. A `ResponseStream` may keep a part of the buffer. Raises
        UpstreamError.
        """
        position = 0
        if self.stream is not None:
            position = min(self.stream.remaining, len(data))
            stream = self.stream
            if self._walk is not None:
                _look(self._walk, data[:position])
            if stream.remaining == position:
                self.stream = None
            stream.put(data[:position])
        if self._rest:
            self._rest += data[position:]
            if len(self._rest) < self._needed_bytes:
                return
            data, position, self._rest = memoryview(self._rest), 0, bytearray()
        self._needed_bytes = _HEAD.size
        size_bytes = len(data)
        while size_bytes - position >= _HEAD.size and self.state is not UpstreamState.CLOSED:
            end = self._take_frame(data, position)
            if end == position:
                break
            position = end
        if position < size_bytes and self.state is not UpstreamState.CLOSED:
            self._keep(data[position:])

    def _keep(self, beginning: memoryview) -> None:
        if len(beginning) >= _SIZE.size and self._needed_bytes == _HEAD.size:
            _check_size(_SIZE.unpack_from(beginning)[0])
        if self.state is UpstreamState.READY and not self.exchanges:
            raise UpstreamError("invalid_response", f"{len(beginning)} bytes came without a request")
        self._rest = bytearray(beginning)

    @property
    def unread_bytes(self) -> int:
        """Return the number of bytes of the stream that may be skipped."""
        if self.stream is None:
            return 0
        if self._walk is None:
            return self.stream.remaining
        # The last byte is never skipped: `receive` must let the walk check all lengths before it forwards this byte,
        # because the byte completes the client's response.
        return min(self._walk.unread_bytes, self.stream.remaining - 1)

    def passed(self, count: int) -> None:
        """Note that this many bytes of the stream went to the client without `receive`. Raises UpstreamError."""
        assert self.stream is not None
        if self._walk is not None and count:
            try:
                self._walk.passed(count)
            except WireError as error:
                raise _malformed(error) from error
        if not self.stream.remaining:
            self.stream = None

    def _take_frame(self, data: memoryview, position: int) -> int:
        """Return the position after the handled bytes. It is unchanged if more bytes are needed."""
        frame_bytes: int
        frame_bytes, correlation_id = _HEAD.unpack_from(data, position)
        _check_size(frame_bytes)
        begin, end = position + 4, position + 4 + frame_bytes
        exchange = self._expected(correlation_id)
        if end <= len(data):
            if exchange is None:
                self._continue_login(bytes(data[begin + 4 : end]))
            else:
                # `_body` may raise. It is called before `popleft`, because only an exchange in `exchanges` is lost with
                # the connection.
                body = _body(exchange, data[begin:end])
                self.exchanges.popleft()
                exchange.completed(body)
            return end
        missing = end - len(data)
        streams = exchange is not None and exchange.streams and frame_bytes > _STREAM_RESPONSES_FROM_BYTES
        if not streams and frame_bytes > MAX_WHOLE_BYTES:
            raise UpstreamError("invalid_response", f"a response of {frame_bytes} bytes is too large to be decoded")
        if not streams or missing <= STREAMED_FROM_BYTES:
            self._needed_bytes = 4 + frame_bytes
            return position
        if len(data) - begin < _BEGINNING_BYTES:
            return position
        assert exchange is not None
        body = _body(exchange, data[begin:])
        self._walk = exchange.walk(len(body) + missing)
        if self._walk is not None:
            _look(self._walk, body)
        self.exchanges.popleft()
        self.stream = ResponseStream(missing)
        exchange.began(body, self.stream)
        return len(data)

    def _expected(self, correlation_id: int) -> Exchange | None:
        """Return the exchange of the next response; None for a response of the login."""
        if self.state is UpstreamState.LOGIN:
            expected, exchange = _LOGIN_ID, None
        elif self.exchanges:
            exchange = self.exchanges[0]
            expected = exchange.correlation_id
        else:
            raise UpstreamError("invalid_response", "a response without a request")
        if correlation_id != expected:
            raise UpstreamError("invalid_response", f"correlation id {correlation_id} instead of {expected}")
        return exchange

    # ---- login

    def _put_login(self, api_key: int, version: int, body: bytes) -> None:
        header = encode_request_header(api_key, version, _LOGIN_ID, self._client_id)
        self.outgoing.append(_SIZE.pack(len(header) + len(body)) + header + body)

    def _continue_login(self, body: bytes) -> None:
        assert self._sasl is not None
        try:
            if not self._shaken:
                shaken = SaslHandshakeResponse.decode(_HANDSHAKE_VERSION, body)
                if shaken.error_code:
                    offered = ", ".join(shaken.mechanisms)
                    raise UpstreamError("authentication_failed", f"the node offers the mechanisms {offered}")
                self._shaken = True
                self._put_authenticate(self._sasl.first())
                return
            response = SaslAuthenticateResponse.decode(_AUTHENTICATE_VERSION, body)
        except WireError as error:
            raise UpstreamError("invalid_response", f"malformed response to the login: {error}") from error
        if response.error_code:
            raise UpstreamError("authentication_failed", f"the node refuses the login: {response.error_message}")
        try:
            answer = self._sasl.respond(response.auth_bytes)
        except ValueError as error:
            raise UpstreamError("authentication_failed", str(error)) from error
        if answer is None:
            self._sasl = None
            self._begin()
        else:
            self._put_authenticate(answer)

    def _put_authenticate(self, auth_bytes: bytes) -> None:
        request = SaslAuthenticateRequest(auth_bytes)
        self._put_login(sasl_authenticate.API_KEY, _AUTHENTICATE_VERSION, request.encode(_AUTHENTICATE_VERSION))

    def _begin(self) -> None:
        self.transition_to(UpstreamState.READY)
        self.was_ready = True
        self.outgoing.extend(self._waiting)
        self._waiting = []
        self._ready()


def _check_size(frame_bytes: int) -> None:
    if frame_bytes < 4:
        raise UpstreamError("invalid_response", f"declared size {frame_bytes}")


def _look(walk: Walk, data: Buffer) -> None:
    try:
        walk.feed(data)
    except WireError as error:
        raise _malformed(error) from error


def _malformed(error: WireError) -> UpstreamError:
    return UpstreamError("invalid_response", f"malformed response: {error}")


def _body(exchange: Exchange, frame: memoryview) -> bytes:
    """Return the bytes after the header of a response."""
    if response_header_size(exchange.api_key, exchange.api_version) == 4:
        return bytes(frame[4:])
    try:
        return bytes(frame[5:] if not frame[4] else frame[skip_tagged_fields(frame, 4) :])
    except (WireError, IndexError) as error:
        raise UpstreamError("invalid_response", f"malformed header of a response: {error}") from error
