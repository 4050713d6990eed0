"""The metrics of the network layer. Their values are read only when a scraper collects them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from klamm.metrics.metrics_registry import MetricsRegistry
from klamm.network.listening_sockets import ListenOverflows
from klamm.network.memory_pool import MemoryPool
from klamm.requests.handler_pool import KafkaRequestHandlerPool
from klamm.requests.request_channel import RequestChannel
from klamm.runtime.clock import Clock
from klamm.server.client_metrics import ClientMetrics
from klamm.server.connection_metrics import ConnectionMetrics
from klamm.server.listener import Listener
from klamm.server.metric_tables import SOCKET_SERVER, TimeShares, single
from klamm.server.thread_metrics import ThreadMetrics
from klamm.shared.version import __version__
from klamm.shared.worker_share import WorkerShare

# Kafka's value for a pool without a limit: the largest number of a Java long.
_UNLIMITED_BYTES: Final = (1 << 63) - 1


def register_server_metrics(
    registry: MetricsRegistry,
    *,
    listeners: Sequence[Listener],
    request_channel: RequestChannel,
    handler_pool: KafkaRequestHandlerPool,
    pool: MemoryPool | None,
    max_clients: int,
    clock: Clock,
    worker: WorkerShare,
    queue_capacity: int,
) -> None:
    """Register the metrics of one server. Metrics by client have at most `max_clients` clients."""
    shares = TimeShares(clock)
    overflows = ListenOverflows() if worker.number == 1 else None
    ThreadMetrics(listeners, request_channel, handler_pool, shares, overflows, queue_capacity).register(registry)
    ConnectionMetrics(listeners).register(registry)
    ClientMetrics(listeners, max_clients, clock).register(registry)
    _register_pool(registry, clock, pool or MemoryPool(_UNLIMITED_BYTES, clock=clock), shares)
    started_ms = clock.wall_ms()
    registry.gauge(
        "kafka.server:type=app-info,name=start-time-ms",
        "When the server started, in milliseconds since the epoch; the label is its version.",
        lambda: started_ms,
        version=__version__,
    )


def _register_pool(registry: MetricsRegistry, clock: Clock, pool: MemoryPool, shares: TimeShares) -> None:
    group = "kafka.network:type=SocketServer,name="
    registry.gauge(
        group + "MemoryPoolAvailable",
        "Bytes left for requests; 2^63 - 1 without a limit.",
        lambda: pool.available_bytes,
    )
    registry.gauge(group + "MemoryPoolUsed", "Bytes that requests hold.", lambda: pool.used_bytes)
    registry.gauge(
        "klamm:type=MemoryPool,name=WaitingRequests",
        "Requests that wait for memory.",
        lambda: len(pool.waiting_since_ns),
    )
    registry.gauge(
        "klamm:type=MemoryPool,name=OldestWaitMs",
        "Milliseconds for which the oldest request has waited for memory.",
        lambda: max(0, clock.monotonic_ns() - min(pool.waiting_since_ns, default=clock.monotonic_ns())) / 1e6,
    )
    registry.gauge(
        SOCKET_SERVER + "MemoryPoolAvgDepletedPercent",
        "Share of time, 0 to 1, in which requests waited for memory.",
        lambda: shares.read(pool, pool.depleted_ns),
    )
    counters: dict[str, tuple[str, Callable[[], float]]] = {
        SOCKET_SERVER + "MemoryPoolDepletedTimeTotal": (
            "Nanoseconds in which requests waited for memory.",
            lambda: pool.depleted_ns,
        ),
        "klamm:type=MemoryPool,name=Depletions": (
            "Requests that found too little memory left, each counted once.",
            lambda: pool.depletions,
        ),
        "klamm:type=MemoryPool,name=Evictions": (
            "Connections closed because they held memory and sent nothing.",
            lambda: pool.evictions,
        ),
    }
    for name, (doc, read) in counters.items():
        registry.register(name, "counter", doc, single(read))
