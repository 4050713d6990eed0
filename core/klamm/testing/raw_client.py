"""`RawClient`: one blocking connection that sends and receives frames, valid or not."""

from __future__ import annotations

import itertools
import socket
from struct import Struct
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from klamm.shared.addresses import UNIX_PREFIX
from klamm.wire.api_keys import load
from klamm.wire.headers import encode_request_header, response_header_size
from klamm.wire.struct_base import Message

if TYPE_CHECKING:
    import ssl

_SIZE: Final = Struct(">i")


def _connected(address: tuple[str, int] | socket.socket, timeout_s: float, source_host: str | None) -> socket.socket:
    if isinstance(address, socket.socket):
        address.settimeout(timeout_s)
        return address
    if address[0].startswith(UNIX_PREFIX):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout_s)
            sock.connect(address[0].removeprefix(UNIX_PREFIX))
        except BaseException:
            sock.close()
            raise
        return sock
    source = None if source_host is None else (source_host, 0)
    sock = socket.create_connection(address, timeout=timeout_s, source_address=source)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _handshake(sock: socket.socket, context: ssl.SSLContext, server_hostname: str) -> socket.socket:
    import ssl

    try:
        return context.wrap_socket(sock, server_hostname=server_hostname)
    except (ssl.SSLZeroReturnError, ssl.SSLEOFError) as error:
        sock.close()
        raise ConnectionError("closed by the server") from error
    except BaseException:
        sock.close()
        raise


class RawClient:
    """A blocking client with one connection. `call` sends a request message and returns the response.

    `send_frame` and `receive_frame` send and receive frames, valid or not. Receiving raises ConnectionError if the peer
    closes the connection, and TimeoutError after `timeout_s`.

    - `address` is host and port, `("unix:/PATH", 0)` for a Unix domain socket, or a connected socket, which the client
      then owns. `source_host` is the address from which the client connects.
    - With an `ssl_context`, the client uses TLS and checks that the certificate is valid for `server_hostname`, by
      default the host.
    - `socket` is the connection's socket.
    """

    def __init__(
        self,
        address: tuple[str, int] | socket.socket,
        *,
        timeout_s: float = 10.0,
        client_id: str | None = "raw",
        ssl_context: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
        source_host: str | None = None,
    ) -> None:
        self.socket = _connected(address, timeout_s, source_host)
        if ssl_context is not None:
            host = "localhost" if isinstance(address, socket.socket) else address[0]
            self.socket = _handshake(self.socket, ssl_context, server_hostname or host)
        self._client_id = client_id
        self._correlation_ids = itertools.count(1)
        self._buffer = b""

    def call(self, request: Message, version: int) -> Any:
        """Send a request and wait for its response."""
        correlation_id = self.send(request, version)
        return self.receive(request.API_KEY, version, correlation_id)

    def send(self, request: Message, version: int) -> int:
        """Send a request; return its correlation id."""
        correlation_id = next(self._correlation_ids)
        header = encode_request_header(request.API_KEY, version, correlation_id, self._client_id)
        self.send_frame(header + request.encode(version))
        return correlation_id

    def receive(self, api_key: int, version: int, correlation_id: int) -> Any:
        """Return the response to a request that was sent. It must be the next response of the connection."""
        frame = self.receive_frame()
        (received,) = _SIZE.unpack_from(frame)
        if received != correlation_id:
            raise AssertionError(f"correlation id {received} instead of {correlation_id}")
        module = load(api_key)
        response_class = vars(module)[f"{module.NAME}Response"]
        return response_class.decode(version, frame, response_header_size(api_key, version))

    def send_frame(self, frame: bytes) -> None:
        """Send a frame: its size, and then these bytes."""
        self.send_bytes(_SIZE.pack(len(frame)) + frame)

    def send_bytes(self, data: bytes) -> None:
        """Send bytes unchanged."""
        self.socket.sendall(data)

    def receive_frame(self) -> bytes:
        """Wait for the next frame, and return it without its size field."""
        (size,) = _SIZE.unpack(self._take(4))
        return self._take(size)

    def at_end(self) -> bool:
        """Wait until the peer closes the connection or sends a byte; return True if it has closed the connection.

        Raises TimeoutError.
        """
        try:
            data = self._received(1)
        except ConnectionError:
            return True
        self._buffer += data
        return not data

    def _received(self, count: int) -> bytes:
        return self.socket.recv(count)

    def _take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            data = self._received(max(65536, count - len(self._buffer)))
            if not data:
                raise ConnectionError("closed by the server")
            self._buffer += data
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
