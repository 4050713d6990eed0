"""The metrics of the broker's topics, logs and fetch sessions: Kafka's `BrokerTopicMetrics`, `ReplicaManager`, `Log`
and `FetchSessionCache`.

`Broker.open` registers them. The thread that collects metrics reads their values.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from klamm.metrics import Histogram, MetricsRegistry
from klamm_broker.fetch.sessions import FetchSessionCache
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.producer_total import ProducerTotal
from klamm_broker.services import BrokerServices
from klamm_broker.topics.topic import TopicTraffic
from klamm_broker.topics.topic_registry import TopicRegistry

MAX_REPORTED_PARTITIONS: Final = 1000
MAX_REPORTED_TOPICS: Final = 1000
_TRAFFIC: Final = "kafka.server:type=BrokerTopicMetrics,name="
# The histogram of syncs has bounds from 2^4 to 2^25 microseconds, like the histograms of requests.
_SYNC_BITS: Final = range(4, 26)
_LOG: Final = "kafka.log:type=Log,name="
_FETCH_SESSIONS: Final = "kafka.server:type=FetchSessionCache,name="
_REPLICAS: Final = "kafka.server:type=ReplicaManager,name="

_TRAFFIC_METRICS: Final[dict[str, tuple[str, Callable[[TopicTraffic], int]]]] = {
    "MessagesInPerSec": ("Records appended.", lambda each: each.messages_in),
    "BytesInPerSec": ("Bytes of batches appended.", lambda each: each.bytes_in),
    "BytesOutPerSec": ("Bytes of batches given to consumers.", lambda each: each.bytes_out),
    "TotalProduceRequestsPerSec": ("Requested appends, one per partition.", lambda each: each.produce_requests),
    "FailedProduceRequestsPerSec": (
        "Failed appends, except of too large or corrupt batches, of internal topics, and on a failing disk.",
        lambda each: each.failed_produce_requests,
    ),
    "TotalFetchRequestsPerSec": ("Requested reads, one per partition.", lambda each: each.fetch_requests),
    "FailedFetchRequestsPerSec": (
        "Failed reads, except of offsets out of range, of deleted topics, and on a failing disk.",
        lambda each: each.failed_fetch_requests,
    ),
    "TotalShareFetchRequestsPerSec": (
        "ShareFetch requests, once for each topic that they read.",
        lambda each: each.share_fetch_requests,
    ),
    "FailedShareFetchRequestsPerSec": (
        "ShareFetch requests that failed for a partition of the topic.",
        lambda each: each.failed_share_fetch_requests,
    ),
    "TotalShareAcknowledgementRequestsPerSec": (
        "ShareFetch and ShareAcknowledge requests with acknowledgements, once for each topic.",
        lambda each: each.share_acknowledgement_requests,
    ),
    "FailedShareAcknowledgementRequestsPerSec": (
        "Acknowledgements that failed for a partition of the topic.",
        lambda each: each.failed_share_acknowledgement_requests,
    ),
}


def register(
    topics: TopicRegistry,
    producers: ProducerTotal,
    sync_times: Histogram,
    nodes: Mapping[int, BrokerServices],
    registry: MetricsRegistry,
) -> None:
    """Register the broker's metrics. The metrics of fetch sessions are sums over all nodes.

    If there are more than 1,000 topics or partitions, only the first 1,000 are reported. Logs are reported while they
    are open.
    """

    def of_logs(read: Callable[[PartitionLog], int]) -> Callable[[], Iterator[tuple[dict[str, str], float]]]:
        def samples() -> Iterator[tuple[dict[str, str], float]]:
            partitions = (partition for topic in topics.all() for partition in topic.partitions)
            for partition in itertools.islice(partitions, MAX_REPORTED_PARTITIONS):
                opened = partition.opened_log
                if opened is not None:
                    yield {"topic": partition.topic.name, "partition": str(partition.index)}, read(opened)

        return samples

    def of_topics(read: Callable[[TopicTraffic], int]) -> Callable[[], Iterator[tuple[dict[str, str], float]]]:
        def samples() -> Iterator[tuple[dict[str, str], float]]:
            every = topics.all()
            yield {}, read(topics.traffic_of_deleted) + sum(read(topic.traffic) for topic in every)
            for topic in every[:MAX_REPORTED_TOPICS]:
                yield {"topic": topic.name}, read(topic.traffic)

        return samples

    for name, (doc, read_traffic) in _TRAFFIC_METRICS.items():
        registry.register(_TRAFFIC + name, "counter", doc, of_topics(read_traffic))
    registry.register(
        "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
        "histogram",
        "Milliseconds of each sync of a log: at rolls, and for producers to topics with flush.messages.",
        lambda: [({}, sync_times.snapshot(0.001, _SYNC_BITS))],
    )
    _register_fetch_sessions(nodes, registry)
    _register_producers(producers, registry)
    registry.gauge(_REPLICAS + "PartitionCount", "Partitions.", lambda: topics.partition_count)
    registry.gauge(
        _REPLICAS + "LeaderCount",
        "Partitions that this broker leads, which are all of them.",
        lambda: topics.partition_count,
    )
    logs: dict[str, tuple[str, Callable[[PartitionLog], int]]] = {
        "Size": ("Bytes of a partition's segments.", lambda opened: opened.size_bytes),
        "LogEndOffset": ("The offset that the next record will get.", lambda opened: opened.end_offset),
        "LogStartOffset": ("The first offset of the log.", lambda opened: opened.log_start_offset),
    }
    for name, (doc, read) in logs.items():
        registry.register(_LOG + name, "gauge", doc, of_logs(read))


def _register_producers(total: ProducerTotal, registry: MetricsRegistry) -> None:
    registry.gauge(
        _REPLICAS + "ProducerIdCount",
        "Producers that the partitions remember; one that writes to two partitions counts twice.",
        lambda: total.used,
    )
    registry.register(
        "klamm:type=StateLimits,name=ProducerIdEvictionsPerSec",
        "counter",
        "Producers forgotten before they expired, because of `producer.id.max.entries`.",
        lambda: [({}, total.evicted)],
    )


def _register_fetch_sessions(nodes: Mapping[int, BrokerServices], registry: MetricsRegistry) -> None:
    def caches() -> list[FetchSessionCache]:
        return [node.fetch_sessions for node in list(nodes.values())]

    registry.gauge(
        _FETCH_SESSIONS + "NumIncrementalFetchSessions",
        "Incremental fetch sessions.",
        lambda: sum(map(len, caches())),
    )
    registry.gauge(
        _FETCH_SESSIONS + "NumIncrementalFetchPartitionsCached",
        "Partitions of all incremental fetch sessions.",
        lambda: sum(cache.partition_count for cache in caches()),
    )
    registry.gauge(
        "klamm:type=FetchSessions,name=MostOfOneOwner",
        "Incremental fetch sessions of the principal that has the most on one node.",
        lambda: max((cache.slots.largest_share for cache in caches()), default=0),
    )
    registry.register(
        _FETCH_SESSIONS + "IncrementalFetchSessionEvictionsPerSec",
        "counter",
        "Incremental fetch sessions that were replaced by others.",
        lambda: [({}, sum(cache.evictions for cache in caches()))],
    )
