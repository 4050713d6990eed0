"""The handler set `broker`: topics, logs and consumer groups, as one Apache Kafka broker serves them."""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_api_sets() -> Iterator[Provider]:
    """The handler set `broker`. Its other modules are imported when a listener names it."""
    yield Provider(
        "broker",
        factory="klamm_broker.broker:Broker",
        settings="klamm_broker.settings:BrokerSettings",
        summary="an embedded Kafka broker: topics, produce, fetch, consumer groups, admin APIs",
        # As in Kafka, where quotas work as soon as they are set.
        gates=("connection_quota", "creation_rate"),
        throttles=("client_quota",),
        default=True,
    )
