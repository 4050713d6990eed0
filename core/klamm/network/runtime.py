"""`ListenerRuntime`: the objects that all processors of one listener share, made when the listener is built."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from klamm.api.api_set import ApiSet
from klamm.api.authentication import Authenticator, AuthenticatorFactory
from klamm.api.context import Address, ConnectionContext, ListenerContext
from klamm.api.gates import ConnectionGate
from klamm.api.part_failures import unfit
from klamm.api.transport import Transport, TransportLayer
from klamm.metrics.connections import ConnectionCounts, ConnectionFailures
from klamm.metrics.requests import RequestRecorder
from klamm.network.admission import GateOutcomes
from klamm.network.listening_sockets import AcceptTurns
from klamm.network.memory_pool import MemoryPool
from klamm.network.peer_failures import PeerFailureLog
from klamm.requests.listener_parts import RequestParts
from klamm.requests.observers import RequestObservers
from klamm.requests.request_channel import RequestChannel
from klamm.runtime.clock import Clock
from klamm.runtime.scheduler import Scheduler
from klamm.runtime.threads import SYSTEM_THREADS, Threads
from klamm.runtime.workers import Workers

if TYPE_CHECKING:
    from klamm.network.proxy.trust import TrustedProxies

log = logging.getLogger("klamm.network")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a listener that its processors enforce. Sizes are in bytes, times in the unit of their name."""

    max_incoming: int
    max_request_bytes: int
    failed_authentication_delay_ms: int
    max_connection_age_ms: int
    connections_max_idle_ms: int
    connection_setup_timeout_ms: int
    send_buffer_bytes: int
    use_send_file: bool
    poller: str


@dataclass(frozen=True, slots=True)
class ListenerRuntime:
    """The objects that all processors of one listener share. `Listener.open_parts` makes it, before there are threads.

    The class of each object says which threads may call it. `new_recorder` makes the object in which a processor counts
    its requests, or returns None if they are not counted. `end_recorder` gets this object when the processor has ended.
    """

    context: ListenerContext
    limits: Limits
    clock: Clock
    scheduler: Scheduler
    transport: Transport
    authenticators: AuthenticatorFactory | None
    gates: tuple[ConnectionGate, ...]
    proxies: TrustedProxies | None
    requests: RequestParts
    request_channel: RequestChannel
    pool: MemoryPool | None
    handshakers: Workers | None
    failures: ConnectionFailures
    failure_log: PeerFailureLog
    outcomes: GateOutcomes
    counts: ConnectionCounts
    api_set: ApiSet
    new_recorder: Callable[[], RequestRecorder | None]
    end_recorder: Callable[[RequestRecorder], None] | None = None
    turns: AcceptTurns | None = None
    threads: Threads = SYSTEM_THREADS

    @property
    def name(self) -> str:
        """Return the listener's name."""
        return self.context.name

    @property
    def observers(self) -> RequestObservers | None:
        """Return the listener's observers; None if it has none."""
        return self.requests.observers

    @property
    def max_first_bytes(self) -> int:
        """Return the size of the largest frame that a channel may send before it is READY."""
        limit = self.authenticators.max_receive_bytes if self.authenticators is not None else None
        most = self.limits.max_request_bytes
        return most if limit is None else min(limit, most)

    def wrap(self, sock: socket.socket, peer: Address) -> TransportLayer:
        """Return the transport layer of an accepted socket. Raises ConnectionAbortedError if the transport fails."""
        try:
            layer = self.transport.wrap(sock, peer)
            if not isinstance(layer, TransportLayer):
                raise unfit(layer, "a TransportLayer")
        except OSError:
            raise
        except Exception as error:
            self.context.failures.log(log, self.transport, "wrap", error)
            raise ConnectionAbortedError("the transport failed") from error
        return layer

    def authenticator(self, connection: ConnectionContext, transport: TransportLayer) -> Authenticator:
        """Return the authenticator of a new connection. Raises ConnectionAbortedError if its factory fails."""
        factory = self.authenticators
        assert factory is not None
        try:
            made = factory.authenticator(connection, transport)
            if not isinstance(made, Authenticator):
                raise unfit(made, "an Authenticator")
        except Exception as error:
            self.context.failures.log(log, factory, "authenticator", error)
            raise ConnectionAbortedError("the authenticator failed") from error
        return made

    def connection_closed(self, connection: ConnectionContext) -> None:
        """Notify the handler set that a connection has closed. Never raises."""
        try:
            self.api_set.connection_closed(connection)
        except Exception as error:
            self.context.failures.log(log, self.api_set, "connection_closed", error)
