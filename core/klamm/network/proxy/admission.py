"""`ProxyAdmission`, which calls the gates for the client behind a trusted proxy, after the proxy's header."""

from __future__ import annotations

import logging
from collections.abc import Callable

from klamm.api.context import Address
from klamm.api.gates import Delay
from klamm.network.admission import call_gates
from klamm.network.channel import ChannelState, KafkaChannel, describe
from klamm.network.lifecycle import CallSoon, ChannelLifecycle
from klamm.network.proxy.trust import ProxyHeaderLayer
from klamm.network.runtime import ListenerRuntime
from klamm.network.selector import Selector

log = logging.getLogger("klamm.network")


class ProxyAdmission:
    """The admission of clients behind proxies, on the thread of one processor.

    `connection_id` makes an id from a local and a remote address.
    """

    def __init__(
        self,
        runtime: ListenerRuntime,
        selector: Selector,
        lifecycle: ChannelLifecycle,
        call_soon: CallSoon,
        connection_id: Callable[[Address, Address], str],
    ) -> None:
        self._runtime = runtime
        self._selector = selector
        self._lifecycle = lifecycle
        self._call_soon = call_soon
        self._connection_id = connection_id

    def process(self) -> None:
        """Call the gates for the channels whose header has been read."""
        channels, self._selector.proxied = self._selector.proxied, []
        for channel in channels:
            self._admit_or_close(channel)

    def _admit_or_close(self, channel: KafkaChannel) -> None:
        if channel.state is ChannelState.CLOSED:
            return
        try:
            self._admit(channel)
        except Exception as error:
            level = logging.INFO if isinstance(error, OSError) else logging.ERROR
            log.log(level, "%s: connection failed: %r", describe(channel), error)
            self._lifecycle.close(channel, repr(error))

    def _admit(self, channel: KafkaChannel) -> None:
        """Call the gates, and begin the handshake of the transport.

        If a gate returns a Delay that would pause the acceptor, only this connection waits, because the proxy has other
        clients too. Any other Delay closes the connection later, as on other listeners.
        """
        connection = channel.connection
        layer: ProxyHeaderLayer = channel.transport  # type: ignore[assignment]
        if layer.header is not None and connection.proxy_address is None:
            connection.proxy_address = connection.client_address
            connection.client_address = layer.header.source or connection.proxy_address
            connection.connection_id = self._connection_id(connection.local_address, connection.client_address)
            channel.accepted_from = connection.client_address
        if layer.trusted:
            outcomes = self._runtime.outcomes
            admitted = list(channel.gates)
            refusal = call_gates(self._runtime.context, self._runtime.gates, channel.accepted_from, admitted)
            channel.gates = tuple(admitted)
            if isinstance(refusal, Delay) and refusal.pause_acceptor:
                if refusal.reason not in layer.waited_for:
                    layer.waited_for.add(refusal.reason)
                    outcomes.count(refusal)
                self._runtime.scheduler.schedule(
                    refusal.delay_ms, lambda: self._call_soon(channel, self._admit_or_close, channel)
                )
                return
            if refusal is not None:
                outcomes.count(refusal)
                self._lifecycle.authentication.refuse(channel, refusal)
                return
        channel.admit(self._runtime.wrap(layer.socket, channel.accepted_from))
        self._selector.setup.begin(channel)
