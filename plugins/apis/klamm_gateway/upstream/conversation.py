"""`Conversation`: a connection to a node for a thread that may wait. It sends one request at a time.

The learners' threads and `klamm doctor` use it for the gateway's own requests.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from klamm.forwarding import ResponseStream
from klamm.wire.headers import encode_request_header
from klamm.wire.primitives import WireError
from klamm.wire.struct_base import Message
from klamm_gateway.upstream.protocol import UpstreamProtocol
from klamm_gateway.upstream.security import Security
from klamm_gateway.upstream.states import UpstreamError, UpstreamState

_READ_BYTES: Final = 64 * 1024


class _Question:
    streams = False

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.answer: bytes | None = None

    def completed(self, body: bytes) -> None:
        self.answer = body

    def walk(self, size_bytes: int) -> None:
        return None

    def began(self, body: bytes, stream: ResponseStream) -> None:
        raise AssertionError


class Conversation:
    """A connection that logs in when it is created. All its answers must arrive within `timeout_s` seconds after its
    creation.

    Every method raises UpstreamError or OSError.
    """

    def __init__(
        self,
        host: str,
        port: int,
        security: Security,
        client_id: str,
        timeout_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self._deadline = now() + timeout_s
        self._client_id = client_id
        self._correlation_id = 0
        self._protocol = UpstreamProtocol(security.account, client_id, _nothing)
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        try:
            if security.context is not None:
                self._protocol.transition_to(UpstreamState.HANDSHAKE)
                self._socket = security.context.wrap_socket(self._socket, server_hostname=host)
            self._protocol.secured()
            self._exchange_until(lambda: self._protocol.state is UpstreamState.READY)
        except ssl.SSLError as error:
            self._socket.close()
            raise UpstreamError("tls_failed", str(error)) from error
        except BaseException:
            self._socket.close()
            raise

    def call(self, request: Message, version: int, module: Any) -> Any:
        """Send a request and return its response."""
        self._correlation_id += 1
        question = _Question(request.API_KEY, version, self._correlation_id)
        header = encode_request_header(request.API_KEY, version, self._correlation_id, self._client_id)
        self._protocol.send([header, request.encode(version)], question)
        self._exchange_until(lambda: question.answer is not None)
        try:
            return vars(module)[f"{module.NAME}Response"].decode(version, question.answer, 0)
        except WireError as error:
            raise UpstreamError("invalid_response", f"malformed response of {module.NAME}: {error}") from error

    def _exchange_until(self, done: Callable[[], bool]) -> None:
        protocol = self._protocol
        while True:
            while protocol.outgoing:
                self._socket.settimeout(self._left_s())
                self._socket.sendall(protocol.outgoing.popleft())
            if done():
                return
            self._socket.settimeout(self._left_s())
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise UpstreamError("closed_by_node", "the node closed the connection")
            protocol.receive(memoryview(data))

    def _left_s(self) -> float:
        left_s = self._deadline - self._now()
        if left_s <= 0:
            raise UpstreamError("timeout", "the node did not answer in time")
        return left_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()


def _nothing() -> None:
    """Do nothing when the connection becomes ready, because `Conversation` reads the state itself."""
