"""Who gets a connection, and which request is next: the assigner `round_robin` and the request scheduler `fifo`."""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_processor_assigners() -> Iterator[Provider]:
    """Kafka's way."""
    yield Provider(
        "round_robin", "klamm_dispatch.assigners:RoundRobin", summary="each new connection to the next processor"
    )


@hookimpl
def klamm_request_schedulers() -> Iterator[Provider]:
    """Kafka's way."""
    yield Provider("fifo", "klamm_dispatch.schedulers:Fifo", summary="requests in the order they came")
