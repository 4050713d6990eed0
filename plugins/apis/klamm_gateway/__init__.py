"""The handler set `gateway`: klamm's listeners in front of an Apache Kafka cluster."""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_api_sets() -> Iterator[Provider]:
    """Yield the handler set `gateway`. klamm imports its other modules only if a listener names it."""
    yield Provider(
        "gateway",
        factory="klamm_gateway.gateway:Gateway",
        settings="klamm_gateway.gateway_settings:GatewaySettings",
        summary="forwards requests to a Kafka cluster; the listener provides security, quotas, filters and audit",
        gates=("connection_quota", "creation_rate"),
        throttles=("client_quota",),
        workers="each",
        has_cluster_acls=True,
    )
