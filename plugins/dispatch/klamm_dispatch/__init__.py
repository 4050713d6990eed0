"""Processor assigners and request schedulers. klamm imports this module at every start and calls its hooks."""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_processor_assigners() -> Iterator[Provider]:
    """Yield the processor assigners: Kafka's round robin, and one that measures loads."""
    yield Provider(
        "round_robin",
        "klamm_dispatch.assigners:RoundRobin",
        summary="each new connection to the next processor",
        default=True,
    )
    yield Provider(
        "least_loaded",
        "klamm_dispatch.least_loaded:LeastLoaded",
        settings="klamm_dispatch.least_loaded:LeastLoadedSettings",
        summary="each new connection to the processor with the least load; connections migrate from a hot processor",
    )


@hookimpl
def klamm_request_schedulers() -> Iterator[Provider]:
    """Yield the request schedulers: Kafka's queue, and two schedulers with lanes."""
    yield Provider("fifo", "klamm_dispatch.schedulers:Fifo", summary="requests in order of arrival", default=True)
    yield Provider(
        "priority",
        "klamm_dispatch.priority:Priority",
        settings="klamm_dispatch.priority:PrioritySettings",
        summary="control requests ahead of data, by API or by listener",
    )
    yield Provider(
        "fair",
        "klamm_dispatch.fair:Fair",
        settings="klamm_dispatch.fair:FairSettings",
        summary="takes turns between clients, by the cost of their requests",
    )
