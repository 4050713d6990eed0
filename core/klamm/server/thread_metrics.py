"""Metrics of the threads that serve requests: their busy time, and the work that waits for them.

They follow the metrics of Kafka's `RequestChannel`, `Processor`, `Acceptor` and `KafkaRequestHandlerPool`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from klamm.metrics.client_usage import LABEL_CHARACTERS
from klamm.metrics.metrics_registry import Labels, MetricsRegistry
from klamm.network.acceptor import Acceptor
from klamm.network.listening_sockets import AcceptQueue, ListenOverflows
from klamm.network.processor import Processor
from klamm.requests.handler_pool import KafkaRequestHandlerPool
from klamm.requests.request_channel import RequestChannel
from klamm.server.listener import Listener
from klamm.server.metric_tables import (
    MetricTable,
    Samples,
    TimeShares,
    acceptors_of,
    processors_of,
    register_all,
)

_LANE_LABELS: Final = 50
_OTHER_LANES: Final = "other"


class ThreadMetrics:
    """The metrics that are read from processors, acceptors and request handlers, on threads that collect metrics.

    The set of processors may change.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        request_channel: RequestChannel,
        handler_pool: KafkaRequestHandlerPool,
        shares: TimeShares,
        overflows: ListenOverflows | None,
        queue_capacity: int,
    ) -> None:
        """Set the threads to read. `overflows` is given to only one of several worker processes."""
        self._listeners = listeners
        self._channel = request_channel
        self._handler_pool = handler_pool
        self._shares = shares
        self._overflows = overflows
        self._queue_capacity = queue_capacity

    def register(self, registry: MetricsRegistry) -> None:
        """Register the metrics."""
        register_all(registry, "gauge", self._gauges_of_queues())
        register_all(registry, "gauge", self._gauges_of_threads())
        register_all(registry, "counter", self._counters())

    def _gauges_of_queues(self) -> MetricTable:
        return {
            "kafka.network:type=RequestChannel,name=RequestQueueSize": (
                "Requests that wait for a handler.",
                lambda: [({}, self._channel.size())],
            ),
            "kafka.network:type=RequestChannel,name=ResponseQueueSize": (
                "Responses that wait for their processor: all, and by processor.",
                self._response_queues,
            ),
            "klamm:type=RequestChannel,name=LaneSize": (
                "Requests that wait for a handler, by the largest 50 of the scheduler's lanes and others.",
                lambda: _largest_lanes(self._channel.lane_sizes()),
            ),
            "klamm:type=RequestChannel,name=QueueCapacity": (
                "Maximum number of requests that wait for a handler.",
                lambda: [({}, self._queue_capacity)],
            ),
            "klamm:type=RequestChannel,name=OldestRequestAgeMs": (
                "Milliseconds for which the oldest request has waited for a handler, in the queue or at a processor.",
                lambda: [({}, self._oldest_ms())],
            ),
            "klamm:type=Processor,name=ConnectionsInSetup": (
                "Connections that are new, or in their handshake or authentication.",
                lambda: [(labels, one.connections_in_setup) for labels, one in processors_of(self._listeners)],
            ),
            "klamm:type=Acceptor,name=AcceptQueueSize": (
                "Connections that the system queues until they are accepted (Linux).",
                lambda: self._accept_queues(lambda queue: queue.waiting),
            ),
            "klamm:type=Acceptor,name=AcceptQueueLimit": (
                "Maximum number of connections that the system queues: backlog, or its own limit (Linux).",
                lambda: self._accept_queues(lambda queue: queue.limit),
            ),
            "klamm:type=Processor,name=WaitingRequests": (
                "Requests that a processor holds, because the request queue had no room for them.",
                lambda: [(labels, processor.waiting_requests) for labels, processor in processors_of(self._listeners)],
            ),
        }

    def _gauges_of_threads(self) -> MetricTable:
        return {
            "kafka.network:type=Processor,name=IdlePercent": (
                "Share of time, 0 to 1, in which a processor waits for something to happen.",
                lambda: [(labels, self._idle(processor)) for labels, processor in processors_of(self._listeners)],
            ),
            "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent": (
                "Mean of the processors' shares of idle time, 0 to 1.",
                self._average_idle,
            ),
            "kafka.network:type=Acceptor,name=AcceptorBlockedPercent": (
                "Share of time, 0 to 1, in which an acceptor waits for a processor, a gate or a file descriptor.",
                lambda: [
                    ({"listener": name}, self._blocked(acceptor)) for name, acceptor in acceptors_of(self._listeners)
                ],
            ),
            "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent": (
                "Share of time, 0 to 1, in which request handlers wait for requests.",
                lambda: [({}, 1.0 - self._handlers_busy())],
            ),
            "klamm:type=RequestHandlerPool,name=Size": (
                "Request handler threads.",
                lambda: [({}, self._handler_pool.size)],
            ),
            "klamm:type=Processor,name=TurnAgeMs": (
                "Milliseconds since a processor last looked for something to do; it does so three times a second.",
                self._turn_ages,
            ),
        }

    def _listen_overflows(self) -> Samples:
        count = None if self._overflows is None else self._overflows.count()
        return [] if count is None else [({}, count)]

    def _counters(self) -> MetricTable:
        return {
            "klamm:type=Acceptor,name=DescriptorPauses": (
                "Pauses of accepting, 0.1 s each, because the system had no free file descriptor.",
                lambda: [
                    ({"listener": name}, acceptor.descriptor_pauses) for name, acceptor in acceptors_of(self._listeners)
                ],
            ),
            "klamm:type=Acceptor,name=ListenOverflows": (
                "Connections that found a full queue since the start, at all sockets of the host or container (Linux).",
                self._listen_overflows,
            ),
            "klamm:type=Acceptor,name=BlockedSeconds": (
                "Seconds in which an acceptor waited for a processor, a gate or a file descriptor.",
                lambda: self._acceptor_seconds(lambda one, now_ns: one.blocked_ns_until(now_ns)),
            ),
            "klamm:type=Acceptor,name=BusySeconds": (
                "Seconds in which an acceptor accepted connections.",
                lambda: self._acceptor_seconds(lambda one, _: one.busy_ns),
            ),
            "klamm:type=Processor,name=BusySeconds": (
                "Seconds in which a processor did not wait for something to happen.",
                lambda: self._processor_seconds(lambda one, now_ns: one.busy_ns_until(now_ns)),
            ),
            "klamm:type=Processor,name=SetupSeconds": (
                "Busy seconds for new connections: registration, handshakes and authentication.",
                lambda: self._processor_seconds(lambda one, _: one.setup_ns),
            ),
            "klamm:type=RequestHandlerPool,name=BusySeconds": (
                "Seconds that all request handlers together have spent on requests.",
                lambda: [({}, self._handler_pool.busy_ns_until(self._now_ns()) / 1e9)],
            ),
            "klamm:type=RequestChannel,name=QueueFull": (
                "Requests that found the request queue full.",
                lambda: [({}, self._channel.full_count)],
            ),
        }

    def _now_ns(self) -> int:
        return self._shares.clock.monotonic_ns()

    def _acceptor_seconds(self, read_ns: Callable[[Acceptor, int], int]) -> Samples:
        now_ns = self._now_ns()
        return [
            ({"listener": name}, read_ns(acceptor, now_ns) / 1e9) for name, acceptor in acceptors_of(self._listeners)
        ]

    def _processor_seconds(self, read_ns: Callable[[Processor, int], int]) -> Samples:
        now_ns = self._now_ns()
        return [(labels, read_ns(one, now_ns) / 1e9) for labels, one in processors_of(self._listeners)]

    def _oldest_ms(self) -> float:
        oldest = [since_ns for _, one in processors_of(self._listeners) if (since_ns := one.queued_since_ns())]
        return max(0, self._now_ns() - min(oldest)) / 1e6 if oldest else 0.0

    def _handlers_busy(self) -> float:
        pool = self._handler_pool
        return self._shares.read(pool, pool.busy_ns_until(self._now_ns()), max(1, pool.size))

    def _blocked(self, acceptor: Acceptor) -> float:
        return self._shares.read(acceptor, acceptor.blocked_ns_until(self._now_ns()))

    def _idle(self, processor: Processor) -> float:
        return self._shares.read(processor, processor.idle_ns_until(self._now_ns()))

    def _average_idle(self) -> Samples:
        shares = [self._idle(processor) for _, processor in processors_of(self._listeners)]
        return [({}, sum(shares) / len(shares))] if shares else []

    def _response_queues(self) -> Samples:
        sizes: list[tuple[Labels, float]] = [
            ({"listener": labels["listener"], "processor": labels["networkProcessor"]}, processor.response_queue_size)
            for labels, processor in processors_of(self._listeners)
        ]
        return [({}, sum(size for _, size in sizes)), *sizes]

    def _accept_queues(self, value_of: Callable[[AcceptQueue], int]) -> Samples:
        return [
            ({"listener": name}, sum(map(value_of, queues)))
            for name, acceptor in acceptors_of(self._listeners)
            if (queues := acceptor.accept_queues())
        ]

    def _turn_ages(self) -> Samples:
        now_ns = self._now_ns()
        return [
            (labels, max(0, now_ns - processor.turn_ns) / 1e6) for labels, processor in processors_of(self._listeners)
        ]


def _largest_lanes(sizes: Mapping[str, int]) -> Samples:
    # Limit the length and the number of names, because clients may choose the names of lanes.
    merged: dict[str, int] = {}
    for lane, size in sizes.items():
        name = lane[:LABEL_CHARACTERS]
        merged[name] = merged.get(name, 0) + size
    if len(merged) > _LANE_LABELS:
        named = dict(heapq.nlargest(_LANE_LABELS, merged.items(), key=lambda one: one[1]))
        rest = sum(merged.values()) - sum(named.values())
        merged = {**named, _OTHER_LANES: named.get(_OTHER_LANES, 0) + rest}
    return [({"lane": lane}, size) for lane, size in merged.items()]
