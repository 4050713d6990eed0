"""Metrics of connections. They follow the metrics of Kafka's `SocketServer`, `Acceptor` and `Selector`."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from klamm.metrics.metrics_registry import Labels, MetricsRegistry
from klamm.network.acceptor import Acceptor
from klamm.network.channel import KafkaChannel
from klamm.server.listener import Listener
from klamm.server.metric_tables import (
    SOCKET_SERVER,
    MetricTable,
    Samples,
    acceptors_of,
    processors_of,
    register_all,
)

_SOFTWARE_LABELS: Final = 50


class ConnectionMetrics:
    """The metrics that are read from listeners, acceptors and open connections, on threads that collect metrics."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = listeners
        self._highest: WeakKeyDictionary[Listener, dict[str, int]] = WeakKeyDictionary()

    def register(self, registry: MetricsRegistry) -> None:
        """Register the metrics."""
        register_all(registry, "gauge", self._gauges())
        register_all(registry, "counter", self._of_listeners())
        register_all(registry, "counter", self._of_acceptors())

    def _gauges(self) -> MetricTable:
        return {
            SOCKET_SERVER + "connection-accept-rate": (
                "Connections accepted per second, over the last eleven seconds.",
                lambda: [
                    ({"listener": name}, acceptor.accept_rate()) for name, acceptor in acceptors_of(self._listeners)
                ],
            ),
            SOCKET_SERVER + "connection-count": ("Open connections.", self._connection_counts),
            SOCKET_SERVER + "connections": (
                "Open connections by client software, the most frequent ones.",
                self._connections_by_software,
            ),
        }

    def _of_listeners(self) -> MetricTable:
        return {
            SOCKET_SERVER + "connection-creation-total": (
                "Connections that processors have registered.",
                self._counts("created"),
            ),
            SOCKET_SERVER + "connection-close-total": (
                "Connections that have closed.",
                self._counts("closed"),
            ),
            SOCKET_SERVER + "incoming-byte-total": (
                "Bytes read from connections.",
                lambda: self._bytes("received_bytes"),
            ),
            SOCKET_SERVER + "outgoing-byte-total": ("Bytes written to connections.", lambda: self._bytes("sent_bytes")),
            SOCKET_SERVER + "successful-authentication-total": (
                "Connections that have authenticated.",
                self._counts("authenticated"),
            ),
            SOCKET_SERVER + "failed-authentication-total": (
                "Connections that failed to authenticate.",
                self._counts("failed_authentication"),
            ),
            SOCKET_SERVER + "successful-reauthentication-total": (
                "Sessions that were renewed (KIP-368).",
                self._counts("reauthenticated"),
            ),
            SOCKET_SERVER + "failed-reauthentication-total": (
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
            "klamm:type=Listener,name=SessionsEnded": (
                "Connections closed because a credential, token, key, certificate or rule became invalid, by reason.",
                self._ended_sessions,
            ),
        }

    def _of_acceptors(self) -> MetricTable:
        return {
            "klamm:type=Acceptor,name=ConnectionsAccepted": (
                "Connections that were accepted.",
                lambda: [({"listener": name}, acceptor.accepted) for name, acceptor in acceptors_of(self._listeners)],
            ),
            "klamm:type=Acceptor,name=ConnectionsRefused": (
                "Connections that a gate refused and that were closed at once, by reason.",
                lambda: self._by_reason(lambda acceptor: acceptor.outcomes.refused),
            ),
            "klamm:type=Acceptor,name=ConnectionsDelayed": (
                "Connections that a gate delayed and that were then closed unserved, by reason.",
                lambda: self._by_reason(lambda acceptor: acceptor.outcomes.delayed),
            ),
            "klamm:type=Acceptor,name=ConnectionsPaused": (
                "Connections that a gate kept waiting, at the acceptor or behind a proxy, by reason.",
                lambda: self._by_reason(lambda acceptor: acceptor.outcomes.paused),
            ),
            "klamm:type=Processor,name=ConnectionsMoved": (
                "Connections that a processor has given to another.",
                lambda: [
                    (labels, processor.migrated_connections) for labels, processor in processors_of(self._listeners)
                ],
            ),
        }

    def _by_reason(self, counts: Callable[[Acceptor], Mapping[str, int]]) -> list[tuple[Labels, float]]:
        return [
            ({"listener": name, "reason": reason}, count)
            for name, acceptor in acceptors_of(self._listeners)
            for reason, count in list(counts(acceptor).items())
        ]

    def _connection_counts(self) -> Samples:
        return [(labels, processor.connection_count) for labels, processor in processors_of(self._listeners)]

    def _counts(self, name: str) -> Callable[[], Samples]:
        return lambda: [
            ({"listener": listener.name}, getattr(listener.counts, name).value) for listener in list(self._listeners)
        ]

    def _ended_sessions(self) -> Samples:
        return [
            ({"listener": listener.name, "reason": reason}, count)
            for listener in list(self._listeners)
            for reason, count in listener.counts.ended().items()
        ]

    def _channels(self, listener: Listener) -> Iterator[KafkaChannel]:
        for processor in listener.all_processors:
            yield from processor.channels

    def _bytes(self, attribute: str) -> Samples:
        for listener in list(self._listeners):
            open_bytes = sum(getattr(channel.connection, attribute) for channel in self._channels(listener))
            total = open_bytes + getattr(listener.counts, f"closed_{attribute}").value
            # A connection that closes at this moment may be missed, and a counter must never fall.
            highest = self._highest.setdefault(listener, {})
            highest[attribute] = max(highest.get(attribute, 0), total)
            yield {"listener": listener.name}, highest[attribute]

    def _connections_by_software(self) -> Samples:
        counts: dict[tuple[str, str, str], int] = {}
        for listener in list(self._listeners):
            for channel in self._channels(listener):
                connection = channel.connection
                key = (listener.name, connection.client_software_name, connection.client_software_version)
                counts[key] = counts.get(key, 0) + 1
        for (name, software, version), count in heapq.nlargest(
            _SOFTWARE_LABELS, counts.items(), key=lambda one: one[1]
        ):
            yield {"listener": name, "clientSoftwareName": software, "clientSoftwareVersion": version}, count
