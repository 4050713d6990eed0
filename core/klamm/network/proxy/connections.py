"""Connections that may come through a proxy: which peers are believed, and the header before the handshake."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn

from klamm.api.context import Address
from klamm.api.gates import ConnectionGate, Delay
from klamm.api.transport import Buffer, HandshakeError, Interest, Transport, TransportLayer
from klamm.network.admission import GateOutcomes, ask_gates
from klamm.network.channel import describe
from klamm.network.proxy.protocol import InvalidProxyHeaderError, ProxyHeader, ProxyHeaderReader
from klamm.network.selector import Selector
from klamm.shared.addresses import IpNetworks

if TYPE_CHECKING:
    from klamm.api.context import ListenerContext
    from klamm.network.channel import KafkaChannel
    from klamm.network.pump import ChannelPump

log = logging.getLogger("klamm.network")


class TrustedProxies:
    """`proxy_protocol` and `trusted_proxies` of a listener that has them."""

    def __init__(self, networks: Iterable[str], outcomes: GateOutcomes, *, required: bool) -> None:
        self._outcomes = outcomes
        self._networks = IpNetworks(networks)
        self.required = required

    def trusts(self, peer: Address) -> bool:
        """Whether what a peer says in a header is believed."""
        return peer.host in self._networks

    def admission(
        self,
        listener: ListenerContext,
        gates: tuple[ConnectionGate, ...],
        transport: Transport,
        selector: Selector,
        pump: ChannelPump,
        connection_id: Callable[[Address, Address], str],
    ) -> ProxyAdmission:
        """What a processor lets clients in by; `connection_id` makes one from a local and a remote address."""
        return ProxyAdmission(listener, gates, transport, selector, pump, connection_id, self._outcomes)

    def layer(self, sock: socket.socket, peer: Address) -> ProxyHeaderLayer:
        """What reads the header of a new connection."""
        return ProxyHeaderLayer(sock, trusted=self.trusts(peer), required=self.required)


class ProxyHeaderLayer(TransportLayer):
    """Stands for the transport until the header has been read; `handshake` reads just that. No other data pass.

    Raises HandshakeError `proxy_header_invalid`, `proxy_header_missing`, or `proxy_untrusted` for a header of a peer
    that may not send one. `waited_for` are the reasons for which gates have had the connection wait.
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
        """What the peer said; None if it said nothing."""
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
        raise RuntimeError("no data pass before the handshake")

    def read_into(self, buffer: memoryview) -> int:
        self._no_data()

    def write(self, chunks: Sequence[Buffer], more: bool = False) -> int:
        self._no_data()

    def send_file(self, descriptor: int, position: int, count: int) -> int:
        self._no_data()

    def close(self) -> None:
        self.socket.close()


class ProxyAdmission:
    """Lets the clients of trusted proxies in, on the thread of a processor: only there is known who they are."""

    def __init__(
        self,
        listener: ListenerContext,
        gates: tuple[ConnectionGate, ...],
        transport: Transport,
        selector: Selector,
        pump: ChannelPump,
        connection_id: Callable[[Address, Address], str],
        outcomes: GateOutcomes,
    ) -> None:
        self._listener = listener
        self._gates = gates
        self._transport = transport
        self._selector = selector
        self._pump = pump
        self._connection_id = connection_id
        self._outcomes = outcomes

    def process(self) -> None:
        """Go on with the channels whose header has been read."""
        channels, self._selector.proxied = self._selector.proxied, []
        for channel in channels:
            try:
                self.admit(channel)
            except Exception as error:
                level = logging.INFO if isinstance(error, OSError) else logging.ERROR
                log.log(level, "%s: connection failed: %r", describe(channel), error)
                self._pump.close(channel, repr(error))

    def admit(self, channel: KafkaChannel) -> None:
        """Ask the gates, and begin the handshake of the transport.

        A gate's Delay that would pause the acceptor holds up this connection alone: others come through the same
        proxy. Any other Delay closes it, as always.
        """
        connection = channel.connection
        layer: ProxyHeaderLayer = channel.transport  # type: ignore[assignment]
        if layer.header is not None and connection.proxy_address is None:
            connection.proxy_address = connection.client_address
            connection.client_address = layer.header.source or connection.proxy_address
            connection.connection_id = self._connection_id(connection.local_address, connection.client_address)
            channel.accepted_from = connection.client_address
        if layer.trusted:
            admitted = list(channel.gates)
            refusal = ask_gates(self._listener.name, self._gates, channel.accepted_from, admitted)
            channel.gates = tuple(admitted)
            if isinstance(refusal, Delay) and refusal.pause_acceptor:
                if refusal.reason not in layer.waited_for:
                    layer.waited_for.add(refusal.reason)
                    self._outcomes.count(refusal)
                self._pump.wait_for_admission(channel, refusal.delay_ms)
                return
            if refusal is not None:
                self._outcomes.count(refusal)
                self._pump.refuse(channel, refusal)
                return
        channel.admit(self._transport.wrap(layer.socket, channel.accepted_from))
        self._selector.begin_handshake(channel)
