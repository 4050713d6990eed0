"""Connections that break at a chosen byte, on the server's side (`CuttingSocket`) or on the client's (`CutClient`)."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from typing import Any, ClassVar

from klamm import Provider, hookimpl
from klamm.testing import RawClient
from klamm_plaintext.transport import PlaintextTransport, PlaintextTransportLayer
from klamm_ssl.transport import SslTransport

_RESET = struct.pack("ii", 1, 0)
_UNLIMITED = 1 << 40


class CuttingSocket:
    """A server's socket that fails after `left` more bytes. `newest` is the socket that was made last."""

    newest: ClassVar[CuttingSocket]

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.left = _UNLIMITED
        CuttingSocket.newest = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def send(self, data: Any, flags: int = 0) -> int:
        if self.left <= 0:
            raise ConnectionResetError("cut")
        part = data[: self.left]
        # The count changes before the bytes are sent, because a test may read or set `left` as soon as the client has
        # the bytes.
        self.left -= len(part)
        count = self._socket.send(part, flags)
        assert count == len(part), "answers of tests are small"
        return count

    def sendmsg(self, chunks: Any, ancillary: Any = (), flags: int = 0) -> int:
        return self.send(b"".join(chunks), flags)


class CuttingPlaintext(PlaintextTransport):
    def wrap(self, sock, peer):
        return PlaintextTransportLayer(CuttingSocket(sock))


class CuttingSsl(SslTransport):
    def wrap(self, sock, peer):
        return super().wrap(CuttingSocket(sock), peer)


class CuttingTransports:
    """A plugin with the two transports that use `CuttingSocket`."""

    @hookimpl
    def klamm_transports(self):
        yield Provider("cutting_plaintext", f"{__name__}:CuttingPlaintext")
        yield Provider("cutting_ssl", f"{__name__}:CuttingSsl", settings="klamm_ssl.ssl_settings:SslSettings")


class TlsSocket:
    """TLS over a client's socket. `encrypted` returns the bytes of TLS without sending them."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.below = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._until_it_can(self._tls.do_handshake)

    def _until_it_can(self, step: Any, *arguments: Any) -> Any:
        while True:
            try:
                result = step(*arguments)
            except ssl.SSLWantReadError:
                self.below.sendall(self._outgoing.read())
                data = self.below.recv(65536)
                if not data:
                    raise ConnectionResetError("closed by the server") from None
                self._incoming.write(data)
            else:
                self.below.sendall(self._outgoing.read())
                return result

    def encrypted(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._outgoing.read()

    def sendall(self, data: bytes) -> None:
        self.below.sendall(self.encrypted(data))

    def recv(self, size: int) -> bytes:
        return self._until_it_can(self._tls.read, size)

    def close(self) -> None:
        self.below.close()


class CutClient(RawClient):
    """A client that can send a part of a request, and can read the server's bytes below TLS."""

    def __init__(self, address, context=None):
        super().__init__(address, timeout_s=30)
        self._tcp = self.socket
        if context is not None:
            self.socket = TlsSocket(self._tcp, context)

    def on_the_wire(self, data):
        """Return the bytes that carry `data`: encrypted, if there is TLS. Send them in this order."""
        return self.socket.encrypted(data) if isinstance(self.socket, TlsSocket) else data

    def send_below(self, data):
        self._tcp.sendall(data)

    def receive_below(self):
        """Return all bytes until the server closes the connection."""
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while data := self._tcp.recv(65536):
                received += data
        return received

    def lose(self, *, abruptly):
        if abruptly:
            self._tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._tcp.close()
