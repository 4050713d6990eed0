"""Exporters of metrics and traces, and commands that show a running server. klamm imports it at every start."""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_extensions() -> Iterator[Provider]:
    """Yield the exporters of metrics."""
    yield Provider(
        "prometheus",
        "klamm_metrics.exporter:PrometheusExporter",
        settings="klamm_metrics.metrics_settings:PrometheusSettings",
        summary="metrics over HTTP, for Prometheus, with /live, /ready and /started",
        workers="parent",
    )
    yield Provider(
        "otlp_metrics",
        "klamm_metrics.otlp_metrics:MetricsExporter",
        settings="klamm_metrics.otlp_settings:OtlpMetricsSettings",
        summary="metrics for a collector of OpenTelemetry; needs klamm[otlp]",
        workers="parent",
    )


@hookimpl
def klamm_request_observers() -> Iterator[Provider]:
    """Yield the exporter of traces."""
    yield Provider(
        "otlp_traces",
        "klamm_metrics.otlp_traces:TracesExporter",
        settings="klamm_metrics.otlp_settings:OtlpTracesSettings",
        summary="a share of the requests as traces of OpenTelemetry; needs klamm[otlp]",
    )


@hookimpl
def klamm_commands() -> Iterator[Provider]:
    """Yield the commands that show a running server."""
    yield Provider("top", "klamm_metrics.top:main", summary="a live view of a running server")
    yield Provider(
        "connections", "klamm_metrics.connections:main", summary="what each connection of a running server does now"
    )
    yield Provider("explain", "klamm_metrics.explain:main", summary="the stage that limits a running server now")
    yield Provider("metrics", "klamm_metrics.files:main", summary="print the Grafana dashboard or the alert rules")
