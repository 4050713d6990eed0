"""Functions that describe the server itself: its listeners, the stages of a request, and its connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from klamm import ServerServices
from klamm.metrics import Family, HistogramValue
from klamm_console.worker_answers import answered

_LOOK_WITHIN_S: Final = 2.0
_SHOWN_CONNECTIONS: Final = 2_000
_SHOWN_CERTIFICATES: Final = 500

_STAGES: Final = {
    "accept_queue": "klamm:type=Acceptor,name=AcceptQueueSize",
    "accept_queue_limit": "klamm:type=Acceptor,name=AcceptQueueLimit",
    "acceptor_blocked_s": "klamm:type=Acceptor,name=BlockedSeconds",
    "connections": "kafka.server:type=socket-server-metrics,name=connection-count",
    "connections_in_setup": "klamm:type=Processor,name=ConnectionsInSetup",
    "failed_logins": "kafka.server:type=socket-server-metrics,name=failed-authentication-total",
    "processor_busy_s": "klamm:type=Processor,name=BusySeconds",
    "processor_turn_age_ms": "klamm:type=Processor,name=TurnAgeMs",
    "queue": "kafka.network:type=RequestChannel,name=RequestQueueSize",
    "queue_capacity": "klamm:type=RequestChannel,name=QueueCapacity",
    "queue_oldest_ms": "klamm:type=RequestChannel,name=OldestRequestAgeMs",
    "handlers": "klamm:type=RequestHandlerPool,name=Size",
    "handler_busy_s": "klamm:type=RequestHandlerPool,name=BusySeconds",
    "answers_waiting": "kafka.network:type=RequestChannel,name=ResponseQueueSize",
    "pool_waiting": "klamm:type=MemoryPool,name=WaitingRequests",
    "pool_oldest_ms": "klamm:type=MemoryPool,name=OldestWaitMs",
    "pool_used_bytes": "kafka.network:type=SocketServer,name=MemoryPoolUsed",
    "received_bytes": "kafka.server:type=socket-server-metrics,name=incoming-byte-total",
    "sent_bytes": "kafka.server:type=socket-server-metrics,name=outgoing-byte-total",
    "flush": "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
    "workers": "klamm:type=Workers,name=Count",
    "workers_ready": "klamm:type=Workers,name=Ready",
    "workers_restarted": "klamm:type=Workers,name=Restarts",
}
_GATEWAY: Final = "klamm:type=Gateway,name="
_CERTIFICATES: Final = "klamm:type=SslTransport,name=CertificateExpiresInSeconds"
_BY_NAME: Final = {metric: name for name, metric in _STAGES.items()}
_LARGEST: Final = {"pool_oldest_ms", "processor_turn_age_ms", "queue_oldest_ms"}
"""The stages whose value is an age: the largest value is shown. The values of all other stages are added up."""
_SHARED: Final = {"accept_queue", "accept_queue_limit"}
"""The stages of which all workers report the same, because they share the listening sockets."""


def overview(services: ServerServices) -> dict[str, Any]:
    """Return the listeners with their parts, and one number for each stage. Counters begin at the start of the
    server.
    """
    stages: dict[str, float] = {}
    processors = 0
    for family in services.metrics.collect(lambda name: name in _BY_NAME):
        name = _BY_NAME[family.name]
        values = list(_of_all_workers(family).values()) if name in _SHARED else _values(family)
        if name == "processor_busy_s":
            processors = len(values)
        stages[name] = (max if name in _LARGEST else sum)([*values, 0.0])
    return {
        "time_ns": services.clock.monotonic_ns(),
        # The counters of workers have been added up, so that each processor counts once for all.
        "stages": stages | {"processors": processors * max(1, int(stages.get("workers_ready", 1)))},
        "limits": _limits(services),
        "certificates": _certificates(services),
        "gateways": _gateways(services),
        "listeners": [
            {
                "name": each.name,
                "bound": str(each.bound),
                "advertised": str(each.advertised),
                "security_protocol": each.security_protocol,
                "transport": each.transport,
                "api_set": each.api_set,
                "parts": list(each.parts),
            }
            for each in services.listeners.values()
        ],
    }


def parts_of(services: ServerServices, listener: str) -> list[dict[str, Any]]:
    """Return the parts of a listener with their settings in use; of one of the workers if there are several, because
    all have the same.

    Raises LookupError if there is no such listener, and OSError if no worker answers.
    """
    if listener not in services.listeners:
        raise LookupError(listener)
    if services.workers is None:
        return services.listeners[listener].settings_of_parts()
    function = "klamm_console.server_view:parts_of"
    found: list[dict[str, Any]] = answered(services.workers.call_one(function, (listener,), _LOOK_WITHIN_S))
    return found


def _values(family: Family) -> list[float]:
    return [
        sample.value.total / 1000 if isinstance(sample.value, HistogramValue) else float(sample.value)
        for sample in family.samples
    ]


def _of_all_workers(family: Family) -> dict[tuple[tuple[str, str], ...], float]:
    """Return the lowest value that any worker reports for the same labels."""
    found: dict[tuple[tuple[str, str], ...], float] = {}
    for sample, value in zip(family.samples, _values(family), strict=True):
        key = tuple(sorted((label, text) for label, text in sample.labels.items() if label != "worker"))
        found[key] = min(value, found.get(key, value))
    return found


def connections(services: ServerServices) -> dict[str, Any]:
    """Return the open connections. Raises TimeoutError if another call takes too long."""
    if services.connections is None:
        return {"connections": [], "unanswered": []}
    found = services.connections.look(_LOOK_WITHIN_S)
    rows = found["connections"]
    return found | {"connections": rows[:_SHOWN_CONNECTIONS], "count": len(rows)}


def _limits(services: ServerServices) -> list[dict[str, Any]] | None:
    """Return the stages that limit the server now, as `klamm explain` finds them, the worst first.

    None if that is not known: without the extension `prometheus`, and before the second look.
    """
    explainer = services.shared.find("klamm.explainer")
    try:
        found: list[dict[str, Any]] | None = None if explainer is None else explainer.findings()
    except TimeoutError:
        return None
    return found


def _certificates(services: ServerServices) -> list[dict[str, Any]]:
    """Return the certificates, trust stores and revocation lists of all listeners. The first to expire comes first."""
    rows: list[dict[str, Any]] = [
        {**dict(labels), "seconds": value}
        for family in services.metrics.collect(lambda name: name == _CERTIFICATES)
        for labels, value in _of_all_workers(family).items()
    ]
    return sorted(rows, key=lambda row: float(row["seconds"]))[:_SHOWN_CERTIFICATES]


def _gateways(services: ServerServices) -> list[dict[str, Any]]:
    """Return a row for each number that gateways count: its name, its labels and its value."""
    return [
        {"name": family.name.removeprefix(_GATEWAY), "of": _of(sample.labels), "value": value}
        for family in services.metrics.collect(lambda name: name.startswith(_GATEWAY))
        for sample, value in zip(family.samples, _values(family), strict=True)
    ]


def _of(labels: Mapping[str, str]) -> str:
    return ", ".join(f"worker {text}" if label == "worker" else text for label, text in labels.items())
