"""The metrics of the network side that are read off when somebody asks, and cost nothing before.

They are those of Kafka's `SocketServer`, `RequestChannel`, `Acceptor`, `Processor`, `KafkaRequestHandlerPool` and
`Selector`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias
from weakref import WeakKeyDictionary

from klamm.metrics.registry import Labels, MetricsRegistry, WindowedShare
from klamm.network.memory_pool import MemoryPool
from klamm.shared.version import __version__

if TYPE_CHECKING:
    from klamm.network.acceptor import Acceptor
    from klamm.network.channel import KafkaChannel
    from klamm.network.processor import Processor
    from klamm.server.listener import Listener
    from klamm.server.server import SocketServer

_Samples: TypeAlias = Iterable[tuple[Labels, float]]
_SOCKET: Final = "kafka.server:type=socket-server-metrics,name="
# What Kafka tells of a pool without a limit: the largest number of a Java long.
_UNLIMITED_BYTES: Final = (1 << 63) - 1
_SOFTWARE_LABELS: Final = 50
_LANE_LABELS: Final = 50
_OTHER_LANES: Final = "other"
_LABEL_CHARACTERS: Final = 100


def _single(read: Callable[[], float]) -> Callable[[], _Samples]:
    return lambda: [({}, read())]


def _largest_lanes(sizes: Mapping[str, int]) -> _Samples:
    # A lane may be named by a client: neither its length nor how many there are is theirs to choose.
    merged: dict[str, int] = {}
    for lane, size in sizes.items():
        name = lane[:_LABEL_CHARACTERS]
        merged[name] = merged.get(name, 0) + size
    if len(merged) > _LANE_LABELS:
        named = dict(heapq.nlargest(_LANE_LABELS, merged.items(), key=lambda one: one[1]))
        rest = sum(merged.values()) - sum(named.values())
        merged = {**named, _OTHER_LANES: named.get(_OTHER_LANES, 0) + rest}
    return [({"lane": lane}, size) for lane, size in merged.items()]


class ServerMetrics:
    """Reads off a server. Processors come and go; the counts of connections are their listener's."""

    def __init__(self, server: SocketServer) -> None:
        self._server = server
        self._clock = server.clock
        self._created_ns = server.clock.monotonic_ns()
        self._shares: WeakKeyDictionary[object, WindowedShare] = WeakKeyDictionary()
        self._highest: dict[tuple[str, str], int] = {}

    def register(self, registry: MetricsRegistry) -> None:
        """Register everything that is read off."""
        server = self._server
        channel = server.request_channel
        gauges: dict[str, tuple[str, Callable[[], _Samples]]] = {
            "kafka.network:type=RequestChannel,name=RequestQueueSize": (
                "Requests that wait for a handler.",
                lambda: [({}, channel.size())],
            ),
            "kafka.network:type=RequestChannel,name=ResponseQueueSize": (
                "Responses that wait for their processor: all, and by processor.",
                self._response_queues,
            ),
            "kafka.network:type=Processor,name=IdlePercent": (
                "Share of time, 0 to 1, in which a processor waits for something to happen.",
                lambda: [(labels, self._idle(processor)) for labels, processor in self._processors()],
            ),
            "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent": (
                "Mean of the processors' shares of idle time, 0 to 1.",
                self._average_idle,
            ),
            "kafka.network:type=Acceptor,name=AcceptorBlockedPercent": (
                "Share of time, 0 to 1, in which an acceptor waits for a processor, a gate or a file descriptor.",
                lambda: [({"listener": name}, self._blocked(acceptor)) for name, acceptor in self._acceptors()],
            ),
            "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent": (
                "Share of time, 0 to 1, in which request handlers wait for requests.",
                lambda: [({}, 1.0 - self._handlers_busy())],
            ),
            _SOCKET + "connection-accept-rate": (
                "Connections taken in per second, over the last eleven seconds.",
                lambda: [({"listener": name}, acceptor.accept_rate()) for name, acceptor in self._acceptors()],
            ),
            _SOCKET + "connection-count": ("Open connections.", self._connection_counts),
            _SOCKET + "connections": (
                "Open connections by client software, the most frequent ones.",
                self._connections_by_software,
            ),
            "klamm:type=RequestChannel,name=LaneSize": (
                "Requests that wait for a handler, by the largest 50 of the scheduler's lanes and others.",
                lambda: _largest_lanes(channel.lane_sizes()),
            ),
            "klamm:type=RequestHandlerPool,name=Size": (
                "Request handler threads.",
                lambda: [({}, server.handler_pool.size)],
            ),
            "klamm:type=Processor,name=TurnAgeMs": (
                "Milliseconds since a processor last looked for something to do; it does so three times a second.",
                self._turn_ages,
            ),
        }
        counters: dict[str, tuple[str, Callable[[], _Samples]]] = {
            _SOCKET + "connection-creation-total": (
                "Connections that processors have taken in.",
                self._counts("created"),
            ),
            _SOCKET + "connection-close-total": (
                "Connections that are closed again.",
                self._counts("closed"),
            ),
            _SOCKET + "incoming-byte-total": ("Bytes read from connections.", lambda: self._bytes("received_bytes")),
            _SOCKET + "outgoing-byte-total": ("Bytes written to connections.", lambda: self._bytes("sent_bytes")),
            _SOCKET + "successful-authentication-total": (
                "Connections that have proved who they are.",
                self._counts("authenticated"),
            ),
            _SOCKET + "failed-authentication-total": (
                "Connections that could not prove who they are.",
                self._counts("failed_authentication"),
            ),
            _SOCKET + "successful-reauthentication-total": (
                "Sessions that were renewed (KIP-368).",
                self._counts("reauthenticated"),
            ),
            _SOCKET + "failed-reauthentication-total": (
                "Sessions that could not be renewed.",
                self._counts("failed_reauthentication"),
            ),
            "kafka.network:type=SocketServer,name=ExpiredConnectionsKilledCount": (
                "Connections closed because their session was not renewed in time (KIP-368).",
                self._counts("expired"),
            ),
            "klamm:type=Listener,name=IdleConnectionsClosed": (
                "Connections closed because nothing happened on them for connections.max.idle.ms.",
                self._counts("idle_closed"),
            ),
            "klamm:type=Acceptor,name=ConnectionsAccepted": (
                "Connections that were let in.",
                lambda: [({"listener": name}, acceptor.accepted) for name, acceptor in self._acceptors()],
            ),
            "klamm:type=Acceptor,name=ConnectionsRefused": (
                "Connections that were closed at once because a gate said so, by reason.",
                lambda: self._by_reason(lambda acceptor: acceptor.outcomes.refused),
            ),
            "klamm:type=Acceptor,name=ConnectionsDelayed": (
                "Connections that were closed unserved, after a delay, because a gate said so, by reason.",
                lambda: self._by_reason(lambda acceptor: acceptor.outcomes.delayed),
            ),
            "klamm:type=Acceptor,name=ConnectionsPaused": (
                "Connections that had to wait because a gate said so, at the acceptor or behind a proxy, by reason.",
                lambda: self._by_reason(lambda acceptor: acceptor.outcomes.paused),
            ),
            "klamm:type=Acceptor,name=DescriptorPauses": (
                "How often accepting paused, for 0.1 s each time, because the system had no file descriptor to give.",
                lambda: [({"listener": name}, acceptor.descriptor_pauses) for name, acceptor in self._acceptors()],
            ),
            "klamm:type=Processor,name=ConnectionsMoved": (
                "Connections that a processor has given to another.",
                lambda: [(labels, processor.moved_connections) for labels, processor in self._processors()],
            ),
            "klamm:type=RequestChannel,name=QueueFull": (
                "How often a request found the request queue full.",
                lambda: [({}, channel.full_count)],
            ),
            "klamm:type=Client,name=Requests": (
                "Requests of open connections, by client; those with most requests.",
                lambda: self._clients("requests"),
            ),
            "klamm:type=Client,name=ReceivedBytes": (
                "Bytes read from open connections, by client; those with most requests.",
                lambda: self._clients("received_bytes"),
            ),
            "klamm:type=Client,name=SentBytes": (
                "Bytes written to open connections, by client; those with most requests.",
                lambda: self._clients("sent_bytes"),
            ),
        }
        for name, (doc, read) in gauges.items():
            registry.register(name, "gauge", doc, read)
        for name, (doc, read) in counters.items():
            registry.register(name, "counter", doc, read)
        self._register_pool(registry, server.pool or MemoryPool(_UNLIMITED_BYTES, clock=self._clock))
        started_ms = self._clock.wall_ms()
        registry.gauge(
            "kafka.server:type=app-info,name=start-time-ms",
            "When the server started, in milliseconds since the epoch; the label tells its version.",
            lambda: started_ms,
            version=__version__,
        )

    def _register_pool(self, registry: MetricsRegistry, pool: MemoryPool) -> None:
        group = "kafka.network:type=SocketServer,name="
        registry.gauge(
            group + "MemoryPoolAvailable",
            "Bytes left for requests; 2^63 - 1 without a limit.",
            lambda: pool.available_bytes,
        )
        registry.gauge(group + "MemoryPoolUsed", "Bytes that requests hold.", lambda: pool.used_bytes)
        registry.gauge(
            _SOCKET + "MemoryPoolAvgDepletedPercent",
            "Share of time, 0 to 1, in which requests waited for memory.",
            lambda: self._share(pool, pool.depleted_ns),
        )
        counters: dict[str, tuple[str, Callable[[], float]]] = {
            _SOCKET + "MemoryPoolDepletedTimeTotal": (
                "Nanoseconds in which requests waited for memory.",
                lambda: pool.depleted_ns,
            ),
            "klamm:type=MemoryPool,name=Depletions": (
                "How often a request found too little memory left.",
                lambda: pool.depletions,
            ),
            "klamm:type=MemoryPool,name=Evictions": (
                "Connections closed because they held memory and sent nothing.",
                lambda: pool.evictions,
            ),
        }
        for name, (doc, read) in counters.items():
            registry.register(name, "counter", doc, _single(read))

    def _handlers_busy(self) -> float:
        pool = self._server.handler_pool
        return self._share(pool, pool.busy_ns_until(self._clock.monotonic_ns()), max(1, pool.size))

    def _blocked(self, acceptor: Acceptor) -> float:
        return self._share(acceptor, acceptor.blocked_ns_until(self._clock.monotonic_ns()))

    def _share(self, key: object, total_ns: int, capacity: int = 1) -> float:
        now_ns = self._clock.monotonic_ns()
        share = self._shares.get(key)
        if share is None:
            share = self._shares.setdefault(key, WindowedShare(getattr(key, "created_ns", self._created_ns)))
        return share.read(now_ns, total_ns, capacity)

    def _listeners(self) -> Iterator[Listener]:
        return iter(list(self._server.listeners))

    def _by_reason(self, counts: Callable[[Acceptor], Mapping[str, int]]) -> list[tuple[Labels, float]]:
        return [
            ({"listener": name, "reason": reason}, count)
            for name, acceptor in self._acceptors()
            for reason, count in list(counts(acceptor).items())
        ]

    def _acceptors(self) -> Iterator[tuple[str, Acceptor]]:
        for listener in self._listeners():
            if listener.acceptor is not None:
                yield listener.name, listener.acceptor

    def _processors(self) -> Iterator[tuple[Labels, Processor]]:
        for listener in self._listeners():
            for processor in listener.all_processors:
                yield {"listener": listener.name, "networkProcessor": str(processor.index)}, processor

    def _idle(self, processor: Processor) -> float:
        return self._share(processor, processor.idle_ns_until(self._clock.monotonic_ns()))

    def _average_idle(self) -> _Samples:
        shares = [self._idle(processor) for _, processor in self._processors()]
        return [({}, sum(shares) / len(shares))] if shares else []

    def _response_queues(self) -> _Samples:
        sizes: list[tuple[Labels, float]] = [
            ({"listener": labels["listener"], "processor": labels["networkProcessor"]}, processor.response_queue_size)
            for labels, processor in self._processors()
        ]
        return [({}, sum(size for _, size in sizes)), *sizes]

    def _turn_ages(self) -> _Samples:
        now_ns = self._clock.monotonic_ns()
        return [(labels, max(0, now_ns - processor.turn_ns) / 1e6) for labels, processor in self._processors()]

    def _connection_counts(self) -> _Samples:
        return [(labels, processor.connection_count) for labels, processor in self._processors()]

    def _counts(self, name: str) -> Callable[[], _Samples]:
        return lambda: [
            ({"listener": listener.name}, getattr(listener.counts, name).value) for listener in self._listeners()
        ]

    def _channels(self, listener: Listener) -> Iterator[KafkaChannel]:
        for processor in listener.all_processors:
            yield from processor.channels

    def _bytes(self, attribute: str) -> _Samples:
        for listener in self._listeners():
            open_bytes = sum(getattr(channel.connection, attribute) for channel in self._channels(listener))
            total = open_bytes + getattr(listener.counts, f"closed_{attribute}").value
            # A connection that closes at this moment may be seen in neither place; a counter never falls.
            key = (listener.name, attribute)
            self._highest[key] = max(self._highest.get(key, 0), total)
            yield {"listener": listener.name}, self._highest[key]

    def _connections_by_software(self) -> _Samples:
        counts: dict[tuple[str, str, str], int] = {}
        for listener in self._listeners():
            for channel in self._channels(listener):
                connection = channel.connection
                key = (listener.name, connection.client_software_name, connection.client_software_version)
                counts[key] = counts.get(key, 0) + 1
        for (name, software, version), count in heapq.nlargest(
            _SOFTWARE_LABELS, counts.items(), key=lambda one: one[1]
        ):
            yield {"listener": name, "clientSoftwareName": software, "clientSoftwareVersion": version}, count

    def _clients(self, attribute: str) -> _Samples:
        sums: dict[tuple[str, str, str, str], list[int]] = {}
        for listener in self._listeners():
            for channel in self._channels(listener):
                connection = channel.connection
                host = connection.client_address.host
                key = (listener.name, str(connection.principal), host, (connection.client_id or "")[:_LABEL_CHARACTERS])
                both = sums.setdefault(key, [0, 0])
                both[0] += channel.requests
                both[1] += channel.requests if attribute == "requests" else getattr(connection, attribute)
        most = heapq.nlargest(self._server.plan.server.metrics_max_clients, sums.items(), key=lambda one: one[1][0])
        for (name, principal, host, client_id), (_, value) in most:
            yield {"listener": name, "principal": principal, "host": host, "client_id": client_id}, value
