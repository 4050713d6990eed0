"""The peers that may send a PROXY header, and the transport layer that reads the header before the handshake."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from typing import NoReturn

from klamm.api.context import Address
from klamm.api.transport import HandshakeError, Interest, TransportLayer
from klamm.network.proxy.protocol import InvalidProxyHeaderError, ProxyHeader, ProxyHeaderReader
from klamm.shared.addresses import IpNetworks
from klamm.wire.chunks import Buffer


class TrustedProxies:
    """The settings `proxy_protocol` and `trusted_proxies` of a listener. They never change, so any thread may ask."""

    def __init__(self, networks: Iterable[str], *, required: bool) -> None:
        self._networks = IpNetworks(networks)
        self.required = required

    def trusts(self, peer: Address) -> bool:
        """Return True if the listener accepts a PROXY header from this peer."""
        return peer.host in self._networks

    def header_layer(self, sock: socket.socket, peer: Address) -> ProxyHeaderLayer:
        """Return the transport layer that reads the header of a new connection."""
        return ProxyHeaderLayer(sock, trusted=self.trusts(peer), required=self.required)


class ProxyHeaderLayer(TransportLayer):
    """The transport layer of a connection until its header has been read. It reads the header and no other data.

    `ConnectionSetup` makes it, and only the processor's thread uses it.
    `handshake` raises HandshakeError with the reason `proxy_header_invalid`, `proxy_header_missing`, or
    `proxy_untrusted` if the peer may not send a header. `waited_for` are the reasons for which gates have delayed the
    connection.
    """

    __slots__ = ("_reader", "_required", "socket", "trusted", "waited_for")

    def __init__(self, sock: socket.socket, *, trusted: bool, required: bool) -> None:
        self.socket = sock
        self.trusted = trusted
        self._required = required
        self._reader = ProxyHeaderReader()
        self.waited_for: set[str] = set()

    @property
    def header(self) -> ProxyHeader | None:
        """Return the header that the peer has sent; None if it has sent none."""
        return self._reader.header

    def handshake(self) -> Interest:
        reader = self._reader
        while not reader.done:
            try:
                data = self.socket.recv(reader.wanted, socket.MSG_PEEK)
            except BlockingIOError:
                return Interest.READ
            if not data:
                raise ConnectionResetError("closed by peer before a PROXY header")
            try:
                count = reader.receive(data)
            except InvalidProxyHeaderError as error:
                raise HandshakeError("proxy_header_invalid", f"PROXY header: {error}") from error
            if count and not self.trusted:
                raise HandshakeError("proxy_untrusted", "a PROXY header came from a peer outside trusted_proxies")
            self.socket.recv(count)
        if reader.header is None and self._required:
            raise HandshakeError("proxy_header_missing", "no PROXY header came, and the listener requires one")
        return Interest.NONE

    def _no_data(self) -> NoReturn:
        raise RuntimeError("data cannot be read or written before the handshake")

    def read_into(self, buffer: memoryview) -> int:
        self._no_data()

    def write(self, chunks: Sequence[Buffer], more: bool = False) -> int:
        self._no_data()

    def send_file(self, descriptor: int, position: int, count: int) -> int:
        self._no_data()

    def close(self) -> None:
        self.socket.close()
