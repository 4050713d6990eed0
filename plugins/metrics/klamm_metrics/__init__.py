"""The extension `prometheus`, and the commands that look at a running server."""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_extensions() -> Iterator[Provider]:
    """An exporter of metrics."""
    yield Provider(
        "prometheus",
        "klamm_metrics.exporter:PrometheusExporter",
        settings="klamm_metrics.metrics_settings:PrometheusSettings",
        summary="metrics over HTTP, for Prometheus, with /live, /ready and /started",
        workers="parent",
    )


@hookimpl
def klamm_commands() -> Iterator[Provider]:
    """Yield commands that look at a server from outside."""
    yield Provider("top", "klamm_metrics.top:main", summary="a live view of a running server")
    yield Provider(
        "connections", "klamm_metrics.connections:main", summary="what each connection of a running server does now"
    )
    yield Provider("explain", "klamm_metrics.explain:main", summary="the stage that limits a running server now")
    yield Provider("metrics", "klamm_metrics.files:main", summary="print the Grafana dashboard or the alert rules")
