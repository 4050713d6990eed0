"""`ClientQuota`: the throttle `client_quota` of one listener, and its metrics.

Threads that run requests call it. All listeners share one `ClientQuotaManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from klamm import ListenerContext, RequestContext, Throttle
from klamm.metrics import MetricsRegistry
from klamm_throttling.manager import ClientQuotaManager, Usage
from klamm_throttling.throttling_settings import QUOTA_KEYS, ClientQuotaSettings

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
    """Register all metrics. Their values are computed when a scraper reads them."""

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


class ClientQuota(Throttle):
    """The throttle `client_quota`. As in Kafka, the use at all listeners is counted together."""

    settings: ClientQuotaSettings

    def __init__(self, settings: ClientQuotaSettings | None = None) -> None:
        super().__init__(settings or ClientQuotaSettings())
        self._manager: ClientQuotaManager

    def open(self, listener: ListenerContext) -> None:
        """Get the shared manager, and join it. Raises ValueError if another listener has different settings."""
        services = listener.services

        def make() -> ClientQuotaManager:
            manager = ClientQuotaManager(services, self.settings)
            register(manager, services.metrics)
            return manager

        self._manager = services.shared.once("client_quota", make)
        self._manager.join(self, lambda: listener.throttles_changed())

    def close(self) -> None:
        self._manager.leave(self)

    @property
    def active(self) -> bool:
        """Return True if there is any quota."""
        return self._manager.has_quotas

    def reconfigure(self, settings: ClientQuotaSettings) -> bool:
        self.settings = settings
        self._manager.configure(settings)
        return True

    def charge(self, context: RequestContext, size_bytes: int, seconds: float) -> int:
        return self._manager.charge(context, size_bytes, seconds)

    def max_record_bytes(self, context: RequestContext) -> int | None:
        return self._manager.max_record_bytes(context)

    def charge_records(self, context: RequestContext, size_bytes: int) -> int:
        return self._manager.charge_records(context, size_bytes)

    def charge_mutations(self, context: RequestContext, count: int, strict: bool) -> int:
        return self._manager.charge_mutations(context, count, strict)
