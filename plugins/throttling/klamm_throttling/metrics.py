"""Metrics of client quotas: Kafka's for the clients with the highest utilization, and klamm's totals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from klamm.metrics import MetricsRegistry
from klamm_throttling.manager import ClientQuotaManager, Usage
from klamm_throttling.throttling_settings import QUOTA_KEYS

_VALUES: Final = dict(
    zip(
        QUOTA_KEYS,
        (
            ("kafka.server:type=Produce,name=byte-rate", "Bytes of Produce requests per second."),
            ("kafka.server:type=Fetch,name=byte-rate", "Bytes of fetched records per second."),
            ("kafka.server:type=Request,name=request-time", "Percentage of a thread's time that requests take."),
            ("kafka.server:type=ControllerMutation,name=tokens", "Partitions that may be created or deleted at once."),
        ),
        strict=True,
    )
)
_Samples = Iterable[tuple[dict[str, str], float]]


def register(manager: ClientQuotaManager, registry: MetricsRegistry) -> None:
    """Register all of them. They are read at collection only."""

    def labels(usage: Usage) -> dict[str, str]:
        return {"user": usage.user, "client_id": usage.client_id}

    def values(key: str) -> Callable[[], _Samples]:
        return lambda: [(labels(usage), usage.value) for usage in manager.most_used() if usage.key == key]

    for key, (name, doc) in _VALUES.items():
        registry.register(name, "gauge", doc, values(key))
    registry.gauge(
        "kafka.server:type=Request,name=exempt-request-time",
        "Percentage of a thread's time for requests that no quota counts: only those between brokers, so 0.",
        lambda: 0.0,
    )
    registry.register(
        "klamm:type=ClientQuota,name=Utilization",
        "gauge",
        "Share of a client's quota that is used; above 1 the client is throttled.",
        lambda: [({"quota": usage.key, **labels(usage)}, usage.utilization) for usage in manager.most_used()],
    )
    registry.register(
        "klamm:type=ClientQuota,name=ThrottledRequests",
        "counter",
        "Requests that were throttled, by the quota that caused the longest throttle.",
        lambda: [({"quota": key}, counts.requests) for key, counts in manager.counts.items()],
    )
    registry.register(
        "klamm:type=ClientQuota,name=ThrottleTimeMs",
        "counter",
        "Milliseconds for which clients were throttled, by quota.",
        lambda: [({"quota": key}, counts.time_ms) for key, counts in manager.counts.items()],
    )
    registry.gauge(
        "klamm:type=ClientQuota,name=TrackedSensors",
        "Quotas whose use is kept in memory, one for each user and client id that is counted separately.",
        lambda: manager.tracked,
    )
