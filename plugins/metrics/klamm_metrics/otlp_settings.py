"""Settings of the observer `otlp_traces` and the extension `otlp_metrics`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from klamm import setting


def _check_endpoint(endpoint: str) -> str | None:
    if not endpoint:
        return None
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        return "must be a URL such as http://127.0.0.1:4318/v1/traces, without a user"
    if parts.path in ("", "/"):
        return "must have a path, e.g. /v1/traces or /v1/metrics"
    return None


_ENDPOINT = (
    "URL of the collector, with its path. Empty means the environment variables of OpenTelemetry, e.g. "
    "OTEL_EXPORTER_OTLP_ENDPOINT, or else http://localhost:4318."
)


@dataclass(frozen=True, slots=True)
class OtlpTracesSettings:
    """`[otlp_traces]`."""

    endpoint: str = setting("", doc=_ENDPOINT, check=_check_endpoint)
    sample_ratio: float = setting(0.01, doc="Share of the requests that are traced.", minimum=0.0, maximum=1.0)
    max_queued: int = setting(
        2048, doc="Maximum of traced requests that wait for the collector. Beyond it they are dropped.", minimum=1
    )
    interval_ms: int = setting(5_000, doc="Time between two exports.", minimum=10)


@dataclass(frozen=True, slots=True)
class OtlpMetricsSettings:
    """`[otlp_metrics]`."""

    endpoint: str = setting("", doc=_ENDPOINT, check=_check_endpoint)
    interval_ms: int = setting(60_000, doc="Time between two exports.", minimum=100)
    include: tuple[str, ...] = setting(
        ("*",), doc="Patterns of Prometheus names, with * and ?; only these are exported, e.g. `kafka_network_*`."
    )
    exclude: tuple[str, ...] = setting((), doc="Patterns of Prometheus names that are not exported.")
