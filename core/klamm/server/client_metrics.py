"""Metrics of the clients that use the most time of the server's threads."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Sequence
from typing import Final

from klamm.metrics.client_usage import ClientKey, client_key
from klamm.metrics.metrics_registry import MetricsRegistry
from klamm.network.connection_looks import running_ns
from klamm.runtime.clock import Clock
from klamm.server.listener import Listener
from klamm.server.metric_tables import Samples, register_all

# The time for which a reading is reused, because one collection reads several metrics of the same clients.
_KEPT_NS: Final = 100_000_000


class _Sums:
    """The sums of one client. The times include closed connections, the other values only open ones."""

    def __init__(self) -> None:
        self.processor_ns = self.handler_ns = 0
        self.requests = self.received_bytes = self.sent_bytes = self.held_bytes = 0


class ClientMetrics:
    """Metrics of the `max_clients` clients that use the most time. They are read on the threads that collect metrics.

    Times of open connections are exact; times of closed connections are as exact as `ClosedConnectionUsage`.
    """

    def __init__(self, listeners: Sequence[Listener], max_clients: int, clock: Clock) -> None:
        self._listeners = listeners
        self._max_clients = max_clients
        self._clock = clock
        # Protects the latest reading.
        self._lock = threading.Lock()
        self._read: list[tuple[tuple[str, ClientKey], _Sums]] = []
        self._read_ns = -_KEPT_NS

    def register(self, registry: MetricsRegistry) -> None:
        """Register the metrics."""
        most = ": the clients that used the most time."
        register_all(
            registry,
            "counter",
            {
                "klamm:type=Client,name=ProcessorSeconds": (
                    "Seconds of processor threads, by client" + most,
                    self._clients(lambda one: one.processor_ns / 1e9),
                ),
                "klamm:type=Client,name=HandlerSeconds": (
                    "Seconds of request handlers, by client" + most,
                    self._clients(lambda one: one.handler_ns / 1e9),
                ),
                "klamm:type=Client,name=Requests": (
                    "Requests of open connections, by client" + most,
                    self._clients(lambda one: one.requests),
                ),
                "klamm:type=Client,name=ReceivedBytes": (
                    "Bytes read from open connections, by client" + most,
                    self._clients(lambda one: one.received_bytes),
                ),
                "klamm:type=Client,name=SentBytes": (
                    "Bytes written to open connections, by client" + most,
                    self._clients(lambda one: one.sent_bytes),
                ),
            },
        )
        held = "Bytes of requests and answers that its connections hold, by client" + most
        register_all(
            registry,
            "gauge",
            {"klamm:type=Client,name=HeldBytes": (held, self._clients(lambda one: one.held_bytes))},
        )

    def _clients(self, value_of: Callable[[_Sums], float]) -> Callable[[], Samples]:
        return lambda: [
            (
                {
                    "listener": listener,
                    "principal": client.principal,
                    "host": client.host,
                    "client_id": client.client_id,
                },
                value_of(sums),
            )
            for (listener, client), sums in self._most()
        ]

    def _most(self) -> list[tuple[tuple[str, ClientKey], _Sums]]:
        with self._lock:
            now_ns = self._clock.monotonic_ns()
            if now_ns - self._read_ns >= _KEPT_NS:
                before, read = dict(self._read), self._read_all(now_ns)
                for key, one in read:
                    # A connection that closes or moves meanwhile may be missed, and a counter must never fall.
                    if (last := before.get(key)) is not None:
                        one.processor_ns = max(one.processor_ns, last.processor_ns)
                        one.handler_ns = max(one.handler_ns, last.handler_ns)
                self._read, self._read_ns = read, now_ns
            return self._read

    def _read_all(self, now_ns: int) -> list[tuple[tuple[str, ClientKey], _Sums]]:
        sums: dict[tuple[str, ClientKey], _Sums] = {}
        for listener in list(self._listeners):
            for client, processor_ns, handler_ns in listener.counts.usage.read():
                one = sums[listener.name, client] = _Sums()
                one.processor_ns, one.handler_ns = processor_ns, handler_ns
            for processor in listener.all_processors:
                for channel in processor.channels:
                    connection = channel.connection
                    one = sums.setdefault((listener.name, client_key(connection)), _Sums())
                    one.processor_ns += channel.busy_ns
                    one.handler_ns += channel.handler_ns + running_ns(channel, now_ns)
                    one.requests += channel.requests
                    one.received_bytes += connection.received_bytes
                    one.sent_bytes += connection.sent_bytes
                    one.held_bytes += channel.held_bytes
        return heapq.nlargest(self._max_clients, sums.items(), key=lambda one: one[1].processor_ns + one[1].handler_ns)
