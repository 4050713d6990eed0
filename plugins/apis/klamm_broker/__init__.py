"""The handler set `broker`, which serves topics, logs and groups like one Apache Kafka broker, and the handler set
`control`.
"""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_api_sets() -> Iterator[Provider]:
    """Yield the handler sets. klamm imports their other modules only if a listener names them."""
    yield Provider(
        "broker",
        factory="klamm_broker.broker:Broker",
        settings="klamm_broker.broker_settings:BrokerSettings",
        summary="an embedded Kafka broker: topics, produce, fetch, consumer groups, admin APIs",
        # Listeners get these parts by default, because in Kafka a quota takes effect as soon as it is set.
        gates=("connection_quota", "creation_rate"),
        throttles=("client_quota",),
        default=True,
    )
    yield Provider(
        "control",
        factory="klamm_broker.control.control:Control",
        summary="the requests that ZooKeeper-based controllers sent to brokers; they move leaders between a broker's "
        "nodes",
        nodes_of="broker",
    )
